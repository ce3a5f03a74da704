//! A step's sequences as the step buffer's words: ids, positions, slots, sequence records, attention
//! work, logits rows, sampling records and block tables. Knows the order of
//! [`twoclock_shaders::kernels::step`], no model and no device.

use crate::model::{DECODES, NUM_COUNTS, PARTS, TILES, TOKENS};
use crate::sched::{ScheduledSequence, SchedulerConfig, SchedulerOutput};
use twoclock_shaders::kernels::step::{
    self, HEADER, ITEM_WORDS, PART_KEYS, SAMPLE_WORDS, SEQ_WORDS, TILE_QUERIES,
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

/// A step, laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBatch {
    /// The step buffer.
    pub words: Vec<u32>,
    /// Counts by [`CountId`](twoclock_shaders::program::CountId); the head's rows stay 0.
    pub counts: [u32; NUM_COUNTS],
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
    /// Lays a step out.
    pub fn new(output: &SchedulerOutput, block_size: usize, split: DecodeSplit) -> Self {
        let mut arrays = Arrays::default();
        for (sequence, scheduled) in output.scheduled.iter().enumerate() {
            arrays.push(sequence, scheduled, block_size, split);
        }
        arrays.finish(output.scheduled.len())
    }

    /// Most words a step under these limits takes.
    pub fn max_words(config: &SchedulerConfig) -> usize {
        let tokens = config.max_num_batched_tokens;
        let seqs = config.max_num_seqs.min(tokens);
        // ids, positions, slots and rows; a prefill tile or decode query a token at most.
        let per_token = 4 + ITEM_WORDS + SAMPLE_WORDS;
        HEADER + tokens * per_token + seqs * (SEQ_WORDS + config.blocks_for(config.max_model_len))
    }
}

#[derive(Default)]
struct Arrays {
    ids: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    seqs: Vec<u32>,
    tiles: Vec<u32>,
    decodes: Vec<u32>,
    row_tokens: Vec<u32>,
    samples: Vec<u32>,
    tables: Vec<u32>,
    rows: Vec<LogitsRow>,
    parts: u32,
}

impl Arrays {
    fn push(
        &mut self,
        sequence: usize,
        scheduled: &ScheduledSequence,
        block_size: usize,
        split: DecodeSplit,
    ) {
        let first_token = self.ids.len() as u32;
        let queries = scheduled.num_scheduled_tokens();
        let start = scheduled.num_computed_tokens;
        let context = scheduled.end_position();
        // One group of layers shares one table today.
        let table = &scheduled.block_tables[0];
        self.ids.extend_from_slice(&scheduled.token_ids);
        for position in start..context {
            self.positions.push(position as u32);
            let block = table[position / block_size];
            self.slots
                .push(block * block_size as u32 + (position % block_size) as u32);
        }
        self.seqs.extend([
            first_token,
            queries as u32,
            context as u32,
            // From the start of the tables; made absolute when they are placed.
            self.tables.len() as u32,
            table.len() as u32,
        ]);
        self.tables.extend_from_slice(table);
        let sequence_word = sequence as u32;
        let decodes = self.decodes.len() / ITEM_WORDS + queries;
        if queries <= split.sequence && decodes <= split.step {
            for query in 0..queries as u32 {
                self.decodes.extend([sequence_word, query]);
            }
            self.parts = self.parts.max((context as u32).div_ceil(PART_KEYS));
        } else {
            for query in (0..queries as u32).step_by(TILE_QUERIES as usize) {
                self.tiles.extend([sequence_word, query]);
            }
        }
        for target in 0..scheduled.prompt_logprob_targets.len() {
            let purpose = RowPurpose::PromptLogprob(target);
            self.push_row(sequence, scheduled, purpose, first_token + target as u32);
        }
        if scheduled.samples {
            let token = first_token + queries as u32 - 1;
            self.push_row(sequence, scheduled, RowPurpose::Sample, token);
        }
    }

    fn push_row(
        &mut self,
        sequence: usize,
        scheduled: &ScheduledSequence,
        purpose: RowPurpose,
        token: u32,
    ) {
        let sampling = &scheduled.sampling;
        let temperature = match purpose {
            RowPurpose::Sample => sampling.temperature,
            RowPurpose::PromptLogprob(_) => 0.0,
        };
        self.rows.push(LogitsRow { sequence, purpose });
        self.row_tokens.push(token);
        self.samples.extend([
            temperature.to_bits(),
            sampling.seed as u32,
            (sampling.seed >> 32) as u32,
            self.positions[token as usize] + 1,
        ]);
    }

