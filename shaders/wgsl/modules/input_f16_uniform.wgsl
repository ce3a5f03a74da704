// The 32 inputs of a group, from halves: every lane loads them all.
alias ActWord = vec4<u32>;

fn eight(v: vec4<u32>) -> array<vec4<f32>, 2> {
  return array<vec4<f32>, 2>(vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y)),
    vec4<f32>(unpack2x16float(v.z), unpack2x16float(v.w)));
}

fn group_input(token: u32, stride: u32, group: u32, lane: u32) -> Input {
  let at = 4u * (token * stride + group);
  let a = eight(act[at]);
  let b = eight(act[at + 1u]);
  let c = eight(act[at + 2u]);
  let d = eight(act[at + 3u]);
  return input_of(array<vec4<f32>, 8>(a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]));
}
