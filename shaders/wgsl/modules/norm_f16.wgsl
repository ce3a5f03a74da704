// A norm enters its matrix as halves (x ∘ g) r, r the reciprocal root mean square.

// What half_bits makes of v, as singles, without branches.
fn as_halves(v: vec4<f32>) -> vec4<f32> {
  let bits = bitcast<vec4<u32>>(v);
  let a = bits & vec4(0x7fffffffu);
  let near = (a + 0xfffu + ((a >> vec4(13u)) & vec4(1u))) & vec4(0xffffe000u);
  // Under 2⁻¹⁴ halves are multiples of 2⁻²⁴.
  let small = bitcast<vec4<u32>>(round(abs(v) * 16777216.0) * 5.9604644775390625e-8);
  var r = select(min(near, vec4(0x477fe000u)), small, a < vec4(0x38800000u));
  r = select(r, a, a >= vec4(0x7f800000u));
  return bitcast<vec4<f32>>(r | (bits & vec4(0x80000000u)));
}

fn normed4(v: vec4<f32>, gains: vec4<f32>, r: f32) -> vec4<f32> {
  return as_halves(v * gains * r);
}

fn last_scale(r: f32) -> f32 { return 1.0; }