    fn finish(mut self, num_seqs: usize) -> InputBatch {
        let mut counts = [0; NUM_COUNTS];
        counts[TOKENS.0] = self.ids.len() as u32;
        counts[TILES.0] = (self.tiles.len() / ITEM_WORDS) as u32;
        counts[DECODES.0] = (self.decodes.len() / ITEM_WORDS) as u32;
        counts[PARTS.0] = self.parts;

        let mut words = vec![0; HEADER];
        words[step::NUM_TOKENS] = self.ids.len() as u32;
        words[step::NUM_SEQS] = num_seqs as u32;
        words[step::NUM_ROWS] = self.rows.len() as u32;
        let tables_at = HEADER
            + self.ids.len()
            + self.positions.len()
            + self.slots.len()
            + self.seqs.len()
            + self.tiles.len()
            + self.decodes.len()
            + self.row_tokens.len()
            + self.samples.len();
        for record in self.seqs.chunks_exact_mut(SEQ_WORDS) {
            record[3] += tables_at as u32;
        }
        for (header, array) in [
            (step::IDS, &self.ids),
            (step::POSITIONS, &self.positions),
            (step::SLOTS, &self.slots),
            (step::SEQS, &self.seqs),
            (step::TILES, &self.tiles),
            (step::DECODES, &self.decodes),
            (step::ROWS, &self.row_tokens),
            (step::SAMPLES, &self.samples),
        ] {
            words[header] = words.len() as u32;
            words.extend_from_slice(array);
        }
        debug_assert_eq!(words.len(), tables_at);
        words.extend_from_slice(&self.tables);
        InputBatch {
            words,
            counts,
            rows: self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::SamplingInputs;
    use crate::types::RequestId;

    fn sequence(id: u64, start: usize, ids: &[u32], table: &[u32]) -> ScheduledSequence {
        ScheduledSequence {
            request_id: RequestId(id),
            token_ids: ids.to_vec(),
            num_computed_tokens: start,
            block_tables: vec![table.to_vec()],
            samples: true,
            sampling: SamplingInputs {
                temperature: 0.5,
                seed: 0x1_0000_0002,
                logprobs: None,
            },
            prompt_logprob_targets: Vec::new(),
        }
    }

    #[test]
    fn a_mixed_step_lies_where_the_header_says() {
        let output = SchedulerOutput {
            scheduled: vec![
                sequence(0, 300, &[7], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
                sequence(1, 30, &[11; 12], &[20, 21]),
            ],
            ..SchedulerOutput::default()
        };
        let split = |step| DecodeSplit { sequence: 4, step };
        let batch = InputBatch::new(&output, 32, split(1));
        assert_eq!(batch.counts, [13, 0, 2, 1, 2]);
        let array = |header: usize, n: usize| &batch.words[batch.words[header] as usize..][..n];
        assert_eq!(array(step::IDS, 2), [7, 11]);
        assert_eq!(array(step::POSITIONS, 4), [300, 30, 31, 32]);
        assert_eq!(array(step::SLOTS, 4), [332, 670, 671, 672]);
        assert_eq!(array(step::TILES, 4), [1, 0, 1, 8]);
        assert_eq!(array(step::DECODES, 2), [0, 0]);
        assert_eq!(array(step::ROWS, 2), [0, 12]);
        assert_eq!(array(step::SAMPLES, 4), [0.5f32.to_bits(), 2, 1, 301]);
        let second = &array(step::SEQS, 2 * SEQ_WORDS)[SEQ_WORDS..];
        assert_eq!(second[..3], [1, 12, 42]);
        assert_eq!(second[4], 2);
        assert_eq!(batch.words[second[3] as usize..], [20, 21]);
        let config = SchedulerConfig {
            max_num_seqs: 2,
            max_num_batched_tokens: 13,
            max_model_len: 320,
            ..SchedulerConfig::default()
        };
        assert!(batch.words.len() <= InputBatch::max_words(&config));

        // Without scratch for it, a decode query is a tile.
        let counts = InputBatch::new(&output, 32, split(0)).counts;
        assert_eq!(counts, [13, 0, 3, 0, 0]);
    }
}
