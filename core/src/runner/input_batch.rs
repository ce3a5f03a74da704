//! A step's sequences as the step buffer's words: ids, sequence records, attention work, logits rows,
//! sampling records and block tables, and room for what the device fills in. Knows the order of
//! [`twoclock_shaders::kernels::step`], no model and no device.

use super::filters::Filters;
use crate::model::workspace::kernel_window;
use crate::model::{self, DECODES, QUERIES, SEQS, TILES, TOKENS, merges, num_counts, parts};
use crate::sched::{
    BlockCopy, KvGroupSpec, PLACEHOLDER_TOKEN, ScheduledSequence, SchedulerConfig, SchedulerOutput,
};
use crate::types::SamplingParams;
use twoclock_shaders::kernels::attention_decode::parts_of;
use twoclock_shaders::kernels::step::{
    self, COPY_WORDS, DRAW_ENDS, DRAW_WORDS, FROM_STATE, HEADER, ITEM_WORDS, NO_SEQ, SAMPLE_WORDS,
    SEQ_WORDS, STATE_GIVEN_WORDS, TILE_QUERIES,
};

/// One row of logits the step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogitsRow {
    /// Index into [`SchedulerOutput::scheduled`].
    pub sequence: usize,
    /// What it is for.
    pub purpose: RowPurpose,
}

/// What a row of logits is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPurpose {
    /// The log-probability of the sequence's prompt target of that index.
    PromptLogprob(usize),
    /// Drawing a token.
    Sample,
}

// Who knows nothing of an id leaves it to the device.
const _: () = assert!(PLACEHOLDER_TOKEN == FROM_STATE);

/// A step, laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBatch {
    /// The step buffer, as far as it is uploaded.
    pub words: Vec<u32>,
    /// Words of all of it: the device fills in those behind.
    pub num_words: usize,
    /// Counts by [`CountId`](twoclock_shaders::program::CountId); the head's rows stay 0.
    pub counts: Vec<u32>,
    /// Rows of logits, in order.
    pub rows: Vec<LogitsRow>,
}

/// Which queries go to the split decode kernel; the others go to prefill tiles. The two give the
/// same bits, so this is a matter of speed and scratch memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeSplit {
    /// Most queries of one sequence.
    pub sequence: usize,
    /// Most queries of a step: what there is scratch for.
    pub step: usize,
}

impl InputBatch {
    /// Lays a step out for a model of these groups; `slots` says where the state of each sequence is.
    pub fn new(
        output: &SchedulerOutput,
        slots: &[u32],
        groups: &[KvGroupSpec],
        split: DecodeSplit,
    ) -> Self {
        let mut arrays = Arrays {
            groups: groups.iter().map(GroupArrays::new).collect(),
            ..Arrays::default()
        };
        for (sequence, (scheduled, slot)) in output.scheduled.iter().zip(slots).enumerate() {
            arrays.push(sequence, scheduled, *slot, split);
        }
        arrays.finish(output.scheduled.len(), &output.block_copies)
    }

    /// Most words a step under these limits takes for a model of so many groups.
    pub fn max_words(config: &SchedulerConfig, groups: usize) -> usize {
        let tokens = config.max_num_batched_tokens;
        let seqs = config.max_num_seqs.min(tokens);
        // ids, positions, rows and slots; a prefill tile or decode query a token at most.
        let per_token = 3 + groups + ITEM_WORDS + SAMPLE_WORDS + DRAW_WORDS;
        // A sequence goes on in one page a group, which may have to be copied.
        let tables = groups * (config.blocks_for(config.max_model_len) + COPY_WORDS);
        HEADER + groups + tokens * per_token + seqs * (SEQ_WORDS + STATE_GIVEN_WORDS + tables)
    }
}

#[derive(Default)]
struct Arrays {
    ids: Vec<u32>,
    seqs: Vec<u32>,
    states: Vec<u32>,
    /// The most tokens of a sequence.
    queries: u32,
    tiles: Vec<u32>,
    decodes: Vec<u32>,
    row_tokens: Vec<u32>,
    samples: Vec<u32>,
    draws: Vec<u32>,
    tables: Vec<u32>,
    rows: Vec<LogitsRow>,
    groups: Vec<GroupArrays>,
}

/// What differs from group to group.
struct GroupArrays {
    /// As kernels take it.
    window: u32,
    parts: u32,
}

impl GroupArrays {
    fn new(group: &KvGroupSpec) -> Self {
        Self {
            window: kernel_window(group),
            parts: 0,
        }
    }
}

