// out = activation(gate) · up, a lane a group of 32. Grid: (groups / 32, tokens, rows a token).
// use: halves, act, activation

struct Params {
  dim4: u32,
  act_stride: u32,
}

@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(2) var<uniform> p: Params;

// Vector i of the row whose gates begin at `gates`; zero behind its end.
fn gated(gates: u32, i: u32) -> vec4<f32> {
  let at = gates + min(i, p.dim4 - 1u);
  return select(vec4<f32>(), activation(gate_up[at]) * gate_up[at + p.dim4], i < p.dim4);
}

@compute @workgroup_size(32)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let i = 8u * id.x;
  if (i >= p.dim4) { return; }
  let row = id.y * groups.z + id.z;
  let gates = 2u * row * p.dim4;
  let o = array<vec4<f32>, 8>(
    gated(gates, i), gated(gates, i + 1u), gated(gates, i + 2u), gated(gates, i + 3u),
    gated(gates, i + 4u), gated(gates, i + 5u), gated(gates, i + 6u), gated(gates, i + 7u));
  act_store(row, i, p.act_stride, o, min(8u, p.dim4 - i));
}
