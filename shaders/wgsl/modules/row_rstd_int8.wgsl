// As row_rstd_f32, where inputs are words.
fn token_rstd() -> f32 {
  var sum = 0.0;
  for (var s = 0u; s < p.groups; s++) { sum += bitcast<f32>(act[4u * (p.slots4 + s)]); }
  return 1.0 / sqrt(sum / f32(32u * p.groups) + p.eps);
}
