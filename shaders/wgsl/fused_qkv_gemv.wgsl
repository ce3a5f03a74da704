// Norm, queries, keys and values, rotary embedding and the pages, for up to TOKENS tokens: a pack of
// four rows is two rotary pairs, or four dimensions that stay. Grid: (heads · head_dim / (4 packs),
// tokens / TOKENS), all heads counted.
// use: step, order, codes, scale, pieces, partial, sums, close, halves, norm, gemv, pairing, kv

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

fn turned(a: f32, b: f32, turn: vec2<f32>) -> vec2<f32> {
  let bs = b * turn.y;
  let as_ = a * turn.y;
  return vec2(fma(a, turn.x, -bs), fma(b, turn.x, as_));
}

fn heads() -> u32 { return p.heads + 2u * p.kv_heads; }

// Whether four of a head's dimensions are turned.
fn turns(head: u32, quad: u32) -> bool {
  return head < p.heads + p.kv_heads && 2u * quad < p.pairs;
}

// The first of two neighbours, and the first of two others: what a pack has of a head.
fn dims_of(head: u32, quad: u32) -> vec2<u32> {
  if (turns(head, quad)) { return two_pairs_dims(2u * quad, p.pairs); }
  return vec2(4u * quad, 4u * quad + 2u);
}

fn rows_of(pack: u32) -> vec4<u32> {
  let quads = p.head_dim / 4u;
  let head = min(pack / quads, heads() - 1u);
  let dims = dims_of(head, pack % quads) + head * p.head_dim;
  return vec4(dims.x, dims.x + 1u, dims.y, dims.y + 1u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let packs = group_packs();
  let token = TOKENS * group.y;
  let first = packs * group.x;
  gemv(first, token, lane);

  let quads = p.head_dim / 4u;
  // Behind the step's tokens there is room, but no slot.
  let tokens = min(p.tokens, step[STEP_NUM_TOKENS]);
  for (var o = lane; o < packs * TOKENS; o += 64u) {
    let n = token + o % TOKENS;
    let pack = first + o / TOKENS;
    let head = pack / quads;
    let quad = pack % quads;
    if (n >= tokens || head >= heads()) { continue; }
    let rows = rows_of(pack);
    var v = gemv_rows(o, rows);
    if (turns(head, quad)) {
      let at = p.table + 2u * (step_position(n) * p.pairs + 2u * quad);
      v = two_pairs_turned(v, vec2(constant(at), constant(at + 1u)),
        vec2(constant(at + 2u), constant(at + 3u)));
    }
    if (head < p.heads) {
      let row = n * heads() * p.head_dim;
      for (var i = 0u; i < 4u; i++) { qkv[row + rows[i]] = v[i]; }
      continue;
    }
    let slot = step_slot(p.kv_group, n);
    if (slot == NO_SLOT) { continue; }
    let dims = dims_of(head, quad);
    let kv_head = (head - p.heads) % p.kv_heads;
    let place = (slot / p.block_size * p.kv_heads + kv_head) * p.block_size + slot % p.block_size;
    let at = place * p.head_dim + dims;
    if (head < p.heads + p.kv_heads) {
      store_key2(at.x, v.xy);
      store_key2(at.y, v.zw);
    } else {
      store_value2(at.x, v.xy);
      store_value2(at.y, v.zw);
    }
  }
}
