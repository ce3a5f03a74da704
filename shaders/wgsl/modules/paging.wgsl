// Keys of a sequence by position. A kernel that uses this module has D4, `step`, `p.kv_heads`,
// `p.block_size` and `p.stride4`.

// Page of a key, and its row of the page: [kv_head][token in page].
fn kv_place(table: u32, position: u32, kv_head: u32) -> vec2<u32> {
  let page = step[table + position / p.block_size];
  return vec2(page, kv_head * p.block_size + position % p.block_size);
}

// vec4s of a row: D4, but out of the compiler's sight (no stride is that long), for loops that no
// driver shall unroll.
fn row_len() -> u32 { return D4 + (p.stride4 >> 30u); }
