// y += bias over part of each row. Grid: (dim / 64, tokens).

struct Params {
  dim: u32,
  stride: u32,
  offset: u32,
}

@group(0) @binding(0) var<storage, read> bias: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim) { return; }
  y[id.y * p.stride + p.offset + id.x] += bias[id.x];
}
