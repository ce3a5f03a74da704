// What follows from a pass over a row, by one lane. Grid: (rows).
// use: step, cut, order_key, cut_walk

struct Params {
  first_row: u32,
  digit: u32,
}

@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> cut: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

fn bin(at: u32, b: u32) -> vec2<u32> {
  let word = at + CUT_BINS + 2u * b;
  return vec2(cut[word], cut[word + 1u]);
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
  let record = step_sample(p.first_row + group.x);
  if (!cut_wanted(record, STAGE)) {
    return;
  }
  let at = group.x * CUT_ROW_WORDS;
  walk(record, at, p.digit);
  if (STAGE != STAGE_MAX) {
    for (var i = 0u; i < 512u; i++) {
      cut[at + CUT_BINS + i] = 0u;
    }
  }
}
