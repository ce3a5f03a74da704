// Rows of singles as a matmul's input, a lane a group of 32. Grid: (groups / 32, tokens).
// use: halves, act

struct Params {
  dim4: u32,
  act_stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(2) var<uniform> p: Params;

// Vector i of the row at `row`; zero behind its end.
fn at_or_zero(row: u32, i: u32) -> vec4<f32> {
  return select(vec4<f32>(), x[row + min(i, p.dim4 - 1u)], i < p.dim4);
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = 8u * id.x;
  if (i >= p.dim4) { return; }
  let row = id.y * p.dim4;
  let v = array<vec4<f32>, 8>(
    at_or_zero(row, i), at_or_zero(row, i + 1u), at_or_zero(row, i + 2u), at_or_zero(row, i + 3u),
    at_or_zero(row, i + 4u), at_or_zero(row, i + 5u), at_or_zero(row, i + 6u), at_or_zero(row, i + 7u));
  act_store(id.y, i, p.act_stride, v, min(8u, p.dim4 - i));
}
