// Halves into the tiles of cooperative matrices: rows of a group of 32, and 16 bytes behind each that keep
// rows in different banks. A kernel that uses this module has `w_tile`, `x_tile`, `act` and `p`.
const PITCH = 40u;
// Groups of 32 in a span of 512.
const SPAN = 16u;

fn put_w(at: u32, v: vec4<f32>) {
  let h = vec4<f16>(v);
  w_tile[at] = h.x;
  w_tile[at + 1u] = h.y;
  w_tile[at + 2u] = h.z;
  w_tile[at + 3u] = h.w;
}

fn put_x(at: u32, word: u32) {
  let h = vec2<f16>(unpack2x16float(word));
  x_tile[at] = h.x;
  x_tile[at + 1u] = h.y;
}

// A row's group of weights; zeros behind its end, which change no bit of a sum.
fn put_weights(at: u32, row: u32, group: u32) {
  let inside = min(group, p.groups - 1u);
  let codes = group_codes(row, p.groups, inside);
  let scale = group_scale(row, p.groups, inside);
  for (var j = 0u; j < 8u; j++) {
    put_w(at + 4u * j, select(vec4<f32>(), widen4(codes[j], scale), group < p.groups));
  }
}

// A token's group of inputs, likewise.
fn put_inputs(at: u32, token: u32, group: u32) {
  let first = 4u * (token * p.act_stride + min(group, p.groups - 1u));
  for (var j = 0u; j < 4u; j++) {
    let x = select(vec4<u32>(), act[first + j], group < p.groups);
    put_x(at + 8u * j, x.x);
    put_x(at + 8u * j + 2u, x.y);
    put_x(at + 8u * j + 4u, x.z);
    put_x(at + 8u * j + 6u, x.w);
  }
}
