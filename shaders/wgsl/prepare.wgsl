// Ids, positions, slots and lengths of a step's sequences, a lane a token.
// Grid: (queries / 64, sequences).
// use: step

struct Params {
  groups: u32,
  block_size: u32,
}

@group(0) @binding(0) var<storage, read_write> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  // Of the record lane 0 writes the context, which no lane reads.
  let seq = step_seq_at(id.y);
  let queries = step[seq + SEQ_QUERIES];
  if (id.x >= queries) { return; }
  let given = step_state(id.y);
  let kept = STATE_WORDS * given.slot;
  var context = given.context;
  var goes_on = true;
  if (context == FROM_STATE) {
    context = state[kept + STATE_CONTEXT] + queries;
    goes_on = state[kept + STATE_ACTIVE] != 0u;
  } else if (id.x == 0u) {
    // What is given here no lane of the sequence reads.
    state[kept + STATE_CONTEXT] = context;
    state[kept + STATE_REMAINING] = given.remaining;
    state[kept + STATE_ACTIVE] = 1u;
  }
  if (id.x == 0u) { step[seq + SEQ_CONTEXT] = context; }

  let token = step[seq + SEQ_FIRST_TOKEN] + id.x;
  let position = context - queries + id.x;
  let id_at = step[STEP_IDS] + token;
  if (step[id_at] == FROM_STATE) { step[id_at] = state[kept + STATE_LAST_TOKEN]; }
  step[step[STEP_POSITIONS] + token] = position;
  let pages = step[seq + SEQ_PAGES];
  let page = position / p.block_size;
  for (var group = 0u; group < p.groups; group++) {
    var slot = NO_SLOT;
    if (goes_on && page < pages) {
      let block = step[step[seq + SEQ_TABLES] + group * pages + page];
      slot = block * p.block_size + position % p.block_size;
    }
    step[step[STEP_SLOTS] + group * step[STEP_NUM_TOKENS] + token] = slot;
  }
}
