// The chain of attention, shared by every body so that all give the same bits: pieces of 16 dims
// to a score, keys to a block, blocks to a part, parts to the result. Written down in
// kernels/attention.rs. Wherever a product feeds a sum there is an explicit fma, and a product
// that must be rounded by itself feeds only an fma's addend.
//
// A kernel that uses this module has HEAD_DIM, BLOCK_KEYS and PART_KEYS in its key, and `p.window`.
const D4 = HEAD_DIM / 4u;
// Keys that lie in one page, whatever the page size.
const RUN_KEYS = 16u;
const NO_MAX = -1e30;

fn join(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

// First position that a query sees: that of a window of p.window keys, its own included, if any.
fn first_seen(position: u32) -> u32 {
  // Without a window 0 - 1 is larger than any position.
  return select(0u, position + 1u - p.window, p.window - 1u < position);
}

// Parts of a query of `keys` keys of which it sees something.
fn part_count(keys: u32) -> u32 {
  return (keys + PART_KEYS - 1u) / PART_KEYS - first_seen(keys - 1u) / PART_KEYS;
}

// Maximum of two states, and the factors of the first and the second.
struct Merge {
  m: f32,
  e_old: f32,
  e_new: f32,
}

fn merge_states(m: f32, m_new: f32) -> Merge {
  let top = max(m, m_new);
  return Merge(top, exp(m - top), exp(m_new - top));
}

fn merge_sum(merge: vec2<f32>, l: f32, l_new: f32) -> f32 {
  return fma(l, merge.x, l_new * merge.y);
}

fn merge_values(merge: vec2<f32>, o: vec4<f32>, o_new: vec4<f32>) -> vec4<f32> {
  return fma(o, vec4(merge.x), o_new * merge.y);
}
