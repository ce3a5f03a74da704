// 16 dims of a row of keys, and halves of those of two rows of values: the lanes of a quad load a vec4 each
// and tell each other. `at` is the first vec4; the second row may hold anything. Needs subgroups of 8 or
// more whose lanes are consecutive, all active, and in step, and rows of whole pieces of 16.
// enable: subgroups
fn quad_of(lane: u32) -> u32 { return (lane >> 2u) & 1u; }

fn all_four(x: vec4<f32>) -> array<vec4<f32>, 4> {
  return array<vec4<f32>, 4>(
    quadBroadcast(x, 0u), quadBroadcast(x, 1u), quadBroadcast(x, 2u), quadBroadcast(x, 3u));
}

fn of_other_quad(x: f32) -> f32 { return subgroupShuffleXor(x, 4u); }
fn vec4_of_other_quad(x: vec4<f32>) -> vec4<f32> { return subgroupShuffleXor(x, 4u); }

// The piece of the quad's own row.
fn quad_key(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 4> {
  return all_four(key4(row, at + (lane & 3u)));
}

// The quad's half of the piece of a row and of the next, two vec4s each.
fn two_halves(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 4> {
  let dim = at + 2u * quad_of(lane) + (lane & 1u);
  return all_four(value4(row + NEXT_ROW * ((lane >> 1u) & 1u), dim));
}
