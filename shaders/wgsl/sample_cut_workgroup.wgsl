// What follows from a pass over a row, by a workgroup: a lane fetches and clears a bin, then one lane
// walks over them. Grid: (rows).
// use: step, cut, order_key, cut_walk

struct Params {
  first_row: u32,
  digit: u32,
}

@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> cut: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

var<workgroup> bins: array<vec2<u32>, 256>;

fn bin(at: u32, b: u32) -> vec2<u32> {
  return bins[b];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let record = step_sample(p.first_row + group.x);
  let at = group.x * CUT_ROW_WORDS;
  let word = at + CUT_BINS + 2u * lane;
  bins[lane] = vec2(cut[word], cut[word + 1u]);
  cut[word] = 0u;
  cut[word + 1u] = 0u;
  workgroupBarrier();
  if (lane == 0u && cut_wanted(record, STAGE)) {
    walk(record, at, p.digit);
  }
}
