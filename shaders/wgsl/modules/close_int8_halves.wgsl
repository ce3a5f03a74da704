// a and a group, whose partial sum this is, where the halves have scales: times both others.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  return fma(scale.x * s.x, partial_dot(p, scale), a);
}

fn code_scales(scale: Scale) -> vec2<f32> { return scale.zw; }
