// The 32 inputs of a group: every lane loads them all.
alias ActWord = vec4<f32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let k4 = 8u * group;
  return input_of(array<vec4<f32>, 8>(
    act[token * stride + k4], act[token * stride + k4 + 1u],
    act[token * stride + k4 + 2u], act[token * stride + k4 + 3u],
    act[token * stride + k4 + 4u], act[token * stride + k4 + 5u],
    act[token * stride + k4 + 6u], act[token * stride + k4 + 7u]));
}
