// The step's pairs of tokens and experts by expert, and tiles of them, a workgroup an expert: a lane looks
// through a share of the pairs. Layout: kernels/moe_group.rs. Grid: experts.
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

// Of each share: pairs of experts before this one, and of this one.
var<workgroup> counts: array<vec2<u32>, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let expert = group.x;
  let total = p.chosen * min(step[STEP_NUM_TOKENS], p.tokens);
  let share = (total + LANES - 1u) / LANES;
  let from_pair = min(share * lane, total);
  let to_pair = min(from_pair + share, total);
  var count = vec2<u32>();
  for (var pair = from_pair; pair < to_pair; pair++) {
    let other = route[pair].x;
    count += select(vec2<u32>(), vec2<u32>(1u, 0u), other < expert);
    count += select(vec2<u32>(), vec2<u32>(0u, 1u), other == expert);
  }
  counts[lane] = count;
  workgroupBarrier();
  var before = 0u;
  var number = 0u;
  var of_lanes_before = 0u;
  for (var other = 0u; other < LANES; other++) {
    if (other == lane) { of_lanes_before = number; }
    before += counts[other].x;
    number += counts[other].y;
  }

  let first = before / p.tile + expert;
  var end = (before + number) / p.tile + expert + 1u;
  // Behind the last expert's tiles one may be missing to what a grid has.
  if (expert + 1u == p.experts) { end = (total + p.tile - 1u) / p.tile + p.experts; }
  for (var tile = first + lane; tile < end; tile += LANES) {
    let done = min(p.tile * (tile - first), number);
    pairs[3u * tile] = expert;
    pairs[3u * tile + 1u] = before + done;
    pairs[3u * tile + 2u] = min(number - done, p.tile);
  }

  var at = p.order + before + of_lanes_before;
  for (var pair = from_pair; pair < to_pair; pair++) {
    if (route[pair].x == expert) {
      pairs[at] = pair;
      at++;
    }
  }
}
