// Biases, penalties and bans of single logits. Grid: (edits / LANES).

struct Params {
  banned: f32,
}

@group(0) @binding(0) var<storage, read> edits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) invocation: vec3<u32>) {
  if (invocation.x >= edits[0].x) {
    return;
  }
  let edit = edits[invocation.x + 1u];
  let at = edit.x & 0x7fffffffu;
  let repetition = bitcast<f32>(edit.z);
  var x = logits[at] + bitcast<f32>(edit.y);
  if (x > 0.0) {
    x = x / repetition;
  } else {
    x = x * repetition;
  }
  x = x - bitcast<f32>(edit.w);
  logits[at] = select(x, p.banned, (edit.x >> 31u) == 1u);
}
