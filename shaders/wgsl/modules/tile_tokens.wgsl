// A workgroup's tile of a dense matrix product: neighbouring tokens of the step.
struct Params {
  rows: u32,
  groups: u32,
  tokens: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
  bias: u32,
  add: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

struct Tile {
  // First row of its matrix.
  row: u32,
  // Its first token.
  first: u32,
  // How many it has.
  tokens: u32,
}

// The workgroup's tile, by its place among those of a grid that counts steps of STEP tokens: it tells how
// many tokens there are, so that the last tile has no more. Steps inside a tile have none.
fn tile_at(index: u32, of_token: u32, steps: u32) -> Tile {
  let first = STEP * index;
  let room = p.tokens - min(first, p.tokens);
  let tokens = min(min(STEP * (steps - index), TOKENS), room);
  return Tile(0u, first, select(0u, tokens, first % TOKENS == 0u));
}

// The row of y that is its n-th; some row where there are fewer.
fn tile_output(tile: Tile, n: u32) -> u32 { return min(tile.first + n, p.tokens - 1u); }

// The input of a row of y.
fn input_row(output: u32) -> u32 { return output; }
