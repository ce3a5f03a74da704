//! A step's sequences as the step buffer's words: ids, positions, slots, sequence records, attention
//! work, logits rows, sampling records and block tables. Knows the order of
//! [`twoclock_shaders::kernels::step`], no model and no device.

use crate::model::workspace::kernel_window;
use crate::model::{self, DECODES, TILES, TOKENS, num_counts, parts};
use crate::sched::{BlockCopy, KvGroupSpec, ScheduledSequence, SchedulerConfig, SchedulerOutput};
use crate::types::SamplingParams;
use twoclock_shaders::kernels::attention_decode::parts_of;
use twoclock_shaders::kernels::step::{
    self, COPY_WORDS, HEADER, ITEM_WORDS, SAMPLE_WORDS, SEQ_WORDS, TILE_QUERIES,
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

/// Which tokens a row is drawn from, as the words of its sampling record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// 0 for all.
    pub top_k: u32,
    /// In units of 2⁻³²; 0 for all.
    pub top_p: u32,
    /// How far under the largest logit, f32 bits.
    pub min_p: u32,
    /// One of them drops tokens.
    pub any: bool,
}

impl Filters {
    /// What these parameters ask for.
    pub fn of(params: &SamplingParams) -> Self {
        let none = Self {
            min_p: step::NO_MIN_P.to_bits(),
            ..Self::default()
        };
        if params.temperature == 0.0 {
            return none;
        }
        let mut filters = none;
        filters.top_k = u32::try_from(params.top_k).unwrap_or(u32::MAX);
        if params.top_p < 1.0 {
            // What rounds to nothing still keeps the largest.
            filters.top_p = ((f64::from(params.top_p) * 2f64.powi(32)) as u32).max(1);
        }
        if params.min_p > 0.0 {
            let gap = f64::from(params.temperature) * f64::from(params.min_p).ln();
            filters.min_p = (gap as f32).max(step::NO_MIN_P).to_bits();
        }
        filters.any = filters != none;
        filters
    }
}

/// A step, laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBatch {
    /// The step buffer.
    pub words: Vec<u32>,
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
    /// Lays a step out for a model of these groups.
    pub fn new(
        output: &SchedulerOutput,
        groups: &[KvGroupSpec],
        block_size: usize,
        split: DecodeSplit,
    ) -> Self {
        let mut arrays = Arrays {
            groups: groups.iter().map(GroupArrays::new).collect(),
            ..Arrays::default()
        };
        for (sequence, scheduled) in output.scheduled.iter().enumerate() {
            arrays.push(sequence, scheduled, block_size, split);
        }
        arrays.finish(output.scheduled.len(), &output.block_copies)
    }

    /// Most words a step under these limits takes for a model of so many groups.
    pub fn max_words(config: &SchedulerConfig, groups: usize) -> usize {
        let tokens = config.max_num_batched_tokens;
        let seqs = config.max_num_seqs.min(tokens);
        // ids, positions, rows and slots; a prefill tile or decode query a token at most.
        let per_token = 3 + groups + ITEM_WORDS + SAMPLE_WORDS;
        // A sequence goes on in one page a group, which may have to be copied.
        let tables = groups * (config.blocks_for(config.max_model_len) + COPY_WORDS);
        HEADER + groups + tokens * per_token + seqs * (SEQ_WORDS + tables)
    }
}

#[derive(Default)]
struct Arrays {
    ids: Vec<u32>,
    positions: Vec<u32>,
    seqs: Vec<u32>,
    tiles: Vec<u32>,
    decodes: Vec<u32>,
    row_tokens: Vec<u32>,
    samples: Vec<u32>,
    tables: Vec<u32>,
    rows: Vec<LogitsRow>,
    groups: Vec<GroupArrays>,
}

/// What differs from group to group.
struct GroupArrays {
    /// As kernels take it.
    window: u32,
    slots: Vec<u32>,
    parts: u32,
}

