// x += norm(y), a lane a token. Chain: see kernels/residual_norm.rs.

struct Params {
  dim4: u32,
  tokens: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(TOKENS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.tokens) { return; }
  let row = id.x * p.dim4;
  var sum = 0.0;
  var slot = vec4<f32>();
  for (var i = 0u; i < p.dim4; i++) {
    let v = y[row + i];
    slot = fma(v, v, slot);
    if ((i & 7u) == 7u || i + 1u == p.dim4) {
      sum += (slot.x + slot.y) + (slot.z + slot.w);
      slot = vec4<f32>();
    }
  }
  let rstd = 1.0 / sqrt(sum / f32(4u * p.dim4) + p.eps);
  for (var i = 0u; i < p.dim4; i++) {
    x[row + i] = fma(y[row + i] * g[i], vec4<f32>(rstd), x[row + i]);
  }
}
