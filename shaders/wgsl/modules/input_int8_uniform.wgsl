// The 32 inputs of a group, from signed bytes: every lane loads them all.
alias ActWord = vec4<u32>;

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let at = 3u * (token * stride + group);
  return input_of(act[at], act[at + 1u], act[at + 2u]);
}
