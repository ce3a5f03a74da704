// y = cap · tanh(y / cap) over rows. Grid: (dim / 64, rows).
// use: softcap

struct Params {
  dim: u32,
  cap: f32,
}

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim) { return; }
  let i = id.y * p.dim + id.x;
  y[i] = soft_cap(y[i], p.cap);
}
