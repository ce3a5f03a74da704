// The 32 inputs of a group: four lanes load two vec4 each and tell the others. Needs subgroups of
// 4 whose lanes are consecutive, all active, and in step.
// enable: subgroups
alias ActWord = vec4<f32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let x = act[token * stride + 8u * group + (lane & 3u)];
  let z = act[token * stride + 8u * group + 4u + (lane & 3u)];
  return input_of(array<vec4<f32>, 8>(
    subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u),
    subgroupBroadcast(x, 3u), subgroupBroadcast(z, 0u), subgroupBroadcast(z, 1u),
    subgroupBroadcast(z, 2u), subgroupBroadcast(z, 3u)));
}
