// The 32 inputs of a group: eight lanes load a vec4 each and tell the others. Needs subgroups of 8
// or more whose lanes are consecutive, all active, and in step.
// enable: subgroups
alias ActWord = vec4<f32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let x = act[token * stride + 8u * group + (lane & 7u)];
  return input_of(array<vec4<f32>, 8>(
    subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u),
    subgroupBroadcast(x, 3u), subgroupBroadcast(x, 4u), subgroupBroadcast(x, 5u),
    subgroupBroadcast(x, 6u), subgroupBroadcast(x, 7u)));
}
