// A slot of a norm, 32 elements: reading it, storing its product with the gains.
// A kernel that uses this module has `x`, `g`, `p.dim4` and `p.act_stride`, and SCALED in its key.

// Vector i of the row at `row`; zero behind its end, which adds nothing to a sum of squares.
fn at_or_zero(row: u32, i: u32) -> vec4<f32> {
  return select(vec4<f32>(), x[row + min(i, p.dim4 - 1u)], i < p.dim4);
}

fn slot_of(row: u32, i: u32) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    at_or_zero(row, i), at_or_zero(row, i + 1u), at_or_zero(row, i + 2u), at_or_zero(row, i + 3u),
    at_or_zero(row, i + 4u), at_or_zero(row, i + 5u), at_or_zero(row, i + 6u), at_or_zero(row, i + 7u));
}

fn gain(i: u32) -> vec4<f32> {
  return select(vec4<f32>(), g[min(i, p.dim4 - 1u)], i < p.dim4);
}

// Stores a slot's x ∘ g, times r where the format wants it so.
fn store(token: u32, i: u32, v: array<vec4<f32>, 8>, r: f32) {
  var o = array<vec4<f32>, 8>(
    v[0] * gain(i), v[1] * gain(i + 1u), v[2] * gain(i + 2u), v[3] * gain(i + 3u),
    v[4] * gain(i + 4u), v[5] * gain(i + 5u), v[6] * gain(i + 6u), v[7] * gain(i + 7u));
  if (SCALED == 1u) {
    o = array<vec4<f32>, 8>(
      o[0] * r, o[1] * r, o[2] * r, o[3] * r, o[4] * r, o[5] * r, o[6] * r, o[7] * r);
  }
  act_store(token, i, p.act_stride, o, min(8u, p.dim4 - i));
}
