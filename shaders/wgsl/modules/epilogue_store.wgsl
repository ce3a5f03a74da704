// What becomes of an element that is done: scaled, it is stored. A body calls it once for each element
// inside the matrix, with the token (or pair) and the row; a workgroup's rows begin at a multiple of
// LEAST_ROWS.
fn epilogue(token: u32, row: u32, value: f32, scale: f32) {
  y[token * p.y_stride + p.y_offset + row] = value * scale;
}
