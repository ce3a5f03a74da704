// One part of 256 keys for up to ROWS query rows a workgroup. A lane scores one key of the block
// for several rows, then sums four dims of the values for several rows; one lane a row keeps the
// row's maximum and sum.
//
// A kernel that uses this module has `p.softcap`, and fills `q_rows` first.
const LANES = 128u;
const WHOLE_PIECES = D4 % 4u == 0u;
// Rows scored side by side, and how many each lane scores.
const SCORE_SIDE = LANES / BLOCK_KEYS;
const SCORE_ROWS = (ROWS + SCORE_SIDE - 1u) / SCORE_SIDE;
// Rows whose values are summed side by side, and how many each lane sums.
const VALUE_SIDE = min(ROWS, LANES / D4);
const VALUE_ROWS = (ROWS + VALUE_SIDE - 1u) / VALUE_SIDE;

// Scaled queries [row][dim / 4].
var<workgroup> q_rows: array<vec4<f32>, ROWS * D4>;
var<workgroup> weights: array<f32, ROWS * BLOCK_KEYS>;
var<workgroup> maxima: array<f32, ROWS>;
var<workgroup> merges: array<vec2<f32>, ROWS>;

// Where a part lies and what sees it: uniform.
struct Part {
  table: u32,
  kv_head: u32,
  // Position of its first key.
  first: u32,
  // Keys that some row sees, but for whole blocks of `skip` keys, which come before.
  keys: u32,
  skip: u32,
  rows: u32,
  // Keys of the whole context that row 0 sees, and how many more each next row sees.
  visible: u32,
  more: u32,
}

// The part's sums: of this lane's value rows, and of row `lane` (m, l).
struct Sums {
  o: array<vec4<f32>, VALUE_ROWS>,
  m: f32,
  l: f32,
}

// Which keys of a block of n a row sees, counted from the block's first: x up to y, none where that
// is not more.
fn seen(part: Part, row: u32, block: u32, n: u32) -> vec2<u32> {
  let start = part.first + block;
  let visible = part.visible + row * part.more;
  return vec2(max(first_seen(visible - 1u), start), min(max(visible, start), start + n)) - start;
}

fn sees(range: vec2<u32>, key: u32) -> bool { return range.x <= key && key < range.y; }

fn score(s: f32) -> f32 {
  if (p.softcap > 0.0) { return soft_cap(s, p.softcap); }
  return s;
}

// The row of this lane's i-th value sum; ROWS or more for none.
fn value_row(lane: u32, i: u32) -> u32 {
  return select(ROWS, lane / D4 + i * VALUE_SIDE, lane / D4 < VALUE_SIDE);
}

fn attention_part(part: Part, lane: u32) -> Sums {
  var sums = Sums(array<vec4<f32>, VALUE_ROWS>(), NO_MAX, 0.0);
  let key = lane % BLOCK_KEYS;
  let side = lane / BLOCK_KEYS;
  let d4 = lane % D4;
  for (var block = part.skip; block < part.keys; block += BLOCK_KEYS) {
    let n = min(part.keys - block, BLOCK_KEYS);
    if (key < n) {
      let k_row = kv_row(kv_place(part.table, part.first + block + key, part.kv_head));
      var s: array<f32, SCORE_ROWS>;
      for (var at = 0u; at < row_len(); at += 4u) {
        var piece: array<vec4<f32>, SCORE_ROWS>;
        for (var i = at; i < at + 4u; i++) {
          if (WHOLE_PIECES || i < D4) {
            let k = key4(k_row, i);
            for (var r = 0u; r < SCORE_ROWS; r++) {
              let row = min(side + r * SCORE_SIDE, ROWS - 1u);
              piece[r] = fma(q_rows[row * D4 + i], k, piece[r]);
            }
          }
        }
        let scale = key_scale(k_row, at);
        for (var r = 0u; r < SCORE_ROWS; r++) { s[r] = fma(scale, join(piece[r]), s[r]); }
      }
      for (var r = 0u; r < SCORE_ROWS; r++) {
        let row = side + r * SCORE_SIDE;
        if (row < ROWS) { weights[row * BLOCK_KEYS + key] = score(s[r]); }
      }
    }
    workgroupBarrier();
    if (lane < part.rows) {
      var m_block = NO_MAX;
      let range = seen(part, lane, block, n);
      for (var i = range.x; i < range.y; i++) {
        m_block = max(m_block, weights[lane * BLOCK_KEYS + i]);
      }
      maxima[lane] = m_block;
      let merge = merge_states(sums.m, m_block);
      merges[lane] = vec2(merge.e_old, merge.e_new);
      if (range.x < range.y) { sums.m = merge.m; }
    }
    workgroupBarrier();
    for (var row = side; row < part.rows; row += SCORE_SIDE) {
      if (sees(seen(part, row, block, n), key)) {
        let at = row * BLOCK_KEYS + key;
        weights[at] = exp(weights[at] - maxima[row]);
      }
    }
    workgroupBarrier();
    if (lane < part.rows) {
      var l_block = 0.0;
      let range = seen(part, lane, block, n);
      for (var i = range.x; i < range.y; i++) {
        l_block += weights[lane * BLOCK_KEYS + i];
      }
      if (range.x < range.y) { sums.l = merge_sum(merges[lane], sums.l, l_block); }
    }
    var o_block: array<vec4<f32>, VALUE_ROWS>;
    for (var run = 0u; run < n; run += RUN_KEYS) {
      var v_row = kv_row(kv_place(part.table, part.first + block + run, part.kv_head));
      for (var i = run; i < min(run + RUN_KEYS, n); i++) {
        let v = value4(v_row, d4);
        let scale = value_scale(v_row, d4);
        v_row += NEXT_ROW;
        for (var r = 0u; r < VALUE_ROWS; r++) {
          let row = value_row(lane, r);
          let w = weights[min(row, ROWS - 1u) * BLOCK_KEYS + i] * scale;
          // What a row does not see may not be finite.
          if (sees(seen(part, row, block, n), i)) { o_block[r] = fma(vec4(w), v, o_block[r]); }
        }
      }
    }
    for (var r = 0u; r < VALUE_ROWS; r++) {
      let row = value_row(lane, r);
      let range = seen(part, row, block, n);
      if (row < part.rows && range.x < range.y) {
        sums.o[r] = merge_values(merges[row], sums.o[r], o_block[r]);
      }
    }
    workgroupBarrier();
  }
  return sums;
}
