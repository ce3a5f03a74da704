// Order of the pieces of a weight row: [piece in span][span], a span being 4 groups of 32, so that
// neighbouring lanes that own neighbouring spans read neighbouring words. The last span may be
// short: pieces it lacks take no room.
fn span_order(groups: u32, pieces_per_group: u32, piece: u32, span: u32) -> u32 {
  return piece * (groups >> 2u) + min(piece, pieces_per_group * (groups & 3u)) + span;
}

// Where what each group has once lies.
fn group_order(groups: u32, group: u32) -> u32 {
  return span_order(groups, 1u, group & 3u, group >> 2u);
}

// First word of a row's scale stream: planes of its codes' upper bits, then scales.
fn stream_row(row: u32, groups: u32) -> u32 {
  return row * (plane_words(groups) + scale_words(groups));
}

// First word of its scales.
fn scale_row(row: u32, groups: u32) -> u32 {
  return stream_row(row, groups) + plane_words(groups);
}

// The 16 bits numbered i from word base of the stream on; above them whatever follows.
fn stream_half(base: u32, i: u32) -> u32 {
  return ws[base + (i >> 1u)] >> (16u * (i & 1u));
}
