// Root-mean-square norm, a lane a token: for devices where lanes are cheap to leave idle and
// barriers are dear. Chain: see kernels/rms_norm.rs.
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

@compute @workgroup_size(TOKENS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let token = id.x;
  if (token >= arrayLength(&rstd)) { return; }
  let row = token * p.dim4;
  var sum = 0.0;
  for (var i = 0u; i < p.dim4; i += 8u) {
    let v = slot_of(row, i);
    sum += squares(v);
    if (SCALED == 0u) { store(token, i, v, 1.0); }
  }
  let r = 1.0 / sqrt(sum / f32(4u * p.dim4) + p.eps);
  rstd[token] = r;
  if (SCALED == 1u) {
    for (var i = 0u; i < p.dim4; i += 8u) { store(token, i, slot_of(row, i), r); }
  }
}
