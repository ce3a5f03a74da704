// Heads of queries, then of keys, then of values, in packs of four dimensions: which rows of the matrix a
// pack is, and what becomes of them. A kernel that uses this module has `qkv`, `p.heads`, `p.kv_heads`,
// `p.head_dim`, `p.pairs`, `p.table`, `p.block_size`, `p.kv_group`, and `constant` for the rotary table.
fn turned(a: f32, b: f32, turn: vec2<f32>) -> vec2<f32> {
  let bs = b * turn.y;
  let as_ = a * turn.y;
  return vec2(fma(a, turn.x, -bs), fma(b, turn.x, as_));
}

fn heads() -> u32 { return p.heads + 2u * p.kv_heads; }

// Whether four of a head's dimensions are turned.
fn turns(head: u32, quad: u32) -> bool {
  return head < p.heads + p.kv_heads && 2u * quad < p.pairs;
}

// The first of two neighbours, and the first of two others: what a pack has of a head.
fn dims_of(head: u32, quad: u32) -> vec2<u32> {
  if (turns(head, quad)) { return two_pairs_dims(2u * quad, p.pairs); }
  return vec2(4u * quad, 4u * quad + 2u);
}

fn rows_of(pack: u32) -> vec4<u32> {
  let quads = p.head_dim / 4u;
  let head = min(pack / quads, heads() - 1u);
  let dims = dims_of(head, pack % quads) + head * p.head_dim;
  return vec4(dims.x, dims.x + 1u, dims.y, dims.y + 1u);
}

// Rows of a pack of token n, turned, to where they go: queries into qkv, the others into their pages.
fn store_pack(n: u32, pack: u32, rows: vec4<f32>) {
  let quads = p.head_dim / 4u;
  let head = pack / quads;
  let quad = pack % quads;
  if (head >= heads()) { return; }
  var v = rows;
  if (turns(head, quad)) {
    let at = p.table + 2u * (step_position(n) * p.pairs + 2u * quad);
    v = two_pairs_turned(v, vec2(constant(at), constant(at + 1u)),
      vec2(constant(at + 2u), constant(at + 3u)));
  }
  if (head < p.heads) {
    let at = n * heads() * p.head_dim;
    let to = rows_of(pack);
    for (var i = 0u; i < 4u; i++) { qkv[at + to[i]] = v[i]; }
    return;
  }
  let slot = step_slot(p.kv_group, n);
  if (slot == NO_SLOT) { return; }
  let dims = dims_of(head, quad);
  let kv_head = (head - p.heads) % p.kv_heads;
  let place = (slot / p.block_size * p.kv_heads + kv_head) * p.block_size + slot % p.block_size;
  let at = place * p.head_dim + dims;
  if (head < p.heads + p.kv_heads) {
    store_key2(at.x, v.xy);
    store_key2(at.y, v.zw);
  } else {
    store_value2(at.x, v.xy);
    store_value2(at.y, v.zw);
  }
}
