// The best candidate of a row, by one lane. Grid: (rows).

struct Params {
  candidates: u32,
  first_row: u32,
}

@group(0) @binding(0) var<storage, read> best: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
  var top = -3.4e38;
  var top_id = 0xffffffffu;
  for (var i = 0u; i < p.candidates; i++) {
    let candidate = best[group.x * p.candidates + i];
    let score = bitcast<f32>(candidate.x);
    if (score > top || (score == top && candidate.y < top_id)) {
      top = score;
      top_id = candidate.y;
    }
  }
  ids[p.first_row + group.x] = top_id;
}