impl Arrays {
    fn push(
        &mut self,
        sequence: usize,
        scheduled: &ScheduledSequence,
        slot: u32,
        split: DecodeSplit,
    ) {
        let first_token = self.ids.len() as u32;
        let queries = scheduled.num_scheduled_tokens();
        let start = scheduled.num_computed_tokens;
        let context = scheduled.end_position();
        self.ids.extend_from_slice(&scheduled.token_ids);
        self.queries = self.queries.max(queries as u32);
        let remaining = scheduled.sampling.num_remaining_tokens;
        self.states.extend(match scheduled.awaits_token() {
            true => [FROM_STATE, slot, 0],
            false => [
                context as u32,
                slot,
                u32::try_from(remaining).unwrap_or(u32::MAX),
            ],
        });
        let pages = scheduled
            .block_tables
            .iter()
            .map(Vec::len)
            .max()
            .unwrap_or(0);
        self.seqs.extend([
            first_token,
            queries as u32,
            context as u32,
            // From the start of the tables; made absolute when they are placed.
            self.tables.len() as u32,
            pages as u32,
        ]);
        for table in &scheduled.block_tables {
            self.tables.extend_from_slice(&table[..pages]);
        }
        let sequence_word = sequence as u32;
        let decodes = self.decodes.len() / ITEM_WORDS + queries;
        if queries <= split.sequence && decodes <= split.step {
            for query in 0..queries as u32 {
                self.decodes.extend([sequence_word, query]);
            }
            for group in &mut self.groups {
                for keys in start as u32 + 1..=context as u32 {
                    group.parts = group.parts.max(parts_of(keys, group.window));
                }
            }
        } else {
            for query in (0..queries as u32).step_by(TILE_QUERIES as usize) {
                self.tiles.extend([sequence_word, query]);
            }
        }
        for target in 0..scheduled.prompt_logprob_targets.len() {
            let purpose = RowPurpose::PromptLogprob(target);
            let token = first_token + target as u32;
            self.push_row(sequence, scheduled, purpose, token, start + target + 1);
        }
        if scheduled.samples {
            let token = first_token + queries as u32 - 1;
            self.push_row(sequence, scheduled, RowPurpose::Sample, token, context);
        }
    }

    fn push_row(
        &mut self,
        sequence: usize,
        scheduled: &ScheduledSequence,
        purpose: RowPurpose,
        token: u32,
        // Of the token that follows.
        position: usize,
    ) {
        let sampling = &scheduled.sampling;
        let (params, seed) = match purpose {
            RowPurpose::Sample => (&*sampling.params, sampling.seed),
            RowPurpose::PromptLogprob(_) => (&SamplingParams::default(), 0),
        };
        let filters = Filters::of(params);
        self.rows.push(LogitsRow { sequence, purpose });
        self.row_tokens.push(token);
        self.samples.extend([
            params.temperature.to_bits(),
            seed as u32,
            (seed >> 32) as u32,
            position as u32,
            filters.top_k,
            filters.top_p,
            filters.min_p,
            u32::from(filters.any),
        ]);
        let mut draw = [0; DRAW_WORDS];
        draw[0] = NO_SEQ;
        if purpose == RowPurpose::Sample {
            let ends = &sampling.stop_ids[..sampling.stop_ids.len().min(DRAW_ENDS)];
            draw[0] = sequence as u32;
            draw[1] = ends.len() as u32;
            draw[2..][..ends.len()].copy_from_slice(ends);
        }
        self.draws.extend(draw);
    }

