// Norm, queries, keys and values, rotary embedding and the pages, for up to TOKENS tokens: a pack of
// four rows is two rotary pairs, or four dimensions that stay. Grid: (heads · head_dim / (4 packs),
// tokens / TOKENS), all heads counted.
// use: step, order, codes, scale, pieces, partial, sums, close, halves, norm, gemv, pairing, heads, kv

struct Params {
  heads: u32,
  kv_heads: u32,
  head_dim: u32,
  pairs: u32,
  groups: u32,
  tokens: u32,
  lane_packs: u32,
  gains4: u32,
  bias: u32,
  table: u32,
  block_size: u32,
  kv_group: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> constants: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(6) var<storage, read_write> kcache: array<u32>;
@group(0) @binding(7) var<storage, read_write> vcache: array<u32>;
@group(0) @binding(8) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let packs = group_packs();
  let token = TOKENS * group.y;
  let first = packs * group.x;
  gemv(first, token, lane);

  // Behind the step's tokens there is room, but no slot.
  let tokens = min(p.tokens, step[STEP_NUM_TOKENS]);
  for (var o = lane; o < packs * TOKENS; o += 64u) {
    let n = token + o % TOKENS;
    let pack = first + o / TOKENS;
    if (n < tokens) { store_pack(n, pack, gemv_rows(o, rows_of(pack))); }
  }
}
