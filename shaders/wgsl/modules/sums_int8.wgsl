// Inputs of a group that are codes, and of them: scale, scale · Σ codes, and Σ codes of either half.
alias Sums = vec4<f32>;

struct Input {
  x: Codes,
  s: Sums,
}

fn input_of(a: vec4<u32>, b: vec4<u32>, s: vec4<u32>) -> Input {
  let halves = bitcast<i32>(s.z);
  let sums = vec4<f32>(
    bitcast<f32>(s.x), bitcast<f32>(s.y), f32((halves << 16u) >> 16u), f32(halves >> 16u));
  return Input(codes_of(a, b), sums);
}
