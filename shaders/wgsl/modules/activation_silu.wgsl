// SiLU: x · sigmoid(x).
fn activation(x: vec4<f32>) -> vec4<f32> {
  return x / (1.0 + exp(-x));
}
