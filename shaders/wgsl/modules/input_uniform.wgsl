// The 32 inputs of a group: every lane loads them all.
fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> array<vec4<f32>, 8> {
  let k4 = 8u * group;
  return array<vec4<f32>, 8>(
    act[act_index(token, k4, stride)], act[act_index(token, k4 + 1u, stride)],
    act[act_index(token, k4 + 2u, stride)], act[act_index(token, k4 + 3u, stride)],
    act[act_index(token, k4 + 4u, stride)], act[act_index(token, k4 + 5u, stride)],
    act[act_index(token, k4 + 6u, stride)], act[act_index(token, k4 + 7u, stride)]);
}
