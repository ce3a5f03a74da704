// y = x Wᵀ, a lane ROWS rows, a workgroup TOKENS tokens: for processors. No barrier, no workgroup
// memory; the weights of a row lie in one lane, inputs are shared by all. The chain:
// kernels/matmul.rs. Grid: (tokens / STEP, rows / (ROWS LANES)): it tells how many tokens there are, so
// that the last workgroup computes no more than those; the workgroups between have nothing to do.
// use: input, order, codes, scale, pieces, partial, sums, close, epilogue

struct Params {
  rows: u32,
  groups: u32,
  tokens: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
  bias: u32,
  add: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

// Index of an array of TOKENS. Clamped, as drivers unroll a loop whose counter indexes an array.
fn in_tile(n: u32) -> u32 { return min(n, TOKENS - 1u); }

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32
) {
  let first_token = STEP * group.x;
  if (first_token % TOKENS != 0u) { return; }
  let tokens = min(STEP * (grid.x - group.x), TOKENS);
  let first_row = ROWS * LANES * group.y;
  // Borders are clamped, not branched on: every lane stays active for the others.
  var token: array<u32, TOKENS>;
  for (var n = 0u; n < TOKENS; n++) { token[n] = min(first_token + n, p.tokens - 1u); }
  // Those of ROWS that there are. The compiler shall see no bound of it (no matrix is as wide as the
  // shift asks): loops over rows shall stay loops. Drivers unroll what they can count or what indexes an
  // array, hoist the loads of all rows, and run out of registers: several times longer to compile, and
  // slower. Only where a row is little code does it pay.
  let rows = select(min(ROWS + (p.groups >> 30u), (p.rows - first_row + LANES - 1u) / LANES), ROWS, UNROLL == 1u);

  // Of the span at work, and of all before it: [row][token].
  var a: array<array<f32, TOKENS>, ROWS>;
  var total: array<array<f32, TOKENS>, ROWS>;
  for (var g = 0u; g < p.groups; g++) {
    var x: array<Input, TOKENS>;
    for (var n = 0u; n < tokens; n++) {
      x[in_tile(n)] = group_input(token[in_tile(n)], p.act_stride, g, lane);
    }
    for (var i = 0u; i < rows; i++) {
      let row = min(first_row + LANES * i + lane, p.rows - 1u);
      let q = group_codes(row, p.groups, g);
      let scale = group_scale(row, p.groups, g);
      let at = min(i, ROWS - 1u);
      for (var n = 0u; n < tokens; n++) {
        a[at][in_tile(n)] = group_term(a[at][in_tile(n)], q, x[in_tile(n)], scale);
      }
    }
    // One loop over groups with a branch here: a loop over the groups of a span inside a loop over
    // spans is unrolled by software drivers, at five times the compile time.
    if ((g & 3u) == 3u) {
      for (var i = 0u; i < rows; i++) {
        let at = min(i, ROWS - 1u);
        for (var n = 0u; n < TOKENS; n++) {
          total[at][n] += a[at][n];
          a[at][n] = 0.0;
        }
      }
    }
  }
  for (var i = 0u; i < rows; i++) {
    let row = first_row + LANES * i + lane;
    let at = min(i, ROWS - 1u);
    for (var n = 0u; n < TOKENS; n++) {
      // A short last span; else + 0, which changes no bit of a sum that began at + 0.
      let sum = total[at][n] + a[at][n];
      var scale = 1.0;
      if (p.norm != 0u) { scale = rstd[token[n]]; }
      if (n < tokens && row < p.rows && first_token + n < p.tokens) { epilogue(token[n], row, sum, scale); }
    }
  }
}
