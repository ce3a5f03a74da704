// A norm enters its matrix as singles x ∘ g; the reciprocal root mean square r comes last.
fn normed4(v: vec4<f32>, gains: vec4<f32>, r: f32) -> vec4<f32> {
  // Through a 0 that no compiler sees a product is rounded, and not contracted with a later sum.
  return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v * gains) ^ vec4<u32>(p.groups >> 30u));
}

fn last_scale(r: f32) -> f32 { return r; }
