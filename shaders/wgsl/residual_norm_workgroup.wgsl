// x += norm(y), a workgroup a token: each lane sums whole slots of 32, one lane adds the slots in
// order. Chain: see kernels/residual_norm.rs.

struct Params {
  dim4: u32,
  tokens: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> slots: array<f32, 1024>;
var<workgroup> rstd: f32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x * TOKENS * p.dim4;
  let n = (p.dim4 + 7u) / 8u;
  for (var s = lane; s < n; s += 64u) {
    var slot = vec4<f32>();
    for (var i = 8u * s; i < min(8u * s + 8u, p.dim4); i++) {
      let v = y[row + i];
      slot = fma(v, v, slot);
    }
    slots[s] = (slot.x + slot.y) + (slot.z + slot.w);
  }
  workgroupBarrier();
  if (lane == 0u) {
    var sum = 0.0;
    for (var s = 0u; s < n; s++) { sum += slots[s]; }
    rstd = 1.0 / sqrt(sum / f32(4u * p.dim4) + p.eps);
  }
  workgroupBarrier();
  for (var i = lane; i < p.dim4; i += 64u) {
    x[row + i] = fma(y[row + i] * g[i], vec4<f32>(rstd), x[row + i]);
  }
}
