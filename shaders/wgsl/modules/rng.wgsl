// Noise as a hash: the same (seed, position, token) gives the same number in any batch.
// PCG output permutation as a hash (Jarzynski & Olano 2020, "Hash Functions for GPU Rendering").
fn pcg(v: u32) -> u32 {
  let state = v * 747796405u + 2891336453u;
  let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
  return (word >> 22u) ^ word;
}

// Uniform in (0, 1): 23 bits and a half, so that neither end is reached.
fn uniform01(seed: vec2<u32>, position: u32, token: u32) -> f32 {
  let h = pcg(pcg(pcg(pcg(seed.x) ^ seed.y) ^ position) ^ token);
  return (f32(h >> 9u) + 0.5) * 0x1p-23f;
}

fn gumbel(seed: vec2<u32>, position: u32, token: u32) -> f32 {
  return -log(-log(uniform01(seed, position, token)));
}
