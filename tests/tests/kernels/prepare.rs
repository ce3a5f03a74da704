//! `prepare` and `sample_state` against their references and against what they are to be: states of
//! sequences through several steps.

use crate::step::step_buffer;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::step::{
    DRAWS, FROM_STATE, IDS, NO_SEQ, NO_SLOT, NUM_TOKENS, POSITIONS, SEQS, SLOTS, STATES,
};
use twoclock_shaders::kernels::{prepare, sample_state};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, gpu};

const GROUPS: u32 = 2;
const PAGE: u32 = 16;

/// A sequence of the step: number of queries, context or what the state has, slot, remaining.
type Seq = (u32, u32, u32, u32);

/// What a step leaves in its buffer and in the state, by either executor.
struct Step {
    words: Vec<u32>,
    seqs: Vec<Seq>,
    state: Vec<u32>,
}

impl Step {
    /// Tables of each sequence: pages 100 · sequence + 10 · group + 1 and so on, three a group.
    fn new(seqs: &[Seq], ids: &[u32], draws: &[[u32; 8]], state: &[u32]) -> Self {
        let (mut records, mut given) = (Vec::new(), Vec::new());
        let mut tables = Vec::new();
        let mut first = 0;
        for (number, &(queries, context, slot, remaining)) in seqs.iter().enumerate() {
            records.extend([first, queries, 0, tables.len() as u32, 3]);
            given.extend([context, slot, remaining]);
            let page = |group: u32| 100 * number as u32 + 10 * group;
            tables.extend((0..GROUPS).flat_map(|g| (1..4).map(move |p| page(g) + p)));
            first += queries;
        }
        let filled = vec![0xabcd; (first * (1 + GROUPS)) as usize];
        let (positions, slots) = filled.split_at(first as usize);
        let arrays = |records: &[u32]| {
            step_buffer(&[
                (IDS, ids),
                (SEQS, records),
                (STATES, &given),
                (DRAWS, draws.as_flattened()),
                (POSITIONS, positions),
                (SLOTS, slots),
            ])
        };
        let tables_at = arrays(&records).len() as u32;
        for record in records.chunks_exact_mut(5) {
            record[3] += tables_at;
        }
        let mut words = arrays(&records);
        words[NUM_TOKENS] = first;
        words.extend(tables);
        Self {
            words,
            seqs: seqs.to_vec(),
            state: state.to_vec(),
        }
    }

    /// Runs both kernels, the second over `drawn` from row `first_row` on; gives step and state.
    fn run(&self, drawn: &[u32], first_row: u32) -> (Vec<u32>, Vec<u32>) {
        let queries = self.seqs.iter().map(|seq| seq.0).max().unwrap_or(0);
        let case = Case {
            inputs: vec![
                self.words.clone().into(),
                self.state.clone().into(),
                drawn.to_vec().into(),
            ],
            dispatches: Box::new(move |b| {
                let params = prepare::PrepareParams {
                    groups: GROUPS,
                    block_size: PAGE,
                };
                let keep = sample_state::SampleStateParams { first_row };
                vec![
                    prepare::dispatch(params, CountId(0), CountId(1), b[0], b[1]),
                    sample_state::dispatch(keep, CountId(2), b[0], b[2], b[1]),
                ]
            }),
            counts: vec![
                queries,
                self.seqs.len() as u32,
                drawn.len() as u32 - first_row,
            ],
        };
        let words = |output: usize| {
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
            let expected: Vec<u32> = bits(case.run(&mut CpuExecutor::default(), output));
            let got: Vec<u32> = bits(case.run(&mut *gpu(), output));
            assert_eq!(got, expected, "buffer {output}");
            got
        };
        (words(0), words(1))
    }
}

fn draw(seq: u32, ends: &[u32]) -> [u32; 8] {
    let mut draw = [0; 8];
    draw[0] = seq;
    draw[1] = ends.len() as u32;
    draw[2..][..ends.len()].copy_from_slice(ends);
    draw
}

#[test]
fn states_go_on_from_step_to_step() {
    // Slot 2 holds leavings of another sequence.
    let mut state = vec![0; 16];
    state[8..12].copy_from_slice(&[99, 77, 0, 0]);
    let array = |words: &[u32], header: usize, n: usize| {
        let at = words[header] as usize;
        words[at..at + n].to_vec()
    };
    // A prompt of 40 tokens at once, more than half a workgroup; the end of another one; a chunk that
    // draws nothing.
    let ids: Vec<u32> = (1..=72).collect();
    let seqs = [(40, 40, 0, 3), (2, 18, 2, 9), (30, 47, 1, 5)];
    let draws = [draw(NO_SEQ, &[]), draw(0, &[7, 8]), draw(1, &[])];
    let step = Step::new(&seqs, &ids, &draws, &state);
    let (words, state) = step.run(&[50, 51, 52], 1);
    assert_eq!(array(&words, IDS, 72), ids);
    let positions: Vec<u32> = (0..40).chain(16..18).chain(17..47).collect();
    assert_eq!(array(&words, POSITIONS, 72), positions);
    let slots = array(&words, SLOTS, 2 * 72);
    assert_eq!(slots[..2], [16, 17]);
    assert_eq!(
        slots[39..43],
        [3 * 16 + 7, 102 * 16, 102 * 16 + 1, 202 * 16 + 1]
    );
    assert_eq!(slots[72..73], [11 * 16]);
    assert_eq!(state, [51, 40, 2, 1, 0, 47, 5, 1, 52, 18, 8, 1, 0, 0, 0, 0]);

    // All three go on by one token: two with what they drew, one with what is given.
    let seqs = [(1, FROM_STATE, 0, 0), (1, FROM_STATE, 2, 0), (1, 48, 1, 5)];
    let draws = [
        draw(0, &[7, 8]),
        draw(1, &[60]),
        draw(2, &[1, 2, 3, 4, 5, 6]),
    ];
    let step = Step::new(&seqs, &[FROM_STATE, FROM_STATE, 9], &draws, &state);
    let (words, state) = step.run(&[9, 60, 6], 0);
    assert_eq!(array(&words, IDS, 3), [51, 52, 9]);
    assert_eq!(array(&words, POSITIONS, 3), [40, 18, 47]);
    let at = words[SEQS] as usize;
    assert_eq!([words[at + 2], words[at + 7], words[at + 12]], [41, 19, 48]);
    assert_eq!(state[..12], [9, 41, 1, 1, 6, 48, 4, 0, 60, 19, 7, 0]);

    // One draws its last token, and those that ended write nothing and stay as they are.
    let seqs = [0, 2, 1].map(|slot| (1, FROM_STATE, slot, 0));
    let draws = [draw(0, &[]), draw(1, &[]), draw(2, &[])];
    let step = Step::new(&seqs, &[FROM_STATE; 3], &draws, &state);
    let (words, state) = step.run(&[33, 34, 35], 0);
    let slots = array(&words, SLOTS, 6);
    assert_eq!(
        slots,
        [3 * 16 + 9, NO_SLOT, NO_SLOT, 13 * 16 + 9, NO_SLOT, NO_SLOT]
    );
    assert_eq!(state[..12], [33, 42, 0, 0, 6, 48, 4, 0, 60, 19, 7, 0]);

    // A slot that another sequence has now begins anew.
    let step = Step::new(&[(1, 5, 2, 4)], &[3], &[draw(0, &[])], &state);
    let (_, state) = step.run(&[8], 0);
    assert_eq!(state[8..12], [8, 5, 3, 1]);
}
