// Attention of one decode query over one part of its keys, a workgroup the heads of a kv head's
// group. Chain: see kernels/attention.rs.
// Grid: (decode queries, kv heads × slices of a group, parts).
// What has one part goes to its place at once, as if it were merged.
// use: halves, act, step, attention, paging, rows, kv, softcap, part, store_rows

struct Params {
  stride4: u32,
  q_at4: u32,
  kv_heads: u32,
  block_size: u32,
  max_parts: u32,
  scale: f32,
  window: u32,
  softcap: f32,
  group: u32,
  act_stride: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kcache: array<KvWord>;
@group(0) @binding(2) var<storage, read> vcache: array<KvWord>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(6) var<uniform> p: Params;

const SLICES = (GROUP + ROWS - 1u) / ROWS;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let item = step_decode(group.x);
  let seq = step_seq(item.x);
  let keys = seq.context - seq.queries + item.y + 1u;
  let low = first_seen(keys - 1u);
  let first = (low / PART_KEYS + group.z) * PART_KEYS;
  if (first >= keys) { return; }
  let kv_head = group.y / SLICES;
  let slice = (group.y % SLICES) * ROWS;
  let rows = min(GROUP - slice, ROWS);
  let head = kv_head * GROUP + slice;

  let q_row = (seq.first_token + item.y) * p.stride4 + p.q_at4 + head * D4;
  for (var i = lane; i < rows * D4; i += LANES) { q_rows[i] = qkv[q_row + i] * p.scale; }
  workgroupBarrier();

  let skip = max(low, first) - first;
  let part = Part(step_table(seq, p.group), kv_head, first, min(keys - first, PART_KEYS),
    skip - skip % BLOCK_KEYS, rows, keys, 0u);
  let sums = attention_part(part, lane);
  if (part_count(keys) == 1u) {
    if (lane < rows) {
      let merge = merge_states(NO_MAX, sums.m);
      merges[lane] = vec2(merge.e_old, merge.e_new);
    }
    workgroupBarrier();
    var o: array<vec4<f32>, VALUE_ROWS>;
    for (var r = 0u; r < VALUE_ROWS; r++) {
      o[r] = merge_values(merges[min(value_row(lane, r), ROWS - 1u)], o[r], sums.o[r]);
    }
    let l = merge_sum(merges[min(lane, ROWS - 1u)], 0.0, sums.l);
    store_rows(lane, rows, o, l, vec2(seq.first_token + item.y, head), vec2(0u, 1u));
    return;
  }
  let out = (group.x * p.kv_heads * GROUP + head) * p.max_parts + group.z;
  for (var r = 0u; r < VALUE_ROWS; r++) {
    let row = value_row(lane, r);
    if (row < rows) { parts[(out + row * p.max_parts) * (D4 + 1u) + lane % D4] = sums.o[r]; }
  }
  if (lane < rows) {
    parts[(out + lane * p.max_parts) * (D4 + 1u) + D4] = vec4(sums.m, sums.l, 0.0, 0.0);
  }
}
