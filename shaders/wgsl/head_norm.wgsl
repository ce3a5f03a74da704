// Root-mean-square norm of each query and key head in place, a lane a head.
// Chain: see kernels/head_norm.rs. Grid: (heads / LANES, tokens).

struct Params {
  heads: u32,
  kv_heads: u32,
  head_dim4: u32,
  stride4: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> gains: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.heads + p.kv_heads) { return; }
  let at = id.y * p.stride4 + id.x * p.head_dim4;
  var sum = 0.0;
  var slot = vec4<f32>();
  for (var i = 0u; i < p.head_dim4; i++) {
    let v = x[at + i];
    slot = fma(v, v, slot);
    if ((i & 7u) == 7u || i + 1u == p.head_dim4) {
      sum += (slot.x + slot.y) + (slot.z + slot.w);
      slot = vec4<f32>();
    }
  }
  let rstd = 1.0 / sqrt(sum / f32(4u * p.head_dim4) + p.eps);
  let g = select(0u, p.head_dim4, id.x >= p.heads);
  for (var i = 0u; i < p.head_dim4; i++) {
    x[at + i] = x[at + i] * rstd * gains[g + i];
  }
}