impl GroupArrays {
    fn new(group: &KvGroupSpec) -> Self {
        Self {
            window: kernel_window(group),
            slots: Vec::new(),
            parts: 0,
        }
    }
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
        self.ids.extend_from_slice(&scheduled.token_ids);
        self.positions.extend(start as u32..context as u32);
        for (group, table) in self.groups.iter_mut().zip(&scheduled.block_tables) {
            group.slots.extend((start..context).map(|position| {
                let block = table[position / block_size];
                block * block_size as u32 + (position % block_size) as u32
            }));
        }
        let pages = context.div_ceil(block_size);
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
        let params = match purpose {
            RowPurpose::Sample => &sampling.params,
            RowPurpose::PromptLogprob(_) => &SamplingParams::default(),
        };
        let filters = Filters::of(params);
        self.rows.push(LogitsRow { sequence, purpose });
        self.row_tokens.push(token);
        self.samples.extend([
            params.temperature.to_bits(),
            params.seed as u32,
            (params.seed >> 32) as u32,
            self.positions[token as usize] + 1,
            filters.top_k,
            filters.top_p,
            filters.min_p,
            u32::from(filters.any),
        ]);
    }

    fn finish(mut self, num_seqs: usize, copies: &[BlockCopy]) -> InputBatch {
        let mut counts = vec![0; num_counts(self.groups.len())];
        counts[TOKENS.0] = self.ids.len() as u32;
        counts[TILES.0] = (self.tiles.len() / ITEM_WORDS) as u32;
        counts[DECODES.0] = (self.decodes.len() / ITEM_WORDS) as u32;
        for (number, group) in self.groups.iter().enumerate() {
            counts[parts(number).0] = group.parts;
        }
        let of_group = |group: usize| copies.iter().filter(move |copy| copy.group == group);
        for number in 0..self.groups.len() {
            counts[model::copies(number).0] = of_group(number).count() as u32;
        }
        let groups = self.groups.iter();
        let slots: Vec<u32> = groups.flat_map(|group| &group.slots).copied().collect();

        let mut words = vec![0; HEADER];
        words[step::NUM_TOKENS] = self.ids.len() as u32;
        words[step::NUM_SEQS] = num_seqs as u32;
        words[step::NUM_ROWS] = self.rows.len() as u32;
        let tables_at = HEADER
            + self.ids.len()
            + self.positions.len()
            + slots.len()
            + self.seqs.len()
            + self.tiles.len()
            + self.decodes.len()
            + self.row_tokens.len()
            + self.samples.len()
            + self.groups.len()
            + copies.len() * COPY_WORDS;
        for record in self.seqs.chunks_exact_mut(SEQ_WORDS) {
            record[3] += tables_at as u32;
        }
        for (header, array) in [
            (step::IDS, &self.ids),
            (step::POSITIONS, &self.positions),
            (step::SLOTS, &slots),
            (step::SEQS, &self.seqs),
            (step::TILES, &self.tiles),
            (step::DECODES, &self.decodes),
            (step::ROWS, &self.row_tokens),
            (step::SAMPLES, &self.samples),
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
                params: Arc::new(SamplingParams {
                    temperature: 0.5,
                    top_k: 40,
                    top_p: 0.75,
                    min_p: 0.25,
                    seed: 0x1_0000_0002,
                    ..SamplingParams::default()
                }),
                history: None,
                mask: None,
            },
            prompt_logprob_targets: Vec::new(),
            pooling: None,
        }
    }

    #[test]
    fn a_mixed_step_lies_where_the_header_says() {
        let output = SchedulerOutput {
            scheduled: vec![
                sequence(0, 300, &[7], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
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
            InputBatch::new(&output, &groups, 32, split)
        };
        let counts = batch(0).counts;
        assert_eq!(
            counts,
            [13, 0, 3, 0, 0, 0, 0, 0, 0, 1, 0, 2],
            "no scratch, so all are tiles"
        );
        let batch = batch(1);
        // The query at 300 sees two parts; of the window's keys, 256 to 300, the second.
        assert_eq!(batch.counts, [13, 0, 2, 1, 0, 0, 0, 0, 2, 1, 1, 2]);
        assert_eq!(batch.words[step::NUM_TOKENS], 13);
        let array = |header: usize, n: usize| &batch.words[batch.words[header] as usize..][..n];
        assert_eq!(array(step::IDS, 2), [7, 11]);
        assert_eq!(array(step::POSITIONS, 4), [300, 30, 31, 32]);
        assert_eq!(array(step::SLOTS, 4), [332, 670, 671, 672]);
        let slots = &array(step::SLOTS, 26)[13..];
        assert_eq!(slots[..4], [3532, 3870, 3871, 3872]);
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
        assert!(batch.words.len() <= InputBatch::max_words(&config, 2));
    }
}
