// A matmul's input as [token][k / 4]: every row contiguous, of whole groups of 32.
alias ActOut = vec4<f32>;

// Stores n vectors, at most a group of 32, from vector at4 of a row on.
fn act_store(token: u32, at4: u32, stride: u32, x: array<vec4<f32>, 8>, n: u32) {
  let at = token * stride + at4;
  act_out[at] = x[0];
  if (n > 1u) { act_out[at + 1u] = x[1]; }
  if (n > 2u) { act_out[at + 2u] = x[2]; }
  if (n > 3u) { act_out[at + 3u] = x[3]; }
  if (n > 4u) { act_out[at + 4u] = x[4]; }
  if (n > 5u) { act_out[at + 5u] = x[5]; }
  if (n > 6u) { act_out[at + 6u] = x[6]; }
  if (n > 7u) { act_out[at + 7u] = x[7]; }
}
