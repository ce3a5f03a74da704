// out = activation(gate) · up. Grid: (dim4 / 64, tokens, rows a token).
// use: act, activation

struct Params {
  dim4: u32,
  act_stride: u32,
}

@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> act_out: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  if (id.x >= p.dim4) { return; }
  let row = id.y * groups.z + id.z;
  let at = 2u * row * p.dim4 + id.x;
  let gate = gate_up[at];
  let up = gate_up[at + p.dim4];
  act_out[act_index(row, id.x, p.act_stride)] = activation(gate) * up;
}
