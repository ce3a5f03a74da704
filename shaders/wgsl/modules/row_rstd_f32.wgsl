// The reciprocal root mean square of the one token of a step, from the sums of squares behind its inputs: a
// slot's is first of four words from p.slots4 on, a slot being a group. Chain: kernels/rms_norm.rs.
fn token_rstd() -> f32 {
  var sum = 0.0;
  for (var s = 0u; s < p.groups; s++) { sum += act[p.slots4 + s].x; }
  return 1.0 / sqrt(sum / f32(32u * p.groups) + p.eps);
}
