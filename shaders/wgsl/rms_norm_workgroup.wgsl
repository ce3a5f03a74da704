// Root-mean-square norm, a workgroup a token: each lane sums whole slots of 32, one lane adds the
// slots in order. Chain: see kernels/rms_norm.rs.
// use: halves, act, squares, slot

struct Params {
  dim4: u32,
  act_stride: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

var<workgroup> slots: array<f32, 1024>;
var<workgroup> reciprocal: f32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let token = group.x * TOKENS;
  let row = token * p.dim4;
  let n = (p.dim4 + 7u) / 8u;
  for (var s = lane; s < n; s += 64u) {
    let v = slot_of(row, 8u * s);
    slots[s] = squares(v);
    if (SCALED == 0u) { store(token, 8u * s, v, 1.0); }
  }
  workgroupBarrier();
  if (lane == 0u) {
    var sum = 0.0;
    for (var s = 0u; s < n; s++) { sum += slots[s]; }
    reciprocal = 1.0 / sqrt(sum / f32(4u * p.dim4) + p.eps);
    rstd[token] = reciprocal;
  }
  workgroupBarrier();
  if (SCALED == 1u) {
    for (var s = lane; s < n; s += 64u) { store(token, 8u * s, slot_of(row, 8u * s), reciprocal); }
  }
}
