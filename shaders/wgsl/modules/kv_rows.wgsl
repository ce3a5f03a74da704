// Pages of f32 or f16: row after row of D4 elements, each of four dims. Written down in kernels/kv.rs.
// A kernel that uses this module has D4, `p.kv_heads` and `p.block_size`.

// First element of a row.
alias KvRow = u32;
const NEXT_ROW: KvRow = D4;

// Of a row of a page.
fn kv_row(place: vec2<u32>) -> KvRow {
  return (place.x * p.kv_heads * p.block_size + place.y) * D4;
}
