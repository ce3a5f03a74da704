// Stores two neighbours of a matmul's input, the first of them even, in the format of act_f16.
alias ActOut = u32;

fn act_store_two(token: u32, k: u32, stride: u32, v: vec2<f32>) {
  act_out[16u * token * stride + k / 2u] = half_bits(v.x) | (half_bits(v.y) << 16u);
}
