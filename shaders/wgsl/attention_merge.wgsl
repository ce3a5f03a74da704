// Merges the parts of each decode query in order, a lane four dims of a head.
// Chain: see kernels/attention.rs. Grid: (heads · head_dim / 256, decode queries).
// use: act, step, attention

struct Params {
  heads: u32,
  max_parts: u32,
  act_stride: u32,
  window: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> act_out: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x / D4;
  if (head >= p.heads) { return; }
  let item = step_decode(id.y);
  let seq = step_seq(item.x);
  let keys = seq.context - seq.queries + item.y + 1u;
  let n = (keys + PART_KEYS - 1u) / PART_KEYS - first_seen(keys - 1u) / PART_KEYS;
  var row = (id.y * p.heads + head) * p.max_parts * (D4 + 1u);
  var m = NO_MAX;
  var l = 0.0;
  var o = vec4<f32>();
  for (var part = 0u; part < n; part++) {
    let state = parts[row + D4];
    let merge = merge_states(m, state.x);
    let factors = vec2(merge.e_old, merge.e_new);
    o = merge_values(factors, o, parts[row + id.x % D4]);
    l = merge_sum(factors, l, state.y);
    m = merge.m;
    row += D4 + 1u;
  }
  act_out[act_index(seq.first_token + item.y, id.x, p.act_stride)] = o / l;
}
