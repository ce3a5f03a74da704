// Rows of a paged f32 cache. A kernel that uses this module has D4, `step`, `p.kv_heads`,
// `p.block_size` and `p.stride4`.

// First vec4 of a key's row in a cache [page][kv_head][token in page][dim].
fn kv_row(table: u32, position: u32, kv_head: u32) -> u32 {
  let page = step[table + position / p.block_size];
  return ((page * p.kv_heads + kv_head) * p.block_size + position % p.block_size) * D4;
}

// vec4s of a row: D4, but out of the compiler's sight (no stride is that long), for loops that no
// driver shall unroll.
fn row_len() -> u32 { return D4 + (p.stride4 >> 30u); }
