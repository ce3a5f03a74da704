// Sixteen bytes of a matmul's input in signed bytes that begin with a sum of squares.
fn square_chunk(v: f32) -> ActOut { return vec4(bitcast<u32>(v), 0u, 0u, 0u); }
