// A query row a lane. All lanes of a workgroup read the same keys at the same time, so cache addresses
// are uniform, or `two_rows` has them share the loads; nothing else crosses lanes.
//
// A kernel that uses this module has `qkv` and `p.scale`.
const WHOLE_PIECES = D4 % 4u == 0u;

// The row of a lane; the vec4s of it that the lane holds, and which they are.
const LANE_D4 = D4;
fn row_of_lane(lane: u32) -> u32 { return lane; }
fn lane_len() -> u32 { return row_len(); }
fn lane_dim(lane: u32, i: u32) -> u32 { return i; }
// Vec4 `i` of the values of the lane's row.
fn row_vec(lane: u32, i: u32) -> vec4<f32> { return part_o[i]; }

// Scores of a span; `q_row` is the first vec4 of this lane's query.
fn span_scores(lane: u32, q_row: u32, span: Span) {
  for (var at = 0u; at < row_len(); at += 4u) {
    var q: array<vec4<f32>, 4>;
    for (var c = 0u; c < 4u; c++) {
      if (WHOLE_PIECES || at + c < D4) { q[c] = qkv[q_row + at + c] * p.scale; }
    }
    for (var run = 0u; run < span.keys; run += RUN_KEYS) {
      var row = kv_row(kv_place(span.table, span.first + run, span.kv_head));
      for (var key = run; key < min(run + RUN_KEYS, span.keys); key += 2u) {
        let keys = two_keys(row, at, lane);
        var first = vec4<f32>();
        var second = vec4<f32>();
        for (var c = 0u; c < 4u; c++) {
          if (WHOLE_PIECES || at + c < D4) {
            first = fma(q[c], keys[c], first);
            second = fma(q[c], keys[4u + c], second);
          }
        }
        let s = select(weights[key], 0.0, at == 0u);
        weights[key] = fma(key_scale(row, at), join(first), s);
        row += NEXT_ROW;
        let s_second = select(weights[key + 1u], 0.0, at == 0u);
        weights[key + 1u] = fma(key_scale(row, at), join(second), s_second);
        row += NEXT_ROW;
      }
    }
  }
}

// Values from vec4 `at` of a row on.
fn span_values(lane: u32, span: Span, seen: Seen, at: u32) {
  var o: array<vec4<f32>, CHUNK>;
  for (var c = 0u; c < CHUNK; c++) { o[c] = part_o[at + c]; }
  for (var block = 0u; block < span.keys; block += BLOCK_KEYS) {
    let end = min(block + BLOCK_KEYS, span.keys);
    var o_block: array<vec4<f32>, CHUNK>;
    for (var run = block; run < end; run += RUN_KEYS) {
      var row = kv_row(kv_place(span.table, span.first + run, span.kv_head));
      for (var key = run; key < min(run + RUN_KEYS, end); key += 2u) {
        let values = two_values(row, at, lane);
        let first = vec4(weights[key] * value_scale(row, at));
        row += NEXT_ROW;
        let second = vec4(weights[key + 1u] * value_scale(row, at));
        row += NEXT_ROW;
        for (var c = 0u; c < CHUNK; c++) {
          // What a lane does not see may not be finite.
          let o = select(o_block[c], fma(first, values[c], o_block[c]), sees(seen, key));
          o_block[c] = select(o, fma(second, values[4u + c], o), sees(seen, key + 1u));
        }
      }
    }
    let merge = merges[block / BLOCK_KEYS];
    for (var c = 0u; c < CHUNK; c++) {
      o[c] = select(o[c], merge_values(merge, o[c], o_block[c]), sees_block(seen, block));
    }
  }
  for (var c = 0u; c < CHUNK; c++) { part_o[at + c] = o[c]; }
}
