// The best candidate of a row, by a workgroup: each lane the best of its own, then one lane the
// best of the lanes. Grid: (rows).

struct Params {
  candidates: u32,
  first_row: u32,
}

@group(0) @binding(0) var<storage, read> best: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

var<workgroup> tops: array<f32, 64>;
var<workgroup> top_ids: array<u32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var top = -3.4e38;
  var top_id = 0xffffffffu;
  for (var i = lane; i < p.candidates; i += 64u) {
    let candidate = best[group.x * p.candidates + i];
    let score = bitcast<f32>(candidate.x);
    if (score > top || (score == top && candidate.y < top_id)) {
      top = score;
      top_id = candidate.y;
    }
  }
  tops[lane] = top;
  top_ids[lane] = top_id;
  workgroupBarrier();
  if (lane == 0u) {
    for (var i = 1u; i < 64u; i++) {
      if (tops[i] > top || (tops[i] == top && top_ids[i] < top_id)) {
        top = tops[i];
        top_id = top_ids[i];
      }
    }
    ids[p.first_row + group.x] = top_id;
  }
}
