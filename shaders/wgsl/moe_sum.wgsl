// out = Σ weight · y over a token's experts, in their order. Grid: (dim4 / 64, tokens).

struct Params {
  dim4: u32,
  chosen: u32,
}

@group(0) @binding(0) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> route: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim4) { return; }
  var sum = vec4<f32>();
  for (var k = 0u; k < p.chosen; k++) {
    let pair = id.y * p.chosen + k;
    sum = fma(vec4<f32>(bitcast<f32>(route[pair].y)), y[pair * p.dim4 + id.x], sum);
  }
  out[id.y * p.dim4 + id.x] = sum;
}
