// The step buffer. Order of header and records: kernels/step.rs. A kernel that uses this module
// declares `var<storage, read> step: array<u32>`.
const STEP_NUM_TOKENS = 0u;
const STEP_IDS = 3u;
const STEP_POSITIONS = 4u;
const STEP_SLOTS = 5u;
const STEP_SEQS = 6u;
const STEP_TILES = 7u;
const STEP_DECODES = 8u;
const STEP_ROWS = 9u;
const STEP_SAMPLES = 10u;
const STEP_COPIES = 11u;
const STEP_STATES = 12u;
const STEP_DRAWS = 13u;
const NO_SLOT = 0xffffffffu;
const SAMPLE_TOP_K = 4u;
const SAMPLE_TOP_P = 5u;
const SAMPLE_MIN_P = 6u;
const SAMPLE_FILTERS = 7u;

const SEQ_FIRST_TOKEN = 0u;
const SEQ_QUERIES = 1u;
const SEQ_CONTEXT = 2u;
const SEQ_TABLES = 3u;
const SEQ_PAGES = 4u;
const FROM_STATE = 0xffffffffu;
const NO_SEQ = 0xffffffffu;
const DRAW_ENDS = 6u;
const STATE_WORDS = 4u;
const STATE_LAST_TOKEN = 0u;
const STATE_CONTEXT = 1u;
const STATE_REMAINING = 2u;
const STATE_ACTIVE = 3u;

struct Seq {
  first_token: u32,
  queries: u32,
  context: u32,
  // Block tables, one a group.
  tables: u32,
  // Words of each.
  pages: u32,
}

fn step_token_id(token: u32) -> u32 { return step[step[STEP_IDS] + token]; }
fn step_position(token: u32) -> u32 { return step[step[STEP_POSITIONS] + token]; }
fn step_slot(group: u32, token: u32) -> u32 {
  return step[step[STEP_SLOTS] + group * step[STEP_NUM_TOKENS] + token];
}
fn step_row_token(row: u32) -> u32 { return step[step[STEP_ROWS] + row]; }
// Where a row's sampling record begins.
fn step_sample(row: u32) -> u32 { return step[STEP_SAMPLES] + 8u * row; }

// Where a row's draw begins.
fn step_draw(row: u32) -> u32 { return step[STEP_DRAWS] + 8u * row; }

// What is given of a sequence's state.
struct GivenState {
  context: u32,
  slot: u32,
  remaining: u32,
}

fn step_state(seq: u32) -> GivenState {
  let at = step[STEP_STATES] + 3u * seq;
  return GivenState(step[at], step[at + 1u], step[at + 2u]);
}

// Where a sequence's record begins.
fn step_seq_at(seq: u32) -> u32 { return step[STEP_SEQS] + 5u * seq; }

fn step_seq(seq: u32) -> Seq {
  let at = step_seq_at(seq);
  return Seq(step[at], step[at + 1u], step[at + 2u], step[at + 3u], step[at + 4u]);
}

// A sequence's block table in a group of layers.
fn step_table(seq: Seq, group: u32) -> u32 { return seq.tables + group * seq.pages; }

// (sequence, first query) of a prefill tile.
fn step_tile(tile: u32) -> vec2<u32> {
  let at = step[STEP_TILES] + 2u * tile;
  return vec2(step[at], step[at + 1u]);
}

// (sequence, query) of a decode query.
fn step_decode(item: u32) -> vec2<u32> {
  let at = step[STEP_DECODES] + 2u * item;
  return vec2(step[at], step[at + 1u]);
}

// (from page, to page) of a copy in a group of layers.
fn step_copy(group: u32, copy: u32) -> vec2<u32> {
  let at = step[step[STEP_COPIES] + group] + 2u * copy;
  return vec2(step[at], step[at + 1u]);
}
