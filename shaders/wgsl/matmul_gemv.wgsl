// y = x Wᵀ for up to TOKENS tokens: a lane owns one span of four rows, span sums meet in workgroup
// memory and are added in order. Short rows share a workgroup: with S spans a row, LANES / S packs
// of four rows. The chain: kernels/matmul.rs. Grid: (rows / (4 packs), tiles), and what a tile of tokens
// asks for.
// use: tile, input, order, codes, scale, pieces, partial, sums, close, epilogue

var<workgroup> span_sums: array<vec4<f32>, LANES * TOKENS>;
var<workgroup> total: array<vec4<f32>, LANES * TOKENS>;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32
) {
  // The whole workgroup leaves.
  let tile = tile_at(group.y, group.z, grid.y);
  if (tile.tokens == 0u) { return; }
  let spans = (p.groups + 3u) / 4u;
  // Spans one pass covers, packs of four rows side by side.
  let width = min(spans, LANES);
  let packs = LANES / width;
  let first_row = 4u * packs * group.x;
  let pack = lane / width;
  let r = vec4<u32>(tile.row) +
    min(vec4<u32>(first_row + 4u * pack) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
  var input: array<u32, TOKENS>;
  for (var t = 0u; t < TOKENS; t++) { input[t] = input_row(tile_output(tile, t)); }
  for (var o = lane; o < packs * TOKENS; o += LANES) { total[o] = vec4<f32>(); }

  for (var base = 0u; base < spans; base += width) {
    let span = base + lane % width;
    var a: array<vec4<f32>, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) { a[t] = vec4<f32>(); }
    if (pack < packs && span < spans) {
      for (var g = 4u * span; g < min(4u * span + 4u, p.groups); g++) {
        let q0 = group_codes(r.x, p.groups, g);
        let q1 = group_codes(r.y, p.groups, g);
        let q2 = group_codes(r.z, p.groups, g);
        let q3 = group_codes(r.w, p.groups, g);
        let c0 = group_scale(r.x, p.groups, g);
        let c1 = group_scale(r.y, p.groups, g);
        let c2 = group_scale(r.z, p.groups, g);
        let c3 = group_scale(r.w, p.groups, g);
        for (var t = 0u; t < TOKENS; t++) {
          let x = group_input(input[t], p.act_stride, g, lane);
          a[t] = vec4<f32>(
            group_term(a[t].x, q0, x, c0),
            group_term(a[t].y, q1, x, c1),
            group_term(a[t].z, q2, x, c2),
            group_term(a[t].w, q3, x, c3));
        }
      }
    }
    workgroupBarrier();
    for (var t = 0u; t < TOKENS; t++) { span_sums[LANES * t + lane] = a[t]; }
    workgroupBarrier();
    for (var o = lane; o < packs * TOKENS; o += LANES) {
      var sum = total[o];
      let start = LANES * (o % TOKENS) + width * (o / TOKENS);
      for (var s = 0u; s < min(width, spans - base); s++) { sum += span_sums[start + s]; }
      total[o] = sum;
    }
  }

  for (var o = lane; o < packs * TOKENS; o += LANES) {
    let n = o % TOKENS;
    let row = first_row + 4u * (o / TOKENS);
    if (n < tile.tokens) {
      let output = tile_output(tile, n);
      let sum = total[o];
      var scale = 1.0;
      if (p.norm != 0u) { scale = rstd[input_row(output)]; }
      for (var i = 0u; i < 4u; i++) {
        if (row + i < p.rows) { epilogue(output, row + i, sum[i], scale); }
      }
    }
  }
}
