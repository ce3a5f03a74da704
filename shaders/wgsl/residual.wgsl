// x += y over the rows of a step. Grid: (dim4 / 64, tokens).

struct Params {
  dim4: u32,
}

@group(0) @binding(0) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim4) { return; }
  let i = id.y * p.dim4 + id.x;
  x[i] += y[i];
}
