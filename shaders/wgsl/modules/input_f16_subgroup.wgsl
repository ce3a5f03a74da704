// The 32 inputs of a group, from halves: four lanes load and widen a chunk each and tell the others.
// Needs subgroups of 4 or more whose lanes are consecutive, all active, and in step.
// enable: subgroups
alias ActWord = vec4<u32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let v = act[4u * (token * stride + group) + (lane & 3u)];
  let x = vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y));
  let z = vec4<f32>(unpack2x16float(v.z), unpack2x16float(v.w));
  return input_of(array<vec4<f32>, 8>(
    subgroupBroadcast(x, 0u), subgroupBroadcast(z, 0u), subgroupBroadcast(x, 1u),
    subgroupBroadcast(z, 1u), subgroupBroadcast(x, 2u), subgroupBroadcast(z, 2u),
    subgroupBroadcast(x, 3u), subgroupBroadcast(z, 3u)));
}
