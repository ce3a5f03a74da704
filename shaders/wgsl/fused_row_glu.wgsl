// Gate and up of a norm's output, and GLU: a lane has four gates and their ups. Grid: (rows / 32, tokens);
// there is one token.
// use: order, codes, scale, pieces, partial, sums, close, input, products, rstd, groups, halves, act, activation

struct Params {
  rows: u32,
  groups: u32,
  act_stride: u32,
  bias: u32,
  slots4: u32,
  eps: f32,
  out_stride: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> constants: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(5) var<uniform> p: Params;

// Of two packs of a lane the first is gates, the second their ups. There are whole groups of them.
fn rows_of(pack: u32) -> vec4<u32> {
  let first = 32u * (pack / 16u) + 4u * (pack % 8u) + select(0u, p.rows, pack % 16u >= 8u);
  return vec4(first, first + 1u, first + 2u, first + 3u);
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let y = row_products(group.x, lane);
  let r = vec4<f32>(token_rstd());
  let gate = fma(y[0], r, bias_of(rows_of(pack_of(group.x, 0u, lane))));
  let up = fma(y[1], r, bias_of(rows_of(pack_of(group.x, 1u, lane))));
  let all = group_of_lanes(activation(gate) * up);
  if (lane == 0u) { act_store(0u, 8u * group.x, p.out_stride, all, 8u); }
}
