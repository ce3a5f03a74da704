// cap · tanh(s / cap) for any s, infinite ones included: the series to the ninth power near zero,
// where the next term is below 2⁻²⁶ of the first; elsewhere by an exponential that only falls.
// Neither way ends in a bare product, which one body might fuse with what follows and another not.
// Written down in kernels/softcap.rs.
fn soft_cap(s: f32, cap: f32) -> f32 {
  let x = s / cap;
  let z = x * x;
  var t = fma(z, 62.0 / 2835.0, -17.0 / 315.0);
  t = fma(z, t, 2.0 / 15.0);
  t = fma(z, t, -1.0 / 3.0);
  let near = fma(s * z, t, s);
  let e = exp(-2.0 * abs(x));
  let far = fma(-2.0 * cap, e / (1.0 + e), cap);
  return select(select(-far, far, s >= 0.0), near, abs(x) < 0.25);
}
