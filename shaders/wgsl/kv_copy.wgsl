// Pages of keys and values to other pages, a lane sixteen bytes of each.
// Grid: (page16 / 64, copies).
// use: step

struct Params {
  page16: u32,
  group: u32,
}

@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> kcache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> vcache: array<vec4<u32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.page16) { return; }
  let copy = step_copy(p.group, id.y);
  let src = copy.x * p.page16 + id.x;
  let dst = copy.y * p.page16 + id.x;
  kcache[dst] = kcache[src];
  vcache[dst] = vcache[src];
}
