// Attention of a tile of queries of one sequence and one head, a lane a query: for devices where
// barriers are dear. Chain: see kernels/attention.rs. Grid: (tiles, heads).
// use: act, step, attention, paging, rows, kv, softcap, part

struct Params {
  stride4: u32,
  q_at4: u32,
  heads: u32,
  kv_heads: u32,
  block_size: u32,
  act_stride: u32,
  scale: f32,
  window: u32,
  softcap: f32,
  group: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kcache: array<KvWord>;
@group(0) @binding(2) var<storage, read> vcache: array<KvWord>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> act_out: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> p: Params;

var<private> o: array<vec4<f32>, D4>;

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
  let query = min(lane, queries - 1u);
  let token = seq.first_token + tile.y + query;
  let visible = position + query + 1u;
  let table = step_table(seq, p.group);
  // First keys that the tile and this lane see.
  let tile_low = first_seen(position);
  let low = first_seen(position + query);
  let q_row = token * p.stride4 + p.q_at4 + head * D4;

  var m = NO_MAX;
  var l = 0.0;
  for (var first = tile_low; first < keys; first += PART_KEYS - first % PART_KEYS) {
    part_state(q_row, table, kv_head, first, keys, low, visible);
    let sees_part = first < visible && low < first - first % PART_KEYS + PART_KEYS;
    let merge = merge_states(m, part_m);
    let factors = vec2(merge.e_old, merge.e_new);
    l = select(l, merge_sum(factors, l, part_l), sees_part);
    m = select(m, merge.m, sees_part);
    for (var i = 0u; i < row_len(); i++) {
      let d = in_row(i);
      o[d] = select(o[d], merge_values(factors, o[d], part_o[d]), sees_part);
    }
  }
  if (lane >= queries) { return; }
  for (var i = 0u; i < row_len(); i++) {
    act_out[act_index(token, head * D4 + i, p.act_stride)] = o[in_row(i)] / l;
  }
}
