// What eight lanes have four of each, as every one of them sees it. Needs subgroups of 8 whose lanes are
// consecutive, all active, and in step.
// enable: subgroups
fn group_of_lanes(x: vec4<f32>) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u),
    subgroupBroadcast(x, 3u), subgroupBroadcast(x, 4u), subgroupBroadcast(x, 5u),
    subgroupBroadcast(x, 6u), subgroupBroadcast(x, 7u));
}
