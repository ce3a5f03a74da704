// GELU by its tanh approximation, x/2 · (1 + tanh u) with u = √(2/π) (x + 0.044715 x³), written as
// x · sigmoid(2 u): exact far out, where tanh overflows or cancels.
fn activation(x: vec4<f32>) -> vec4<f32> {
  let t = fma(x * x, vec4<f32>(0.07135481627), vec4<f32>(1.59576912161));
  return x / (1.0 + exp(-(x * t)));
}
