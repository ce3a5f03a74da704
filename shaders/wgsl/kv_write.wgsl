// Keys and values of a step into their pages, a lane four elements.
// Grid: (kv_heads · head_dim4 / 32, tokens).
// use: step

struct Params {
  kv_heads: u32,
  head_dim4: u32,
  stride4: u32,
  k_at4: u32,
  v_at4: u32,
  block_size: u32,
  group: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> kcache: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> vcache: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let slot = step_slot(p.group, id.y);
  if (id.x >= p.kv_heads * p.head_dim4 || slot == NO_SLOT) { return; }
  let head = id.x / p.head_dim4;
  let d = id.x % p.head_dim4;
  let page = slot / p.block_size;
  let to = ((page * p.kv_heads + head) * p.block_size + slot % p.block_size) * p.head_dim4 + d;
  let row = id.y * p.stride4;
  kcache[to] = qkv[row + p.k_at4 + id.x];
  vcache[to] = qkv[row + p.v_at4 + id.x];
}
