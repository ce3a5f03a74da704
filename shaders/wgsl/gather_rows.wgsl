// out[row] = x[token of row]. Grid: (dim4 / 64, rows).
// use: step

struct Params {
  dim4: u32,
  first_row: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim4) { return; }
  out[id.y * p.dim4 + id.x] = x[step_row_token(p.first_row + id.y) * p.dim4 + id.x];
}
