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
/// Header word: start of the token ids, one a token; [`FROM_STATE`] for the last one that the
/// sequence drew.
pub const IDS: usize = 3;
/// Header word: start of the positions, one a token: filled in by [`super::prepare`], beyond what is
/// uploaded.
pub const POSITIONS: usize = 4;
/// Header word: start of the slots, one a token, group of layers after group:
/// `block · block_size + offset`, [`NO_SLOT`] for a token that is not written. A group has as many as
/// [`NUM_TOKENS`] says. Filled in by [`super::prepare`], beyond what is uploaded.
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
/// Header word: start of what is given of the sequences' states, [`STATE_GIVEN_WORDS`] words each:
/// length of the context with this step's tokens, or [`FROM_STATE`]; slot of the state; tokens that
/// may still be drawn, by this step and later ones.
pub const STATES: usize = 12;
/// Header word: start of the draws, [`DRAW_WORDS`] words a row: sequence, or [`NO_SEQ`] for a row that
/// draws nothing; number of ids that end it, and those, [`DRAW_ENDS`] at most. A sequence that more
/// end is ended by the others only when the host sees them.
pub const DRAWS: usize = 13;

/// Words of a sequence record: token of its first query, number of queries, length of its context
/// with this step's tokens (filled in by [`super::prepare`]), start of its block tables (in words from the start of the buffer),
/// words of each of them. Tables of groups of layers follow each other.
/// Query `i` stands at position `context − queries + i` and sees keys up to its own position: all
/// of them, or the last ones of a window.
pub const SEQ_WORDS: usize = 5;
/// Words given of a sequence's state.
pub const STATE_GIVEN_WORDS: usize = 3;
/// Words of a draw.
pub const DRAW_WORDS: usize = 8;
/// Most ids of a draw that end its sequence.
pub const DRAW_ENDS: usize = DRAW_WORDS - 2;
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

/// Words of a sequence's state, which stays on the device from step to step: [`STATE_LAST_TOKEN`],
/// [`STATE_CONTEXT`], [`STATE_REMAINING`], [`STATE_ACTIVE`].
pub const STATE_WORDS: usize = 4;
/// Word of a state: the token drawn last.
pub const STATE_LAST_TOKEN: usize = 0;
/// Word: tokens in the cache.
pub const STATE_CONTEXT: usize = 1;
/// Word: tokens that may still be drawn.
pub const STATE_REMAINING: usize = 2;
/// Word: 0 once the sequence has ended.
pub const STATE_ACTIVE: usize = 3;

/// Instead of an id or a length: what the state has.
pub const FROM_STATE: u32 = u32::MAX;
/// Instead of a sequence: none.
pub const NO_SEQ: u32 = u32::MAX;
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
