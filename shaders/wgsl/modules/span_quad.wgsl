// A query row for two lanes of two quads, up to four rows: devices whose subgroups have eight or more
// lanes, where a workgroup has few rows. Each quad takes one of two keys for the scores, which the lanes
// of a row then tell each other, and one half of every 16 dims for the values: half the work of a lane
// that does all by itself, in the same chain.
//
// A kernel that uses this module has `qkv`, `p.scale`, and rows of whole pieces of 16 dims.

// The row of a lane; the vec4s of it that the lane holds, and which they are.
const LANE_D4 = D4 / 2u;
fn row_of_lane(lane: u32) -> u32 { return lane & 3u; }
fn lane_len() -> u32 { return row_len() / 2u; }
fn lane_dim(lane: u32, i: u32) -> u32 { return 4u * (i / 2u) + 2u * quad_of(lane) + (i & 1u); }
// Vec4 `i` of the values of the lane's row, by the lane that holds it.
fn row_vec(lane: u32, i: u32) -> vec4<f32> {
  let mine = part_o[2u * (i / 4u) + (i & 1u)];
  return select(vec4_of_other_quad(mine), mine, quad_of(lane) == ((i >> 1u) & 1u));
}

// Scores of a span; `q_row` is the first vec4 of this lane's query.
fn span_scores(lane: u32, q_row: u32, span: Span) {
  let quad = quad_of(lane);
  for (var at = 0u; at < row_len(); at += 4u) {
    var q: array<vec4<f32>, 4>;
    for (var c = 0u; c < 4u; c++) { q[c] = qkv[q_row + at + c] * p.scale; }
    for (var run = 0u; run < span.keys; run += RUN_KEYS) {
      var row = kv_row(kv_place(span.table, span.first + run, span.kv_head)) + NEXT_ROW * quad;
      for (var key = run; key < min(run + RUN_KEYS, span.keys); key += 2u) {
        let k = quad_key(row, at, lane);
        var piece = vec4<f32>();
        for (var c = 0u; c < 4u; c++) { piece = fma(q[c], k[c], piece); }
        // Of this quad's key, until both have all.
        let s = fma(key_scale(row, at), join(piece), select(weights[key], 0.0, at == 0u));
        weights[key] = s;
        if (at + 4u >= row_len()) {
          let other = of_other_quad(s);
          weights[key] = select(s, other, quad == 1u);
          weights[key + 1u] = select(other, s, quad == 1u);
        }
        row += NEXT_ROW * 2u;
      }
    }
  }
}

// Values from vec4 `at` of a row on: a piece of 16 dims, of which each quad sums one half.
fn span_values(lane: u32, span: Span, seen: Seen, at: u32) {
  var o: array<vec4<f32>, 2>;
  for (var c = 0u; c < 2u; c++) { o[c] = part_o[at / 2u + c]; }
  for (var block = 0u; block < span.keys; block += BLOCK_KEYS) {
    let end = min(block + BLOCK_KEYS, span.keys);
    var o_block: array<vec4<f32>, 2>;
    for (var run = block; run < end; run += RUN_KEYS) {
      var row = kv_row(kv_place(span.table, span.first + run, span.kv_head));
      for (var key = run; key < min(run + RUN_KEYS, end); key += 2u) {
        let v = two_halves(row, at, lane);
        let first = vec4(weights[key] * value_scale(row, at));
        row += NEXT_ROW;
        let second = vec4(weights[key + 1u] * value_scale(row, at));
        row += NEXT_ROW;
        for (var c = 0u; c < 2u; c++) {
          // What a lane does not see may not be finite.
          let o = select(o_block[c], fma(first, v[c], o_block[c]), sees(seen, key));
          o_block[c] = select(o, fma(second, v[2u + c], o), sees(seen, key + 1u));
        }
      }
    }
    let merge = merges[block / BLOCK_KEYS];
    for (var c = 0u; c < 2u; c++) {
      o[c] = select(o[c], merge_values(merge, o[c], o_block[c]), sees_block(seen, block));
    }
  }
  for (var c = 0u; c < 2u; c++) { part_o[at / 2u + c] = o[c]; }
}
