// Attention of one decode query over one part of its keys, a lane or two a head of a kv head's group:
// for devices where barriers are dear. Chain: see kernels/attention.rs.
// Grid: (decode queries, kv heads × slices of a group, parts).
// What has one part goes to its place at once, as if it were merged.
// use: halves, act, step, attention, paging, rows, kv, softcap, two_rows, span, part

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
  let part = low / PART_KEYS + group.z;
  let kv_head = group.y / SLICES;
  // Lanes past the slice repeat its last head: all are there for the others.
  let row = row_of_lane(lane);
  let in_group = (group.y % SLICES) * ROWS + min(row, ROWS - 1u);
  let head = kv_head * GROUP + min(in_group, GROUP - 1u);
  let q_row = (seq.first_token + item.y) * p.stride4 + p.q_at4 + head * D4;

  // Nothing past the context: the record of such a part is never read.
  let table = step_table(seq, p.group);
  part_state(lane, q_row, table, kv_head, max(part * PART_KEYS, low), keys, low, keys);
  let writes = row < ROWS && in_group < GROUP;
  if (part_count(keys) == 1u && group.z == 0u) {
    let merge = merge_states(NO_MAX, part_m);
    let factors = vec2(merge.e_old, merge.e_new);
    let l = merge_sum(factors, 0.0, part_l);
    for (var first = 0u; first < row_len(); first += 8u) {
      var v: array<vec4<f32>, 8>;
      for (var i = 0u; i < 8u; i++) {
        let o = merge_values(factors, vec4<f32>(), row_vec(lane, min(first + i, D4 - 1u)));
        v[i] = select(vec4<f32>(), o / l, first + i < D4);
      }
      if (writes && lane == row) {
        act_store(seq.first_token + item.y, head * D4 + first, p.act_stride, v, min(8u, D4 - first));
      }
    }
    return;
  }
  let out = ((group.x * p.kv_heads * GROUP + head) * p.max_parts + group.z) * (D4 + 1u);
  if (!writes) { return; }
  for (var i = 0u; i < lane_len(); i++) {
    parts[out + lane_dim(lane, i)] = part_o[min(i, LANE_D4 - 1u)];
  }
  if (lane == row) { parts[out + D4] = vec4(part_m, part_l, 0.0, 0.0); }
}
