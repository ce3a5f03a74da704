// A workgroup's tile of a product with chosen experts: pairs of tokens and one expert, as moe_group puts
// them. Whatever their number, a row of weights is read and unpacked once for all.
struct Params {
  rows: u32,
  groups: u32,
  first_expert: u32,
  experts: u32,
  chosen: u32,
  share: u32,
  order: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> pairs: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

struct Tile {
  // First row of its expert.
  row: u32,
  // Where its first pair stands.
  first: u32,
  // Pairs; 0 where another window has the expert.
  tokens: u32,
}

// The workgroup's tile, by its place among the `steps` of the grid.
fn tile_at(index: u32, of_token: u32, steps: u32) -> Tile {
  // An expert before the window wraps around and is outside it too.
  let expert = pairs[3u * index] - p.first_expert;
  let number = select(0u, pairs[3u * index + 2u], expert < p.experts);
  return Tile(expert * p.rows, p.order + pairs[3u * index + 1u], number);
}

// The row of y that is its n-th; its last one's where there are fewer.
fn tile_output(tile: Tile, n: u32) -> u32 { return pairs[tile.first + min(n, tile.tokens - 1u)]; }

// The input of a row of y.
fn input_row(output: u32) -> u32 { return output / p.share; }
