// Bans the tokens that a row's mask leaves out. Grid: (vocab / CHUNK, masks).

struct Params {
  vocab: u32,
  record: u32,
  banned: f32,
}

@group(0) @binding(0) var<storage, read> masks: array<u32>;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let record = group.y * p.record;
  let row = masks[record] * p.vocab;
  let end = min((group.x + 1u) * CHUNK, p.vocab);
  for (var id = group.x * CHUNK + lane; id < end; id += LANES) {
    let word = masks[record + 1u + (id >> 5u)];
    if (((word >> (id & 31u)) & 1u) == 0u) {
      logits[row + id] = p.banned;
    }
  }
}
