// Sum of squares of a slot of a norm, 32 elements. Chain: kernels/rms_norm.rs.
fn squares(v: array<vec4<f32>, 8>) -> f32 {
  var s = fma(v[0], v[0], vec4<f32>());
  s = fma(v[1], v[1], s);
  s = fma(v[2], v[2], s);
  s = fma(v[3], v[3], s);
  s = fma(v[4], v[4], s);
  s = fma(v[5], v[5], s);
  s = fma(v[6], v[6], s);
  s = fma(v[7], v[7], s);
  return (s.x + s.y) + (s.z + s.w);
}
