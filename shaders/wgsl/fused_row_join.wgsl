// A matrix into the residual stream, and what the norm behind it makes of that: the next matrix's input, and
// behind it the squares of each slot, four words each. Grid: (rows / 32, tokens); there is one token.
// use: order, codes, scale, pieces, partial, sums, close, input, products, groups, squares, halves, act, chunk

struct Params {
  rows: u32,
  groups: u32,
  act_stride: u32,
  bias: u32,
  gains4: u32,
  out_stride: u32,
  slots4: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> constants: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(6) var<uniform> p: Params;

// Rows are whole groups, of which a workgroup has one.
fn rows_of(pack: u32) -> vec4<u32> {
  let first = 4u * pack;
  return vec4(first, first + 1u, first + 2u, first + 3u);
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let y = row_products(group.x, lane);
  let rows = rows_of(pack_of(group.x, 0u, lane));
  let at = rows.x / 4u;
  let joined = x[at] + fma(y[0], vec4<f32>(1.0), bias_of(rows));
  let all = group_of_lanes(joined);
  x[at] = joined;
  if (lane > 0u) { return; }
  act_out[p.slots4 + group.x] = square_chunk(squares(all));
  let g = p.gains4 + 8u * group.x;
  act_store(0u, 8u * group.x, p.out_stride, array<vec4<f32>, 8>(
    all[0] * constants[g], all[1] * constants[g + 1u],
    all[2] * constants[g + 2u], all[3] * constants[g + 3u],
    all[4] * constants[g + 4u], all[5] * constants[g + 5u],
    all[6] * constants[g + 6u], all[7] * constants[g + 7u]), 8u);
}
