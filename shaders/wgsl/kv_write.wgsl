// Keys and values of a step into their pages. Grid: (kv_heads · D4 / STORE4 / 32, tokens).
// use: step, rows, kv, halves

struct Params {
  kv_heads: u32,
  stride4: u32,
  k_at4: u32,
  v_at4: u32,
  block_size: u32,
  group: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> kcache: array<KvWord>;
@group(0) @binding(3) var<storage, read_write> vcache: array<KvWord>;
@group(0) @binding(4) var<uniform> p: Params;

const D4 = HEAD_DIM / 4u;
const STORES = (D4 + STORE4 - 1u) / STORE4;

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let slot = step_slot(p.group, id.y);
  let head = id.x / STORES;
  if (head >= p.kv_heads || slot == NO_SLOT) { return; }
  let at = id.x % STORES * STORE4;
  let place = vec2(slot / p.block_size, head * p.block_size + slot % p.block_size);
  let source = id.y * p.stride4 + head * D4 + at;
  kv_store(kv_row(place), at, source + p.k_at4, source + p.v_at4);
}
