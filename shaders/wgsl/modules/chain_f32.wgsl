// The chain inside a group of 32, exact class: four accumulators over k mod 4, joined in pairs.
fn join4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn group_dot(a: array<vec4<f32>, 8>, b: array<vec4<f32>, 8>) -> f32 {
  var p = fma(a[0], b[0], vec4<f32>());
  p = fma(a[1], b[1], p);
  p = fma(a[2], b[2], p);
  p = fma(a[3], b[3], p);
  p = fma(a[4], b[4], p);
  p = fma(a[5], b[5], p);
  p = fma(a[6], b[6], p);
  p = fma(a[7], b[7], p);
  return join4(p);
}

fn group_sum(b: array<vec4<f32>, 8>) -> f32 {
  var s = vec4<f32>() + b[0];
  s += b[1];
  s += b[2];
  s += b[3];
  s += b[4];
  s += b[5];
  s += b[6];
  s += b[7];
  return join4(s);
}
