// Norm, gate and up, and GLU for up to TOKENS tokens: a pack of four rows is two gates and their two ups.
// Grid: (rows / (2 packs), tokens / TOKENS).
// use: order, codes, scale, pieces, partial, sums, close, halves, norm, gemv, act_two, activation

struct Params {
  rows: u32,
  groups: u32,
  tokens: u32,
  lane_packs: u32,
  gains4: u32,
  bias: u32,
  act_stride: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> constants: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(5) var<uniform> p: Params;

// Two gates and their ups.
fn rows_of(pack: u32) -> vec4<u32> {
  let gates = min(vec2(2u * pack, 2u * pack + 1u), vec2(p.rows - 1u));
  return vec4(gates, gates + p.rows);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let packs = group_packs();
  let token = TOKENS * group.y;
  let first = packs * group.x;
  gemv(first, token, lane);
  for (var o = lane; o < packs * TOKENS; o += 64u) {
    let n = token + o % TOKENS;
    let pack = first + o / TOKENS;
    // Rows are even.
    if (n >= p.tokens || 2u * pack >= p.rows) { continue; }
    let v = gemv_rows(o, rows_of(pack));
    act_store_two(n, 2u * pack, p.act_stride, activation(vec4(v.xy, v.xy)).xy * v.zw);
  }
}
