//! The step buffer: one flat array of `u32` uploaded before each step, read by every kernel that
//! needs to know what the step computes. Owns the order of its header and of its records; the WGSL
//! side is `wgsl/modules/step.wgsl`.
//!
//! The header holds counts and where each array starts, in words from the start of the buffer, so
//! a step lays its arrays out as it likes.

/// Words of the header.
pub const HEADER: usize = 16;

/// Header word: tokens computed by the step.
pub const NUM_TOKENS: usize = 0;
/// Header word: sequences in the step.
pub const NUM_SEQS: usize = 1;
/// Header word: token rows that want logits.
pub const NUM_ROWS: usize = 2;
/// Header word: start of the token ids, one a token.
pub const IDS: usize = 3;
/// Header word: start of the positions, one a token.
pub const POSITIONS: usize = 4;
/// Header word: start of the slots, one a token, group of layers after group:
/// `block · block_size + offset`, [`NO_SLOT`] for a padded token. A group has as many as
/// [`NUM_TOKENS`] says.
pub const SLOTS: usize = 5;
/// Header word: start of the sequence records, [`SEQ_WORDS`] words each.
pub const SEQS: usize = 6;
/// Header word: start of the prefill tiles, [`ITEM_WORDS`] words each: sequence, first query of
/// the tile within the sequence's queries.
pub const TILES: usize = 7;
/// Header word: start of the decode queries, [`ITEM_WORDS`] words each: sequence, query within
/// the sequence's queries.
pub const DECODES: usize = 8;
/// Header word: start of the logits rows, one a row: the token whose logits are wanted.
pub const ROWS: usize = 9;
/// Header word: start of the sampling records, [`SAMPLE_WORDS`] words a row.
pub const SAMPLES: usize = 10;
/// Header word: start of the copies: for each group of layers the start of its own, in words from
/// the start of the buffer, then [`COPY_WORDS`] words each.
pub const COPIES: usize = 11;

/// Words of a sequence record: token of its first query, number of queries, length of its context
/// with this step's tokens, start of its block tables (in words from the start of the buffer),
/// words of each of them. Tables of groups of layers follow each other.
/// Query `i` stands at position `context − queries + i` and sees keys up to its own position: all
/// of them, or the last ones of a window.
pub const SEQ_WORDS: usize = 5;
/// Words of a prefill tile or decode query.
pub const ITEM_WORDS: usize = 2;
/// Words of a sampling record: temperature (f32 bits), seed low, seed high, position of the token
/// that is drawn, and what [`super::sample_scan`] reads: [`SAMPLE_TOP_K`], [`SAMPLE_TOP_P`],
/// [`SAMPLE_MIN_P`], [`SAMPLE_FILTERS`].
pub const SAMPLE_WORDS: usize = 8;
/// Word of a sampling record: how many of the largest logits are kept; 0 for all.
pub const SAMPLE_TOP_K: usize = 4;
/// Word: probability mass that is kept, in units of 2⁻³²; 0 for all.
pub const SAMPLE_TOP_P: usize = 5;
/// Word: how far under the largest a logit may be, as a negative f32; [`NO_MIN_P`] for any.
pub const SAMPLE_MIN_P: usize = 6;
/// Word: 1 if one of the three is asked for. Never where the temperature is 0.
pub const SAMPLE_FILTERS: usize = 7;
/// The distance that keeps every logit.
pub const NO_MIN_P: f32 = -3.4e38;

/// Words of a copy: page it is made of, page it is made to.
pub const COPY_WORDS: usize = 2;

/// The slot of a token that is written nowhere.
pub const NO_SLOT: u32 = u32::MAX;

/// Queries of one prefill tile.
pub const TILE_QUERIES: u32 = 8;
/// Keys that stand alone in attention: own maximum, own sums; aligned to absolute position.
pub const BLOCK_KEYS: u32 = 32;
/// Keys whose blocks merge into one part before parts merge.
pub const PART_KEYS: u32 = 256;

/// Where the sampling record of one of the step's rows begins, in words.
pub fn sample_record(step: &[u32], row: u32) -> usize {
    step[SAMPLES] as usize + SAMPLE_WORDS * row as usize
}
