// Writes pages of int8: one invocation a scale and its codes. Two scales that share a word may be of
// two tokens, hence atomics. Written down in kernels/kv.rs.
// A kernel that uses this module has `kcache`, `vcache`, `key4`, `value4`, `p.stride4` and D4.
alias KvWord = atomic<u32>;

// Vectors of four dims an invocation stores.
const STORE4 = 8u;

// The largest magnitude of v or before. Of numbers without sign the bits order as the numbers do;
// those that are none come last.
fn top_bits(top: u32, v: vec4<f32>) -> u32 {
  let bits = bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
  return max(top, max(max(bits.x, bits.y), max(bits.z, bits.w)));
}

// The bits of the scale of a group.
fn scale_bits(top: u32) -> u32 {
  if (top >= 0x7f800000u) { return 0x7e00u; }
  return half_bits(bitcast<f32>(top) * (1.0 / 127.0));
}

fn inverse(scale: u32) -> f32 {
  let s = unpack2x16float(scale).x;
  return select(0.0, 1.0 / s, s > 0.0);
}

fn codes4(v: vec4<f32>, inverse: f32) -> u32 {
  // Times zero something infinite would be no number.
  let x = select(vec4<f32>(), round(v * inverse), inverse > 0.0);
  let c = bitcast<vec4<u32>>(vec4<i32>(clamp(x, vec4(-127.0), vec4(127.0)))) & vec4(0xffu);
  return c.x | (c.y << 8u) | (c.z << 16u) | (c.w << 24u);
}

// Those from vector `at` of a row on, of the key at `k`, turned by `turns`, and of the value at `v`.
fn kv_store(row: KvRow, at: u32, k: u32, v: u32, turns: u32) {
  // Eight, or what is left, out of the compiler's sight (no stride is that long): loops that no driver
  // shall unroll.
  let n = min(D4 - at, STORE4 + (p.stride4 >> 30u));
  var keys: array<vec4<f32>, STORE4>;
  var k_top = 0u;
  var v_top = 0u;
  for (var i = 0u; i < n; i++) {
    keys[i] = key4(k, at + i, turns);
    k_top = top_bits(k_top, keys[i]);
    v_top = top_bits(v_top, value4(v, at + i));
  }
  let k_scale = scale_bits(k_top);
  let v_scale = scale_bits(v_top);
  let k_inverse = inverse(k_scale);
  let v_inverse = inverse(v_scale);
  for (var i = 0u; i < n; i++) {
    atomicStore(&kcache[row.x + at + i], codes4(keys[i], k_inverse));
    atomicStore(&vcache[row.x + at + i], codes4(value4(v, at + i), v_inverse));
  }
  let scale = row.y + at / STORE4;
  let shift = 16u * (scale & 1u);
  let other = ~(0xffffu << shift);
  atomicAnd(&kcache[scale / 2u], other);
  atomicOr(&kcache[scale / 2u], k_scale << shift);
  atomicAnd(&vcache[scale / 2u], other);
  atomicOr(&vcache[scale / 2u], v_scale << shift);
}
