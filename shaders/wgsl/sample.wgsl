// The best of each lane's ids. Grid: (vocab / CHUNK, rows).
// use: step, rng, cut, order_key

struct Params {
  vocab: u32,
  first_row: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read> cut: array<u32>;
@group(0) @binding(3) var<storage, read_write> best: array<u32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = group.y;
  let record = step_sample(p.first_row + row);
  let temperature = bitcast<f32>(step[record]);
  let seed = vec2(step[record + 1u], step[record + 2u]);
  let position = step[record + 3u];
  // The lowest number where nothing is cut off.
  var lowest = -0x1.fffffep+127f;
  if (step[record + SAMPLE_FILTERS] != 0u) {
    lowest = order_value(cut[row * CUT_ROW_WORDS + CUT_CUT]);
  }
  var top = -3.4e38;
  var top_id = 0xffffffffu;
  let end = min((group.x + 1u) * CHUNK, p.vocab);
  for (var id = group.x * CHUNK + lane; id < end; id += LANES) {
    let logit = logits[row * p.vocab + id];
    var score = logit;
    if (temperature > 0.0) {
      score = score / temperature + gumbel(seed, position, id);
    }
    if (score > top && logit >= lowest) {
      top = score;
      top_id = id;
    }
  }
  let to = 2u * ((row * groups.x + group.x) * LANES + lane);
  best[to] = bitcast<u32>(top);
  best[to + 1u] = top_id;
}
