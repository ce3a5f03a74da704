// a and a group, whose partial sum this is, for Q2_K: as close_int8_halves, and the offset's dot of the
// halves' m and Σ codes is one of whole numbers too.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  let a1 = fma(scale.d * s.x, partial_dot(p, scale), a);
  return fma(scale.dmin * s.x, fma(scale.m.x, s.z, scale.m.y * s.w), a1);
}

fn code_scales(scale: Scale) -> vec2<f32> { return scale.s; }
