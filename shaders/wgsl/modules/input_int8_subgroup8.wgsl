// The 32 inputs of a group, from signed bytes: eight lanes load two words each and tell the others.
// Needs subgroups of 8 or more whose lanes are consecutive, all active, and in step.
// enable: subgroups
alias ActWord = u32;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let at = 12u * (token * stride + group);
  let v = act[at + (lane & 7u)];
  let s = act[at + 8u + (lane & 3u)];
  return input_of(
    vec4<u32>(subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u),
      subgroupBroadcast(v, 3u)),
    vec4<u32>(subgroupBroadcast(v, 4u), subgroupBroadcast(v, 5u), subgroupBroadcast(v, 6u),
      subgroupBroadcast(v, 7u)),
    vec4<u32>(subgroupBroadcast(s, 0u), subgroupBroadcast(s, 1u), subgroupBroadcast(s, 2u), 0u));
}
