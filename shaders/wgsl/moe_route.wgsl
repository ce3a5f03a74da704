// The experts of each token and their weights, a lane a token.
// Chain: see kernels/moe_route.rs. Grid: tokens / TOKENS.

struct Params {
  experts: u32,
  chosen: u32,
  tokens: u32,
  norm: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> route: array<vec2<u32>>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(TOKENS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.tokens) { return; }
  let row = id.x * p.experts;
  // The best, then the best of those behind the one before: equal ones by ascending id.
  var top = 0.0;
  var last = 0.0;
  var last_id = 0u;
  var sum = 0.0;
  for (var k = 0u; k < p.chosen; k++) {
    var best = 0.0;
    var best_id = p.experts;
    for (var e = 0u; e < p.experts; e++) {
      let v = logits[row + e];
      let behind = k == 0u || v < last || (v == last && e > last_id);
      if (behind && (best_id == p.experts || v > best)) {
        best = v;
        best_id = e;
      }
    }
    // Only numbers that do not compare leave nobody behind.
    if (best_id == p.experts) { best_id = min(k, p.experts - 1u); }
    if (k == 0u) { top = best; }
    last = best;
    last_id = best_id;
    let weight = exp(best - top);
    sum += weight;
    route[id.x * p.chosen + k] = vec2<u32>(best_id, bitcast<u32>(weight));
  }
  if (p.norm == 0u) {
    sum = 0.0;
    for (var e = 0u; e < p.experts; e++) { sum += exp(logits[row + e] - top); }
  }
  for (var k = 0u; k < p.chosen; k++) {
    let at = id.x * p.chosen + k;
    route[at].y = bitcast<u32>(bitcast<f32>(route[at].y) / sum);
  }
}
