// Sixteen bytes of a matmul's input in singles that begin with a sum of squares.
fn square_chunk(v: f32) -> ActOut { return vec4(v, 0.0, 0.0, 0.0); }
