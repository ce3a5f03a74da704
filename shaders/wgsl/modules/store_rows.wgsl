// Stores what the lanes of a workgroup have of finished rows, where attention_part leaves it.
//
// A kernel that uses this module has `p.act_stride`.
const GROUPS = (D4 + 7u) / 8u;

// Rows o / l; the first one is `place` (token, head), each next one lies `step_to` further. `l` is that of
// row `lane`. Fills `q_rows` and `maxima`.
fn store_rows(
  lane: u32, rows: u32, o: array<vec4<f32>, VALUE_ROWS>, l: f32, place: vec2<u32>, step_to: vec2<u32>
) {
  if (lane < rows) { maxima[lane] = l; }
  workgroupBarrier();
  for (var r = 0u; r < VALUE_ROWS; r++) {
    let row = value_row(lane, r);
    if (row < rows) { q_rows[row * D4 + lane % D4] = o[r] / maxima[row]; }
  }
  workgroupBarrier();
  // A lane a group of 32.
  for (var i = lane; i < rows * GROUPS; i += LANES) {
    let row = i / GROUPS;
    let first = 8u * (i % GROUPS);
    var v: array<vec4<f32>, 8>;
    for (var j = 0u; j < 8u; j++) {
      v[j] = select(vec4<f32>(), q_rows[row * D4 + min(first + j, D4 - 1u)], first + j < D4);
    }
    let to = place + row * step_to;
    act_store(to.x, to.y * D4 + first, p.act_stride, v, min(8u, D4 - first));
  }
}
