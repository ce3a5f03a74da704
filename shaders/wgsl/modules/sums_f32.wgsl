// Inputs of a group that are numbers, and their sum.
alias Sums = f32;

struct Input {
  x: Codes,
  s: Sums,
}

fn input_of(x: Codes) -> Input {
  var s = vec4<f32>() + x[0];
  s += x[1];
  s += x[2];
  s += x[3];
  s += x[4];
  s += x[5];
  s += x[6];
  s += x[7];
  return Input(x, join4(s));
}
