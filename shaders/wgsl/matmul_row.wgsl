// y = x Wᵀ, a lane four rows, a workgroup TOKENS tokens: for processors. No barrier, no workgroup
// memory; the weights of a row lie in one lane, inputs are shared by all. The chain:
// kernels/matmul.rs. Grid: (tokens / TOKENS, rows / (4 LANES)).
// use: act, input, order, quant, chain

struct Params {
  rows: u32,
  groups: u32,
  tokens: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
}

@group(0) @binding(0) var<storage, read> act: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = TOKENS * group.x;
  // Borders are clamped, not branched on: every lane stays active for the others.
  let second = min(token + TOKENS - 1u, p.tokens - 1u);
  let row = 4u * LANES * group.y + lane;
  let r = min(vec4<u32>(row) + LANES * vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var t0 = vec4<f32>();
  var t1 = vec4<f32>();
  for (var g = 0u; g < p.groups; g++) {
    let x0 = group_input(token, p.act_stride, g, lane);
    let x1 = group_input(second, p.act_stride, g, lane);
    let s0 = group_sum(x0);
    let s1 = group_sum(x1);
    {
      let q = group_weights(r.x, p.groups, g);
      let scale = group_scale(r.x, p.groups, g);
      a0.x = group_add(a0.x, group_dot(q, x0), s0, scale);
      if (TOKENS == 2u) { a1.x = group_add(a1.x, group_dot(q, x1), s1, scale); }
    }
    {
      let q = group_weights(r.y, p.groups, g);
      let scale = group_scale(r.y, p.groups, g);
      a0.y = group_add(a0.y, group_dot(q, x0), s0, scale);
      if (TOKENS == 2u) { a1.y = group_add(a1.y, group_dot(q, x1), s1, scale); }
    }
    {
      let q = group_weights(r.z, p.groups, g);
      let scale = group_scale(r.z, p.groups, g);
      a0.z = group_add(a0.z, group_dot(q, x0), s0, scale);
      if (TOKENS == 2u) { a1.z = group_add(a1.z, group_dot(q, x1), s1, scale); }
    }
    {
      let q = group_weights(r.w, p.groups, g);
      let scale = group_scale(r.w, p.groups, g);
      a0.w = group_add(a0.w, group_dot(q, x0), s0, scale);
      if (TOKENS == 2u) { a1.w = group_add(a1.w, group_dot(q, x1), s1, scale); }
    }
    // One loop over groups with a branch here: a loop over the groups of a span inside a loop over
    // spans is unrolled by software drivers, at five times the compile time.
    if ((g & 3u) == 3u) {
      t0 += a0;
      a0 = vec4<f32>();
      if (TOKENS == 2u) {
        t1 += a1;
        a1 = vec4<f32>();
      }
    }
  }
  // A short last span; else + 0, which changes no bit of a sum that began at + 0.
  t0 += a0;
  t1 += a1;
  if (p.norm != 0u) {
    t0 *= rstd[token];
    t1 *= rstd[second];
  }
  for (var i = 0u; i < 4u; i++) {
    if (row + i * LANES < p.rows) {
      y[token * p.y_stride + p.y_offset + row + i * LANES] = t0[i];
      if (second != token) { y[second * p.y_stride + p.y_offset + row + i * LANES] = t1[i]; }
    }
  }
}
