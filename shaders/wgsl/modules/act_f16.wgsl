// A matmul's input in halves, [token][group of 32][chunk]: four chunks of 16 bytes. Rounding is
// half_bits'.
alias ActOut = vec4<u32>;

fn half_pairs(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(half_bits(v.x) | (half_bits(v.y) << 16u), half_bits(v.z) | (half_bits(v.w) << 16u));
}

// Stores a group of 32 from vector at4 of a row on; what is not among its n vectors is zero.
fn act_store(token: u32, at4: u32, stride: u32, x: array<vec4<f32>, 8>, n: u32) {
  let at = 4u * (token * stride + (at4 >> 3u));
  act_out[at] = vec4<u32>(half_pairs(x[0]), half_pairs(x[1]));
  act_out[at + 1u] = vec4<u32>(half_pairs(x[2]), half_pairs(x[3]));
  act_out[at + 2u] = vec4<u32>(half_pairs(x[4]), half_pairs(x[5]));
  act_out[at + 3u] = vec4<u32>(half_pairs(x[6]), half_pairs(x[7]));
}
