// Parts of 256 keys for the query rows of a workgroup of lanes, span by span: how lanes share rows and
// keys is the slot `span`'s, which has `span_scores` and `span_values`.
//
// Scores are kept for a span of a part and grow by a piece of 16 dims at a time; values are summed
// CHUNK vec4s at a time. So whatever the head size, a few registers do. Arrays are short, as
// drivers unroll what zeroes them. Borders are clamped, not branched on: a software driver loads
// once for all lanes only where it knows that they are all there.
//
// A kernel that uses this module has `p.softcap`.
const SPAN_KEYS = 2u * BLOCK_KEYS;

var<private> weights: array<f32, SPAN_KEYS>;
var<private> merges: array<vec2<f32>, SPAN_KEYS / BLOCK_KEYS>;
// The part's state of this lane's row, and the values of its dims.
var<private> part_m: f32;
var<private> part_l: f32;
var<private> part_o: array<vec4<f32>, LANE_D4>;

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

// The keys from position `first` on that lie in its part, of a context of `keys` keys of which this
// lane sees those from `low` up to `visible`; `q_row` as in `span_scores`.
fn part_state(
  lane: u32, q_row: u32, table: u32, kv_head: u32, first: u32, keys: u32, low: u32, visible: u32
) {
  part_m = NO_MAX;
  part_l = 0.0;
  for (var i = 0u; i < lane_len(); i++) { part_o[min(i, LANE_D4 - 1u)] = vec4<f32>(); }
  let end = min(first - first % PART_KEYS + PART_KEYS, keys);
  for (var at = first - first % BLOCK_KEYS; at < end; at += SPAN_KEYS) {
    let span = Span(table, kv_head, at, min(end - at, SPAN_KEYS));
    let seen = Seen(max(low, at) - at, max(visible, at) - at);
    span_scores(lane, q_row, span);
    span_weights(span, seen);
    for (var d = 0u; d < row_len(); d += CHUNK) { span_values(lane, span, seen, d); }
  }
}
