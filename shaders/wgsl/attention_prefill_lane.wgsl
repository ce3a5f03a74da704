// Attention of a tile of queries of one sequence and one kv head, a lane a query of one head: for
// devices where barriers are dear. The heads that share keys lie side by side, so that a short tile
// fills as few workgroups as it can. Chain: see kernels/attention.rs.
// Grid: (tiles, kv heads × slices of a full tile's rows).
// use: halves, act, step, attention, paging, rows, kv, softcap, two_rows, span, part

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
@group(0) @binding(4) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(5) var<uniform> p: Params;

var<private> o: array<vec4<f32>, D4>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let tile = step_tile(group.x);
  let seq = step_seq(tile.x);
  let heads = p.heads / p.kv_heads;
  let kv_head = group.y / heads;
  // Rows of the tile: [query][head].
  let rows = min(seq.queries - tile.y, ROWS) * heads;
  let first_row = ROWS * (group.y % heads);
  if (first_row >= rows) { return; }
  let row = min(first_row + lane, rows - 1u);
  let head = kv_head * heads + row % heads;
  // Position of the tile's first query; of the first and of the last one here.
  let position = seq.context - seq.queries + tile.y;
  let first_position = position + first_row / heads;
  let keys = position + (min(first_row + ROWS, rows) - 1u) / heads + 1u;
  let query = row / heads;
  let token = seq.first_token + tile.y + query;
  let visible = position + query + 1u;
  let table = step_table(seq, p.group);
  // First keys that some lane and this one see.
  let group_low = first_seen(first_position);
  let low = first_seen(position + query);
  let q_row = token * p.stride4 + p.q_at4 + head * D4;

  var m = NO_MAX;
  var l = 0.0;
  for (var first = group_low; first < keys; first += PART_KEYS - first % PART_KEYS) {
    part_state(lane, q_row, table, kv_head, first, keys, low, visible);
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
  if (first_row + lane >= rows) { return; }
  for (var first = 0u; first < row_len(); first += 8u) {
    var v: array<vec4<f32>, 8>;
    for (var i = 0u; i < 8u; i++) {
      v[i] = select(vec4<f32>(), o[in_row(first + i)] / l, first + i < D4);
    }
    act_store(token, head * D4 + first, p.act_stride, v, min(8u, D4 - first));
  }
}
