// a and a group, whose partial sum this is: times both scales.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  return group_add(a, partial_dot(p, scale), s.y, vec2<f32>(scale.x * s.x, scale.y));
}
