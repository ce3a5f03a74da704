// As epilogue_store, with a bias, and what y holds may be added to: the residual stream. Flags and not
// modules choose, so that one variant serves all; the `fma` leaves drivers no product to contract.
fn epilogue(token: u32, row: u32, value: f32, scale: f32) {
  let column = p.y_offset + row;
  var sum = 0.0;
  if (p.bias != 0u) { sum = bias[column]; }
  sum = fma(value, scale, sum);
  let at = token * p.y_stride + column;
  if (p.add != 0u) { sum = y[at] + sum; }
  y[at] = sum;
}