    fn finish(mut self, num_seqs: usize, copies: &[BlockCopy]) -> InputBatch {
        let mut counts = vec![0; num_counts(self.groups.len())];
        counts[TOKENS.0] = self.ids.len() as u32;
        counts[SEQS.0] = num_seqs as u32;
        counts[QUERIES.0] = self.queries;
        counts[TILES.0] = (self.tiles.len() / ITEM_WORDS) as u32;
        counts[DECODES.0] = (self.decodes.len() / ITEM_WORDS) as u32;
        for (number, group) in self.groups.iter().enumerate() {
            counts[parts(number).0] = group.parts;
            counts[merges(number).0] = match group.parts {
                0 | 1 => 0,
                _ => counts[DECODES.0],
            };
        }
        let of_group = |group: usize| copies.iter().filter(move |copy| copy.group == group);
        for number in 0..self.groups.len() {
            counts[model::copies(number).0] = of_group(number).count() as u32;
        }
        let mut words = vec![0; HEADER];
        words[step::NUM_TOKENS] = self.ids.len() as u32;
        words[step::NUM_SEQS] = num_seqs as u32;
        words[step::NUM_ROWS] = self.rows.len() as u32;
        let tables_at = HEADER
            + self.ids.len()
            + self.seqs.len()
            + self.states.len()
            + self.tiles.len()
            + self.decodes.len()
            + self.row_tokens.len()
            + self.samples.len()
            + self.draws.len()
            + self.groups.len()
            + copies.len() * COPY_WORDS;
        for record in self.seqs.chunks_exact_mut(SEQ_WORDS) {
            record[3] += tables_at as u32;
        }
        for (header, array) in [
            (step::IDS, &self.ids),
            (step::SEQS, &self.seqs),
            (step::STATES, &self.states),
            (step::TILES, &self.tiles),
            (step::DECODES, &self.decodes),
            (step::ROWS, &self.row_tokens),
            (step::SAMPLES, &self.samples),
            (step::DRAWS, &self.draws),
        ] {
            words[header] = words.len() as u32;
            words.extend_from_slice(array);
        }
        words[step::COPIES] = words.len() as u32;
        let mut first = words.len() + self.groups.len();
        for number in 0..self.groups.len() {
            words.push(first as u32);
            first += of_group(number).count() * COPY_WORDS;
        }
        for number in 0..self.groups.len() {
            words.extend(of_group(number).flat_map(|copy| [copy.src, copy.dst]));
        }
        debug_assert_eq!(words.len(), tables_at);
        words.extend_from_slice(&self.tables);
        words[step::POSITIONS] = words.len() as u32;
        words[step::SLOTS] = (words.len() + self.ids.len()) as u32;
        InputBatch {
            num_words: words.len() + self.ids.len() * (1 + self.groups.len()),
            words,
            counts,
            rows: self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{RequestId, SamplingInputs};
    use std::sync::Arc;

    fn sequence(id: u64, start: usize, ids: &[u32], table: &[u32]) -> ScheduledSequence {
        ScheduledSequence {
            request_id: RequestId(id),
            token_ids: ids.to_vec(),
            num_computed_tokens: start,
            block_tables: vec![
                table.to_vec(),
                table.iter().map(|block| 100 + block).collect(),
            ],
            samples: true,
            sampling: SamplingInputs {
                stop_ids: [2; 9].into(),
                num_remaining_tokens: 6,
                seed: 0x1_0000_0002,
                params: Arc::new(SamplingParams {
                    temperature: 0.5,
                    top_k: 40,
                    top_p: 0.75,
                    min_p: 0.25,
                    ..SamplingParams::default()
                }),
                ..SamplingInputs::default()
            },
            prompt_logprob_targets: Vec::new(),
            pooling: None,
        }
    }

    #[test]
    fn a_mixed_step_lies_where_the_header_says() {
        let table: Vec<u32> = (1..=10).collect();
        let output = SchedulerOutput {
            scheduled: vec![
                sequence(0, 300, &[PLACEHOLDER_TOKEN], &table),
                sequence(1, 30, &[11; 12], &[20, 21]),
            ],
            block_copies: [(1, 5, 120), (0, 6, 20), (1, 7, 130)]
                .map(|(group, src, dst)| BlockCopy { group, src, dst })
                .to_vec(),
            ..SchedulerOutput::default()
        };
        let groups = [None, Some(45)].map(|window| KvGroupSpec {
            layers: vec![0],
            window,
        });
        let batch = |step| {
            let split = DecodeSplit { sequence: 4, step };
            InputBatch::new(&output, &[7, 3], &groups, split)
        };
        // No scratch, so all are tiles.
        let counts = [13, 0, 3, 0, 0, 0, 0, 0, 0, 2, 12, 0, 0, 1, 0, 0, 2];
        assert_eq!(batch(0).counts, counts);
        let batch = batch(1);
        // The query at 300 sees two parts; of the window's keys, 256 to 300, the second.
        let counts = [13, 0, 2, 1, 0, 0, 0, 0, 0, 2, 12, 2, 1, 1, 1, 0, 2];
        assert_eq!(batch.counts, counts);
        assert_eq!(batch.words[step::NUM_TOKENS], 13);
        let array = |header: usize, n: usize| &batch.words[batch.words[header] as usize..][..n];
        assert_eq!(array(step::IDS, 2), [FROM_STATE, 11]);
        assert_eq!(array(step::STATES, 6), [FROM_STATE, 7, 0, 42, 3, 6]);
        let draw = [1, DRAW_ENDS as u32, 2, 2, 2, 2, 2, 2];
        assert_eq!(array(step::DRAWS, 16)[8..], draw);
        // What the device fills in comes behind what is uploaded.
        let uploaded = batch.words.len();
        assert_eq!(batch.words[step::POSITIONS] as usize, uploaded);
        assert_eq!(batch.words[step::SLOTS] as usize, uploaded + 13);
        assert_eq!(batch.num_words, uploaded + 3 * 13);
        assert_eq!(array(step::TILES, 4), [1, 0, 1, 8]);
        assert_eq!(array(step::DECODES, 2), [0, 0]);
        assert_eq!(array(step::ROWS, 2), [0, 12]);
        let gap = (0.5 * 0.25f64.ln()) as f32;
        let record = [0.5f32.to_bits(), 2, 1, 301, 40, 3 << 30, gap.to_bits(), 1];
        assert_eq!(array(step::SAMPLES, SAMPLE_WORDS), record);
        let at = batch.words[step::COPIES];
        assert_eq!(
            array(step::COPIES, 8),
            [at + 2, at + 4, 6, 20, 5, 120, 7, 130]
        );
        let second = &array(step::SEQS, 2 * SEQ_WORDS)[SEQ_WORDS..];
        assert_eq!(second[..3], [1, 12, 42]);
        assert_eq!(second[4], 2);
        assert_eq!(batch.words[second[3] as usize..], [20, 21, 120, 121]);
        let config = SchedulerConfig {
            max_num_seqs: 2,
            max_num_batched_tokens: 13,
            max_model_len: 320,
            ..SchedulerConfig::default()
        };
        assert!(batch.num_words <= InputBatch::max_words(&config, 2));
    }
}
