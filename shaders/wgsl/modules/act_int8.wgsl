// A matmul's input in signed bytes, [token][group of 32][chunk]: two chunks of codes; one of the scale,
// scale · Σ codes, and Σ codes of either half. Written down in kernels/act.rs.
alias ActOut = vec4<u32>;

fn act_codes(v: vec4<f32>, inverse: f32) -> vec4<i32> {
  // Times zero something infinite would be no number.
  return vec4<i32>(select(vec4<f32>(), round(v * inverse), vec4<bool>(inverse > 0.0)));
}

fn pack4(q: vec4<i32>) -> u32 {
  let c = bitcast<vec4<u32>>(q) & vec4<u32>(255u);
  return c.x | (c.y << 8u) | (c.z << 16u) | (c.w << 24u);
}

fn magnitude(v: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
}

// Stores a group of 32 from vector at4 of a row on; what is not among its n vectors is zero.
fn act_store(token: u32, at4: u32, stride: u32, x: array<vec4<f32>, 8>, n: u32) {
  // Of numbers without sign the bits order as the numbers do; those that are none come last.
  let tops = max(max(max(magnitude(x[0]), magnitude(x[1])), max(magnitude(x[2]), magnitude(x[3]))),
    max(max(magnitude(x[4]), magnitude(x[5])), max(magnitude(x[6]), magnitude(x[7]))));
  let top = max(max(tops.x, tops.y), max(tops.z, tops.w));
  let some = top >= 0x0d800000u && top < 0x7f800000u;
  let most = bitcast<f32>(top);
  let inverse = select(0.0, 127.0 * (1.0 / most), some);
  let d = select(bitcast<f32>(select(0u, 0x7fc00000u, top >= 0x7f800000u)), most * (1.0 / 127.0), some);
  let q0 = act_codes(x[0], inverse);
  let q1 = act_codes(x[1], inverse);
  let q2 = act_codes(x[2], inverse);
  let q3 = act_codes(x[3], inverse);
  let q4 = act_codes(x[4], inverse);
  let q5 = act_codes(x[5], inverse);
  let q6 = act_codes(x[6], inverse);
  let q7 = act_codes(x[7], inverse);
  let lower = (q0 + q1) + (q2 + q3);
  let upper = (q4 + q5) + (q6 + q7);
  let sums = vec2<i32>((lower.x + lower.y) + (lower.z + lower.w), (upper.x + upper.y) + (upper.z + upper.w));
  let halves = bitcast<vec2<u32>>(sums);
  let at = 3u * (token * stride + (at4 >> 3u));
  act_out[at] = vec4<u32>(pack4(q0), pack4(q1), pack4(q2), pack4(q3));
  act_out[at + 1u] = vec4<u32>(pack4(q4), pack4(q5), pack4(q6), pack4(q7));
  act_out[at + 2u] = vec4<u32>(bitcast<u32>(d), bitcast<u32>(d * f32(sums.x + sums.y)),
    (halves.x & 0xffffu) | (halves.y << 16u), 0u);
}
