// Chains of multiply-adds that nothing waits for. Grid: workgroups.

struct Params {
  rounds: u32,
}

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = vec4<f32>(0.0, 0.25, 0.5, 0.75) + f32(lane) * 0.125;
  let a = vec4<f32>(0.9375);
  var v0 = vec4<f32>();
  var v1 = vec4<f32>();
  var v2 = vec4<f32>();
  var v3 = vec4<f32>();
  var v4 = vec4<f32>();
  var v5 = vec4<f32>();
  var v6 = vec4<f32>();
  var v7 = vec4<f32>();
  for (var i = 0u; i < p.rounds; i += 1u) {
    v0 = fma(v0, a, first);
    v1 = fma(v1, a, first + 1.0);
    v2 = fma(v2, a, first + 2.0);
    v3 = fma(v3, a, first + 3.0);
    v4 = fma(v4, a, first + 4.0);
    v5 = fma(v5, a, first + 5.0);
    v6 = fma(v6, a, first + 6.0);
    v7 = fma(v7, a, first + 7.0);
  }
  let s = ((((((v0 + v1) + v2) + v3) + v4) + v5) + v6) + v7;
  y[id.x] = (s.x + s.y) + (s.z + s.w);
}
