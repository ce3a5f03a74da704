// y = x Wᵀ with the weights of the expert that a token was routed to, a lane four rows: for
// processors. The chain: kernels/matmul.rs. Grid: (chosen, rows / (4 LANES), tokens).
// use: input, order, codes, scale, pieces, partial, sums, close, epilogue

struct Params {
  rows: u32,
  groups: u32,
  first_expert: u32,
  experts: u32,
  share: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> route: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let pair = group.z * groups.x + group.x;
  // An expert before the window wraps around and is outside it too.
  let expert = route[pair].x - p.first_expert;
  if (expert >= p.experts) { return; }
  let input = pair / p.share;
  let first_row = ROWS * LANES * group.y;
  // A count that the compiler cannot foresee: see matmul_row.wgsl.
  let rows = select(min(ROWS + (p.groups >> 30u), (p.rows - first_row + LANES - 1u) / LANES), ROWS, UNROLL == 1u);

  var a: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  for (var g = 0u; g < p.groups; g++) {
    let x = group_input(input, p.act_stride, g, lane);
    for (var i = 0u; i < rows; i++) {
      let row = expert * p.rows + min(first_row + LANES * i + lane, p.rows - 1u);
      let at = min(i, ROWS - 1u);
      a[at] = group_term(a[at], group_codes(row, p.groups, g), x, group_scale(row, p.groups, g));
    }
    if ((g & 3u) == 3u) {
      for (var i = 0u; i < rows; i++) {
        let at = min(i, ROWS - 1u);
        total[at] += a[at];
        a[at] = 0.0;
      }
    }
  }
  for (var i = 0u; i < rows; i++) {
    let row = first_row + LANES * i + lane;
    let at = min(i, ROWS - 1u);
    // A short last span; else + 0, which changes no bit of a sum that began at + 0.
    let sum = total[at] + a[at];
    var scale = 1.0;
    if (p.norm != 0u) { scale = rstd[input]; }
    if (row < p.rows) { epilogue(pair, row, sum, scale); }
  }
}
