// a and a group, whose partial sum this is, of inputs that are numbers.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  return group_add(a, partial_dot(p, scale), s, scale);
}
