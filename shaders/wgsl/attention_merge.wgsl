// Merges the parts of each decode query that has several, in order, a lane 32 dims of a head.
// Chain: see kernels/attention.rs. Grid: (heads · groups / 32, decode queries).
// use: halves, act, step, attention

struct Params {
  heads: u32,
  max_parts: u32,
  act_stride: u32,
  window: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> act_out: array<ActOut>;
@group(0) @binding(3) var<uniform> p: Params;

const GROUPS = (D4 + 7u) / 8u;

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x / GROUPS;
  if (head >= p.heads) { return; }
  let first = 8u * (id.x % GROUPS);
  let item = step_decode(id.y);
  let seq = step_seq(item.x);
  let keys = seq.context - seq.queries + item.y + 1u;
  let n = part_count(keys);
  // What has one part is in its place.
  if (n == 1u) { return; }
  var row = (id.y * p.heads + head) * p.max_parts * (D4 + 1u);
  var m = NO_MAX;
  var l = 0.0;
  var o: array<vec4<f32>, 8>;
  for (var part = 0u; part < n; part++) {
    let state = parts[row + D4];
    let merge = merge_states(m, state.x);
    let factors = vec2(merge.e_old, merge.e_new);
    for (var i = 0u; i < 8u; i++) {
      // What lies behind a head counts for nothing.
      o[i] = merge_values(factors, o[i], parts[row + min(first + i, D4 - 1u)]);
    }
    l = merge_sum(factors, l, state.y);
    m = merge.m;
    row += D4 + 1u;
  }
  for (var i = 0u; i < 8u; i++) { o[i] = select(vec4<f32>(), o[i] / l, first + i < D4); }
  act_store(seq.first_token + item.y, head * D4 + first, p.act_stride, o, min(8u, D4 - first));
}
