// sums[to] = sums[from] + Σ x · rstd over a share's tokens, in their order. Grid: (dim4 / 64, shares).

struct Params {
  dim4: u32,
  act_stride: u32,
}

struct Pool {
  first_token: u32,
  tokens: u32,
  from_row: u32,
  to_row: u32,
}

const NO_ROW = 0xffffffffu;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> rstd: array<f32>;
@group(0) @binding(2) var<storage, read> pools: array<Pool>;
@group(0) @binding(3) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.dim4) { return; }
  let pool = pools[id.y];
  var s = vec4<f32>();
  if (pool.from_row != NO_ROW) { s = sums[pool.from_row * p.dim4 + id.x]; }
  for (var t = 0u; t < pool.tokens; t++) {
    let token = pool.first_token + t;
    s = fma(x[token * p.act_stride + id.x], vec4<f32>(rstd[token]), s);
  }
  sums[pool.to_row * p.dim4 + id.x] = s;
}
