// A token's row of the embedding table, four elements a lane. Grid: (dim4 / 64, tokens).
// use: step, order, codes, scale

struct Params {
  dim4: u32,
  groups: u32,
  first_row: u32,
  rows: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> ws: array<u32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = step_token_id(id.y) - p.first_row;
  // An id below the window wraps around and is outside it too.
  if (id.x >= p.dim4 || row >= p.rows) { return; }
  let codes = codes4(row, p.groups, id.x);
  x[id.y * p.dim4 + id.x] = widen4(codes, group_scale(row, p.groups, id.x >> 3u)) * p.scale;
}
