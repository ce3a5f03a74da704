// Attention of a tile of queries of one sequence and one head, a workgroup a tile.
// Chain: see kernels/attention.rs. Grid: (tiles, heads).
// use: halves, act, step, attention, paging, rows, kv, softcap, part, store_rows

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

var<workgroup> totals: array<vec2<f32>, ROWS>;

fn sees_part(part: Part, row: u32) -> bool {
  let range = seen(part, row, 0u, part.keys);
  return range.x < range.y;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let tile = step_tile(group.x);
  let seq = step_seq(tile.x);
  let head = group.y;
  let kv_head = head / (p.heads / p.kv_heads);
  let queries = min(seq.queries - tile.y, ROWS);
  // Position and token of the tile's first query.
  let position = seq.context - seq.queries + tile.y;
  let token = seq.first_token + tile.y;
  let keys = position + queries;
  let table = step_table(seq, p.group);
  // First key that the tile sees.
  let low = first_seen(position);

  for (var i = lane; i < queries * D4; i += LANES) {
    let q_row = (token + i / D4) * p.stride4 + p.q_at4 + head * D4;
    q_rows[i] = qkv[q_row + i % D4] * p.scale;
  }
  workgroupBarrier();

  var m = NO_MAX;
  var l = 0.0;
  var o: array<vec4<f32>, VALUE_ROWS>;
  for (var first = low - low % PART_KEYS; first < keys; first += PART_KEYS) {
    let skip = max(low, first) - first;
    let part = Part(table, kv_head, first, min(keys - first, PART_KEYS), skip - skip % BLOCK_KEYS,
      queries, position + 1u, 1u);
    let sums = attention_part(part, lane);
    if (lane < queries) {
      let merge = merge_states(m, sums.m);
      let factors = vec2(merge.e_old, merge.e_new);
      totals[lane] = factors;
      if (sees_part(part, lane)) {
        l = merge_sum(factors, l, sums.l);
        m = merge.m;
      }
    }
    workgroupBarrier();
    for (var r = 0u; r < VALUE_ROWS; r++) {
      let row = value_row(lane, r);
      if (row < queries && sees_part(part, row)) {
        o[r] = merge_values(totals[row], o[r], sums.o[r]);
      }
    }
    workgroupBarrier();
  }
  store_rows(lane, queries, o, l, vec2(token, head), vec2(1u, 0u));
}
