// The bits of the half nearest to v, ties to even, by integers: what the device's own packing does
// with the last bit differs between drivers. Finite numbers stay finite.
fn half_bits(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let sign = (bits >> 16u) & 0x8000u;
  let a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) { return sign | 0x7e00u; }
  if (a == 0x7f800000u) { return sign | 0x7c00u; }
  // From 65504 on.
  if (a >= 0x477fe000u) { return sign | 0x7bffu; }
  // Under 2⁻¹⁴ halves are multiples of 2⁻²⁴.
  if (a < 0x38800000u) { return sign | u32(round(abs(v) * 16777216.0)); }
  return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
}
