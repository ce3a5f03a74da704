// Rotary position embedding of a step's queries in place, and of its keys on the way to their pages;
// values go there as they are. A lane a pair of a query, or what one invocation stores of a key and a
// value. Grid: (workgroups of query pairs, then of stores; tokens).
// use: step, pairing, rows, kv, halves

struct Params {
  heads: u32,
  kv_heads: u32,
  pairs: u32,
  stride4: u32,
  block_size: u32,
  group: u32,
}

@group(0) @binding(0) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> kcache: array<KvWord>;
@group(0) @binding(4) var<storage, read_write> vcache: array<KvWord>;
@group(0) @binding(5) var<uniform> p: Params;

const D4 = HEAD_DIM / 4u;
const STORES = (D4 + STORE4 - 1u) / STORE4;

fn turned(a: f32, b: f32, turn: vec2<f32>) -> vec2<f32> {
  let bs = b * turn.y;
  let as_ = a * turn.y;
  return vec2(fma(a, turn.x, -bs), fma(b, turn.x, as_));
}

// Dimension `dim` of the key that begins at `head`, turned by the angles that begin at `turns`.
fn key(head: u32, dim: u32, turns: u32) -> f32 {
  if (dim >= 2u * p.pairs) { return qkv[head + dim]; }
  let place = dim_pair(dim, p.pairs);
  let at = pair_dims(place.x, p.pairs) + head;
  return turned(qkv[at.x], qkv[at.y], table[turns + place.x])[place.y];
}

fn key4(head: u32, at: u32, turns: u32) -> vec4<f32> {
  return vec4(
    key(head, 4u * at, turns), key(head, 4u * at + 1u, turns),
    key(head, 4u * at + 2u, turns), key(head, 4u * at + 3u, turns));
}

fn value4(head: u32, at: u32) -> vec4<f32> {
  let i = head + 4u * at;
  return vec4(qkv[i], qkv[i + 1u], qkv[i + 2u], qkv[i + 3u]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = group.y;
  let row = 4u * p.stride4 * token;
  let turns = step_position(token) * p.pairs;
  let query_groups = (p.heads * p.pairs + 63u) / 64u;
  if (group.x < query_groups) {
    let i = 64u * group.x + lane;
    if (i >= p.heads * p.pairs) { return; }
    let pair = i % p.pairs;
    let at = pair_dims(pair, p.pairs) + row + i / p.pairs * HEAD_DIM;
    let q = turned(qkv[at.x], qkv[at.y], table[turns + pair]);
    qkv[at.x] = q.x;
    qkv[at.y] = q.y;
    return;
  }
  let i = 64u * (group.x - query_groups) + lane;
  let head = i / STORES;
  let slot = step_slot(p.group, token);
  if (head >= p.kv_heads || slot == NO_SLOT) { return; }
  let place = vec2(slot / p.block_size, head * p.block_size + slot % p.block_size);
  let k = row + (p.heads + head) * HEAD_DIM;
  kv_store(kv_row(place), i % STORES * STORE4, k, k + p.kv_heads * HEAD_DIM, turns);
}
