// Rotary position embedding in place, a lane a pair. Grid: (heads · pairs / 64, tokens).
// use: step, pairing

struct Params {
  heads: u32,
  head_dim: u32,
  pairs: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.heads * p.pairs) { return; }
  let head = id.x / p.pairs;
  let pair = id.x % p.pairs;
  let at = pair_dims(pair, p.pairs) + id.y * p.stride + head * p.head_dim;
  let turn = table[step_position(id.y) * p.pairs + pair];
  let a = x[at.x];
  let b = x[at.y];
  let bs = b * turn.y;
  let as_ = a * turn.y;
  x[at.x] = fma(a, turn.x, -bs);
  x[at.y] = fma(b, turn.x, as_);
}
