// Queries, keys and values of a norm's output, rotary embedding and the pages: a pack of four rows is two
// rotary pairs, or four dimensions that stay. Grid: (heads · head_dim / (32 PACKS), tokens), all heads
// counted; there is one token.
// use: step, order, codes, scale, pieces, partial, sums, close, input, products, rstd, halves, pairing, heads, kv

struct Params {
  heads: u32,
  kv_heads: u32,
  head_dim: u32,
  pairs: u32,
  groups: u32,
  act_stride: u32,
  bias: u32,
  slots4: u32,
  eps: f32,
  table: u32,
  block_size: u32,
  kv_group: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> constants: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(6) var<storage, read_write> kcache: array<u32>;
@group(0) @binding(7) var<storage, read_write> vcache: array<u32>;
@group(0) @binding(8) var<uniform> p: Params;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let y = row_products(group.x, lane);
  let r = vec4<f32>(token_rstd());
  for (var k = 0u; k < PACKS; k++) {
    let pack = pack_of(group.x, k, lane);
    store_pack(0u, pack, fma(y[k], r, bias_of(rows_of(pack))));
  }
}
