// A matmul's input as [token][k / 4]: every row contiguous.
fn act_index(token: u32, k4: u32, stride: u32) -> u32 {
  return token * stride + k4;
}
