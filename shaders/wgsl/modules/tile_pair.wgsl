// A workgroup's tile of a product with chosen experts: one pair of a token and an expert, as routed.
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
  // The pair.
  first: u32,
  // 1, or 0 where another window has the expert.
  tokens: u32,
}

// The workgroup's tile, by its place among the `steps` of the grid: one of a token's pairs.
fn tile_at(index: u32, of_token: u32, steps: u32) -> Tile {
  let pair = of_token * p.chosen + index;
  // An expert before the window wraps around and is outside it too.
  let expert = pairs[2u * pair] - p.first_expert;
  return Tile(expert * p.rows, pair, select(0u, 1u, expert < p.experts));
}

// The row of y that is its n-th.
fn tile_output(tile: Tile, n: u32) -> u32 { return tile.first; }

// The input of a row of y.
fn input_row(output: u32) -> u32 { return output / p.share; }
