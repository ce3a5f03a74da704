// Attention of a tile of queries of one sequence and one head, a lane a query: for devices where
// barriers are dear. Chain: see kernels/attention.rs. Grid: (tiles, heads).
// use: act, step, attention, kv, part

struct Params {
  stride4: u32,
  q_at4: u32,
  heads: u32,
  kv_heads: u32,
  block_size: u32,
  act_stride: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kcache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> vcache: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> act_out: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> p: Params;

@compute @workgroup_size(ROWS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let tile = step_tile(group.x);
  let seq = step_seq(tile.x);
  let head = group.y;
  let kv_head = head / (p.heads / p.kv_heads);
  let queries = min(seq.queries - tile.y, ROWS);
  // Position of the tile's first query.
  let position = seq.context - seq.queries + tile.y;
  let keys = position + queries;
  let live = lane < queries;
  let token = seq.first_token + tile.y + select(0u, lane, live);
  let visible = select(0u, position + lane + 1u, live);

  var q: array<vec4<f32>, D4>;
  let q_row = token * p.stride4 + p.q_at4 + head * D4;
  for (var i = 0u; i < D4; i++) { q[i] = qkv[q_row + i] * p.scale; }

  var m = NO_MAX;
  var l = 0.0;
  var o: array<vec4<f32>, D4>;
  for (var first = 0u; first < keys; first += PART_KEYS) {
    let part = Part(seq.table, kv_head, first, min(keys - first, PART_KEYS),
      max(position + 1u, first) - first);
    let seen = max(visible, first) - first;
    let state = part_weights(&q, part, seen);
    let merge = merge_states(m, state.x);
    let factors = vec2(merge.e_old, merge.e_new);
    for (var at = 0u; at < D4; at += CHUNK) {
      let o_part = part_values(part, seen, at);
      if (seen > 0u) {
        for (var c = 0u; c < CHUNK; c++) { o[at + c] = merge_values(factors, o[at + c], o_part[c]); }
      }
    }
    if (seen > 0u) {
      l = merge_sum(factors, l, state.y);
      m = merge.m;
    }
  }
  if (!live) { return; }
  for (var i = 0u; i < D4; i++) {
    act_out[act_index(token, head * D4 + i, p.act_stride)] = o[i] / l;
  }
}
