// What the sequences of drawn ids go on with, a workgroup a row. Grid: (rows).
// use: step

struct Params {
  first_row: u32,
}

@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
  let row = p.first_row + group.x;
  let draw = step_draw(row);
  let seq = step[draw];
  if (seq == NO_SEQ) { return; }
  let kept = STATE_WORDS * step_state(seq).slot;
  if (state[kept + STATE_ACTIVE] == 0u) { return; }
  let id = ids[row];
  let remaining = state[kept + STATE_REMAINING] - 1u;
  var ended = remaining == 0u;
  for (var i = 0u; i < min(step[draw + 1u], DRAW_ENDS); i++) {
    ended = ended || step[draw + 2u + i] == id;
  }
  state[kept + STATE_LAST_TOKEN] = id;
  state[kept + STATE_CONTEXT] = step[step_seq_at(seq) + SEQ_CONTEXT];
  state[kept + STATE_REMAINING] = remaining;
  state[kept + STATE_ACTIVE] = select(1u, 0u, ended);
}
