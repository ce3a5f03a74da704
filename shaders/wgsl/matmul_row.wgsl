// y = x Wᵀ, a lane ROWS rows, a workgroup TOKENS tokens: for processors. No barrier, no workgroup
// memory; the weights of a row lie in one lane, inputs are shared by all. The chain:
// kernels/matmul.rs. Grid: (tiles, rows / (ROWS LANES)), and what a tile of tokens asks for.
// use: tile, input, order, codes, scale, pieces, partial, sums, close, epilogue

// Index of an array of TOKENS. Clamped, as drivers unroll a loop whose counter indexes an array.
fn in_tile(n: u32) -> u32 { return min(n, TOKENS - 1u); }

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32
) {
  let tile = tile_at(group.x, group.z, grid.x);
  if (tile.tokens == 0u) { return; }
  // Those there are. Here the compiler shall see a bound: a loop over tokens that it cannot write out
  // indexes arrays in memory, and takes four times as long.
  let tokens = min(tile.tokens, TOKENS);
  let first_row = ROWS * LANES * group.y;
  // Borders are clamped, not branched on: every lane stays active for the others.
  var output: array<u32, TOKENS>;
  for (var n = 0u; n < TOKENS; n++) { output[n] = tile_output(tile, n); }
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
      x[in_tile(n)] = group_input(input_row(output[in_tile(n)]), p.act_stride, g, lane);
    }
    for (var i = 0u; i < rows; i++) {
      let row = tile.row + min(first_row + LANES * i + lane, p.rows - 1u);
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
      if (p.norm != 0u) { scale = rstd[input_row(output[n])]; }
      if (n < tokens && row < p.rows) { epilogue(output[n], row, sum, scale); }
    }
  }
}
