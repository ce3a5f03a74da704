// Order of the pieces of a weight row: [piece in span][span], a span being 4 groups of 32, so that
// neighbouring lanes that own neighbouring spans read neighbouring words. The last span may be
// short: pieces it lacks take no room.
fn span_order(groups: u32, pieces_per_group: u32, piece: u32, span: u32) -> u32 {
  return piece * (groups >> 2u) + min(piece, pieces_per_group * (groups & 3u)) + span;
}
