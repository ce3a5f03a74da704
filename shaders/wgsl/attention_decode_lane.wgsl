// Attention of one decode query over one part of its keys, a lane a head of a kv head's group:
// for devices where barriers are dear. Chain: see kernels/attention.rs.
// Grid: (decode queries, kv heads × slices of a group, parts).
// use: step, attention, kv, part

struct Params {
  stride4: u32,
  q_at4: u32,
  kv_heads: u32,
  block_size: u32,
  max_parts: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kcache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> vcache: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> p: Params;

const SLICES = (GROUP + ROWS - 1u) / ROWS;

@compute @workgroup_size(ROWS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let item = step_decode(group.x);
  let seq = step_seq(item.x);
  let keys = seq.context - seq.queries + item.y + 1u;
  let first = group.z * PART_KEYS;
  if (first >= keys) { return; }
  let kv_head = group.y / SLICES;
  let in_group = (group.y % SLICES) * ROWS + lane;
  if (in_group >= GROUP) { return; }
  let head = kv_head * GROUP + in_group;

  var q: array<vec4<f32>, D4>;
  let q_row = (seq.first_token + item.y) * p.stride4 + p.q_at4 + head * D4;
  for (var i = 0u; i < D4; i++) { q[i] = qkv[q_row + i] * p.scale; }

  let seen = min(keys - first, PART_KEYS);
  let part = Part(seq.table, kv_head, first, seen, seen);
  let state = part_weights(&q, part, seen);
  let out = ((group.x * p.kv_heads * GROUP + head) * p.max_parts + group.z) * (D4 + 1u);
  for (var at = 0u; at < D4; at += CHUNK) {
    let o = part_values(part, seen, at);
    for (var c = 0u; c < CHUNK; c++) { parts[out + at + c] = o[c]; }
  }
  parts[out + D4] = vec4(state, 0.0, 0.0);
}
