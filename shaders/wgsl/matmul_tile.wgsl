// y = x Wᵀ by tiles of 4 LANES_ROW rows × 4 LANES_TOKEN tokens, 4 × 4 a lane: a group of 32 of both
// sides goes through workgroup memory at a time. The chain: kernels/matmul.rs.
// Grid: (rows / (4 LANES_ROW), tiles), and what a tile of tokens asks for.
// use: tile, input, order, codes, scale, pieces, partial, sums, close, epilogue

const ROWS = 4u * LANES_ROW;
const TOKENS = 4u * LANES_TOKEN;
const LANES = LANES_ROW * LANES_TOKEN;

// [piece][row or token]: neighbouring lanes read neighbouring words.
var<workgroup> w_tile: array<Piece, PIECES * ROWS>;
var<workgroup> scale_tile: array<Scale, ROWS>;
var<workgroup> x_tile: array<Piece, PIECES * TOKENS>;
var<workgroup> sum_tile: array<Sums, TOKENS>;
// Where the inputs of the tile's tokens are.
var<workgroup> inputs: array<u32, TOKENS>;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32
) {
  // The whole workgroup leaves.
  let tile = tile_at(group.y, group.z, grid.y);
  if (tile.tokens == 0u) { return; }
  let first_row = ROWS * group.x;
  let row = lane % LANES_ROW;
  let token = lane / LANES_ROW;
  for (var n = lane; n < TOKENS; n += LANES) { inputs[n] = input_row(tile_output(tile, n)); }
  // One vec4 of rows a token.
  var a: array<vec4<f32>, 4>;
  var total: array<vec4<f32>, 4>;

  for (var g = 0u; g < p.groups; g++) {
    workgroupBarrier();
    for (var i = lane; i < ROWS + TOKENS; i += LANES) {
      if (i < ROWS) {
        let r = tile.row + min(first_row + i, p.rows - 1u);
        var q = group_codes(r, p.groups, g);
        for (var j = 0u; j < PIECES; j++) { w_tile[j * ROWS + i] = q[j]; }
        scale_tile[i] = group_scale(r, p.groups, g);
      } else {
        let n = i - ROWS;
        var x = group_input(inputs[n], p.act_stride, g, lane);
        for (var j = 0u; j < PIECES; j++) { x_tile[j * TOKENS + n] = x.x[j]; }
        sum_tile[n] = x.s;
      }
    }
    workgroupBarrier();
    var d: array<array<Partial, 4>, 4>;
    for (var j = 0u; j < PIECES; j++) {
      let q0 = w_tile[j * ROWS + row];
      let q1 = w_tile[j * ROWS + row + LANES_ROW];
      let q2 = w_tile[j * ROWS + row + 2u * LANES_ROW];
      let q3 = w_tile[j * ROWS + row + 3u * LANES_ROW];
      for (var t = 0u; t < 4u; t++) {
        let x = x_tile[j * TOKENS + token + t * LANES_TOKEN];
        d[t][0] = piece_add(d[t][0], j, q0, x);
        d[t][1] = piece_add(d[t][1], j, q1, x);
        d[t][2] = piece_add(d[t][2], j, q2, x);
        d[t][3] = piece_add(d[t][3], j, q3, x);
      }
    }
    let c0 = scale_tile[row];
    let c1 = scale_tile[row + LANES_ROW];
    let c2 = scale_tile[row + 2u * LANES_ROW];
    let c3 = scale_tile[row + 3u * LANES_ROW];
    for (var t = 0u; t < 4u; t++) {
      let s = sum_tile[token + t * LANES_TOKEN];
      a[t] = vec4<f32>(
        group_close(a[t].x, d[t][0], s, c0),
        group_close(a[t].y, d[t][1], s, c1),
        group_close(a[t].z, d[t][2], s, c2),
        group_close(a[t].w, d[t][3], s, c3));
      if ((g & 3u) == 3u || g + 1u == p.groups) {
        total[t] += a[t];
        a[t] = vec4<f32>();
      }
    }
  }

  for (var t = 0u; t < 4u; t++) {
    let n = token + t * LANES_TOKEN;
    if (n < tile.tokens) {
      let output = tile_output(tile, n);
      let sum = total[t];
      var scale = 1.0;
      if (p.norm != 0u) { scale = rstd[input_row(output)]; }
      for (var i = 0u; i < 4u; i++) {
        let r = first_row + row + i * LANES_ROW;
        if (r < p.rows) { epilogue(output, r, sum[i], scale); }
      }
    }
  }
}
