// The 32 inputs of a group, from signed bytes: three lanes load a chunk each and tell the others.
// Needs subgroups of 4 or more whose lanes are consecutive, all active, and in step.
// enable: subgroups
alias ActWord = vec4<u32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let v = act[3u * (token * stride + group) + min(lane & 3u, 2u)];
  return input_of(subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u));
}
