// Pages of int8: row after row of D4 words, each of four codes, then the scales of each row, a half
// for 32 dims. Written down in kernels/kv.rs.
// A kernel that uses this module has D4, `p.kv_heads` and `p.block_size`.
const ROW_GROUPS = (D4 + 7u) / 8u;

// First word of a row's codes, and its first scale in halves.
alias KvRow = vec2<u32>;
const NEXT_ROW: KvRow = vec2<u32>(D4, ROW_GROUPS);

// Of a row of a page.
fn kv_row(place: vec2<u32>) -> KvRow {
  // A page has an even number of rows, so its scales are whole words.
  let rows = p.kv_heads * p.block_size;
  let page = place.x * (rows * D4 + rows / 2u * ROW_GROUPS);
  return vec2(page + place.y * D4, 2u * (page + rows * D4) + place.y * ROW_GROUPS);
}
