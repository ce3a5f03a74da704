// The step's pairs of tokens and experts by expert, and tiles of them, a lane an expert: for processors.
// Each looks through all pairs by itself. Layout: kernels/moe_group.rs. Grid: experts / LANES.
// use: step

struct Params {
  experts: u32,
  chosen: u32,
  tokens: u32,
  tile: u32,
  order: u32,
}

@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read> route: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> pairs: array<u32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let expert = id.x;
  if (expert >= p.experts) { return; }
  let total = p.chosen * min(step[STEP_NUM_TOKENS], p.tokens);
  var before = 0u;
  var number = 0u;
  for (var pair = 0u; pair < total; pair++) {
    let other = route[pair].x;
    before += select(0u, 1u, other < expert);
    number += select(0u, 1u, other == expert);
  }

  let first = before / p.tile + expert;
  var end = (before + number) / p.tile + expert + 1u;
  // Behind the last expert's tiles one may be missing to what a grid has.
  if (expert + 1u == p.experts) { end = (total + p.tile - 1u) / p.tile + p.experts; }
  for (var tile = first; tile < end; tile++) {
    let done = min(p.tile * (tile - first), number);
    pairs[3u * tile] = expert;
    pairs[3u * tile + 1u] = before + done;
    pairs[3u * tile + 2u] = min(number - done, p.tile);
  }

  var at = p.order + before;
  for (var pair = 0u; pair < total; pair++) {
    if (route[pair].x == expert) {
      pairs[at] = pair;
      at++;
    }
  }
}
