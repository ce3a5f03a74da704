// out = x, or x · rstd of its token. Grid: (dim4 / 64, tokens).

struct Params {
  dim4: u32,
  act_stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> rstd: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim4) { return; }
  var v = x[id.y * p.act_stride + id.x];
  if (NORMED == 1u) { v *= rstd[id.y]; }
  out[id.y * p.dim4 + id.x] = v;
}
