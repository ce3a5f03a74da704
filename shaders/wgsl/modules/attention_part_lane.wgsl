// Parts of 256 keys for one query row a lane. All lanes of a workgroup read the same keys at the
// same time, so cache addresses are uniform; nothing crosses lanes.
//
// Scores are kept for a span of a part and grow by a piece of 16 dims at a time; values are summed
// CHUNK vec4s at a time. So whatever the head size, a few registers do. Arrays are short, as
// drivers unroll what zeroes them. Borders are clamped, not branched on: a software driver loads
// once for all lanes only where it knows that they are all there.
//
// A kernel that uses this module has `qkv`, `p.scale` and `p.softcap`.
const SPAN_KEYS = 2u * BLOCK_KEYS;
const WHOLE_PIECES = D4 % 4u == 0u;

var<private> weights: array<f32, SPAN_KEYS>;
var<private> merges: array<vec2<f32>, SPAN_KEYS / BLOCK_KEYS>;
// The part's state for this lane.
var<private> part_m: f32;
var<private> part_l: f32;
var<private> part_o: array<vec4<f32>, D4>;

// Index of an array of D4. Clamped, as drivers unroll a loop whose counter indexes an array.
fn in_row(i: u32) -> u32 { return min(i, D4 - 1u); }

// Where keys lie: uniform.
struct Span {
  table: u32,
  kv_head: u32,
  // Position of its first key.
  first: u32,
  // Keys that some lane sees.
  keys: u32,
}

// What a lane sees of a span, in keys from its first: `low` up to `end`. Nothing where end is 0.
struct Seen {
  low: u32,
  end: u32,
}

// One comparison: what lies before `low` is huge.
fn sees(seen: Seen, key: u32) -> bool {
  return key - seen.low < max(seen.end, seen.low) - seen.low;
}

fn sees_block(seen: Seen, block: u32) -> bool {
  return block < seen.end && seen.low < block + BLOCK_KEYS;
}

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

// Turns scores into weights and merge factors for this lane.
fn span_weights(span: Span, seen: Seen) {
  if (p.softcap > 0.0) {
    for (var key = 0u; key < span.keys; key++) {
      weights[key] = soft_cap(weights[key], p.softcap);
    }
  }
  for (var block = 0u; block < span.keys; block += BLOCK_KEYS) {
    let end = min(block + BLOCK_KEYS, span.keys);
    var m_block = NO_MAX;
    for (var key = block; key < end; key++) {
      m_block = select(m_block, max(m_block, weights[key]), sees(seen, key));
    }
    var l_block = 0.0;
    for (var key = block; key < end; key++) {
      let w = exp(weights[key] - m_block);
      weights[key] = w;
      l_block = select(l_block, l_block + w, sees(seen, key));
    }
    let merge = merge_states(part_m, m_block);
    let factors = vec2(merge.e_old, merge.e_new);
    merges[block / BLOCK_KEYS] = factors;
    part_l = select(part_l, merge_sum(factors, part_l, l_block), sees_block(seen, block));
    part_m = select(part_m, merge.m, sees_block(seen, block));
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

// The keys from position `first` on that lie in its part, of a context of `keys` keys of which this
// lane sees those from `low` up to `visible`; `q_row` as in `span_scores`.
fn part_state(
  lane: u32, q_row: u32, table: u32, kv_head: u32, first: u32, keys: u32, low: u32, visible: u32
) {
  part_m = NO_MAX;
  part_l = 0.0;
  for (var i = 0u; i < row_len(); i++) { part_o[in_row(i)] = vec4<f32>(); }
  let end = min(first - first % PART_KEYS + PART_KEYS, keys);
  for (var at = first - first % BLOCK_KEYS; at < end; at += SPAN_KEYS) {
    let span = Span(table, kv_head, at, min(end - at, SPAN_KEYS));
    let seen = Seen(max(low, at) - at, max(visible, at) - at);
    span_scores(lane, q_row, span);
    span_weights(span, seen);
    for (var d = 0u; d < row_len(); d += CHUNK) { span_values(lane, span, seen, d); }
  }
}
