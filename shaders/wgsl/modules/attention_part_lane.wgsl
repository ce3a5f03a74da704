// One part of 256 keys for one query row a lane. All lanes of a workgroup read the same keys at
// the same time, so cache addresses are uniform; nothing crosses lanes.
//
// Weights are kept for the whole part, so that the values are summed a few dims at a time in
// registers. A kernel that uses this module has `vcache` and CHUNK, the vec4s of a value row that
// are summed together.

var<private> weights: array<f32, PART_KEYS>;
var<private> merges: array<vec2<f32>, PART_KEYS / BLOCK_KEYS>;

// Where a part lies: uniform.
struct Part {
  table: u32,
  kv_head: u32,
  // Position of its first key.
  first: u32,
  // Keys that some lane sees.
  keys: u32,
  // Keys that every lane sees.
  every: u32,
}

fn score(q: ptr<function, array<vec4<f32>, D4>>, row: u32) -> f32 {
  var s = 0.0;
  var piece = vec4<f32>();
  for (var i = 0u; i < D4; i++) {
    piece = fma((*q)[i], kcache[row + i], piece);
    if ((i & 3u) == 3u || i + 1u == D4) {
      s += join(piece);
      piece = vec4<f32>();
    }
  }
  return s;
}

// Weights and merge factors of the part for this lane, which sees its first `seen` keys: (m, l).
fn part_weights(q: ptr<function, array<vec4<f32>, D4>>, part: Part, seen: u32) -> vec2<f32> {
  var m = NO_MAX;
  var l = 0.0;
  for (var block = 0u; block < part.keys; block += BLOCK_KEYS) {
    let end = min(block + BLOCK_KEYS, part.keys);
    var m_block = NO_MAX;
    for (var run = block; run < end; run += RUN_KEYS) {
      var row = kv_row(part.table, part.first + run, part.kv_head);
      for (var key = run; key < min(run + RUN_KEYS, end); key++) {
        let s = score(q, row);
        weights[key] = s;
        m_block = select(m_block, max(m_block, s), key < seen);
        row += D4;
      }
    }
    var l_block = 0.0;
    for (var key = block; key < end; key++) {
      let w = exp(weights[key] - m_block);
      weights[key] = w;
      l_block = select(l_block, l_block + w, key < seen);
    }
    let merge = merge_states(m, m_block);
    let factors = vec2(merge.e_old, merge.e_new);
    merges[block / BLOCK_KEYS] = factors;
    if (block < seen) {
      l = merge_sum(factors, l, l_block);
      m = merge.m;
    }
  }
  return vec2(m, l);
}

// The part's values from vec4 `at` of a row on, by the weights of `part_weights`.
fn part_values(part: Part, seen: u32, at: u32) -> array<vec4<f32>, CHUNK> {
  var o: array<vec4<f32>, CHUNK>;
  for (var block = 0u; block < part.keys; block += BLOCK_KEYS) {
    let end = min(block + BLOCK_KEYS, part.keys);
    var o_block: array<vec4<f32>, CHUNK>;
    for (var run = block; run < end; run += RUN_KEYS) {
      let run_end = min(run + RUN_KEYS, end);
      var row = kv_row(part.table, part.first + run, part.kv_head) + at;
      var key = run;
      for (; key < min(run_end, part.every); key++) {
        let w = vec4(weights[key]);
        for (var c = 0u; c < CHUNK; c++) { o_block[c] = fma(w, vcache[row + c], o_block[c]); }
        row += D4;
      }
      // Some lanes do not see the rest, and what they do not see may not be finite.
      for (; key < run_end; key++) {
        let w = vec4(weights[key]);
        for (var c = 0u; c < CHUNK; c++) {
          o_block[c] = select(o_block[c], fma(w, vcache[row + c], o_block[c]), key < seen);
        }
        row += D4;
      }
    }
    let merge = merges[block / BLOCK_KEYS];
    for (var c = 0u; c < CHUNK; c++) {
      o[c] = select(o[c], merge_values(merge, o[c], o_block[c]), block < seen);
    }
  }
  return o;
}
