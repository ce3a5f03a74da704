// A pass over the logits of the rows whose cut is looked for. Grid: (vocab / CHUNK, rows).
// use: step, cut, order_key

struct Params {
  vocab: u32,
  first_row: u32,
  digit: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> cut: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = group.y;
  let record = step_sample(p.first_row + row);
  if (!cut_wanted(record, STAGE)) {
    return;
  }
  let at = row * CUT_ROW_WORDS;
  let end = min((group.x + 1u) * CHUNK, p.vocab);
  let first = group.x * CHUNK + lane;
  if (STAGE == STAGE_MAX) {
    var top = 0u;
    for (var id = first; id < end; id += LANES) {
      top = max(top, order_key(logits[row * p.vocab + id]));
    }
    atomicMax(&cut[at + CUT_MAX], top);
    return;
  }
  if (STAGE == STAGE_COUNT && atomicLoad(&cut[at + CUT_RANK]) == 0u) {
    return;
  }
  let lowest = atomicLoad(&cut[at + CUT_CUT]);
  let prefix = atomicLoad(&cut[at + CUT_PREFIX]);
  let top = bitcast<f32>(atomicLoad(&cut[at + CUT_TOP]));
  let temperature = bitcast<f32>(step[record]);
  let shift = 24u - 8u * p.digit;
  for (var id = first; id < end; id += LANES) {
    let x = logits[row * p.vocab + id];
    let key = order_key(x);
    if (key < lowest || ((key >> shift) >> 8u) != prefix) {
      continue;
    }
    let bin = at + CUT_BINS + 2u * ((key >> shift) & 0xffu);
    if (STAGE == STAGE_COUNT) {
      atomicAdd(&cut[bin], 1u);
    } else {
      // 12 bits of whole numbers and 32 of fractions, both exact.
      let mass = exp((x - top) / temperature) * 4096.0;
      let low = u32((mass - floor(mass)) * 4294967296.0);
      let before = atomicAdd(&cut[bin], low);
      let high = u32(mass) + select(0u, 1u, before + low < before);
      if (high != 0u) {
        atomicAdd(&cut[bin + 1u], high);
      }
    }
  }
}
