// Stores two neighbours of a matmul's input, the first of them even, in the format of act_f32.
alias ActOut = f32;

fn act_store_two(token: u32, k: u32, stride: u32, v: vec2<f32>) {
  let at = 4u * token * stride + k;
  act_out[at] = v.x;
  act_out[at + 1u] = v.y;
}
