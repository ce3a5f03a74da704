//! For tests of the scheduler: small limits, requests, and a model that draws a hash of what came
//! before and holds the scheduler to what its shares promise. Knows no device.

use super::block_pool::NULL_BLOCK;
use super::*;
use crate::types::{RequestId, SamplingParams, TokenId, TokenLogprobs};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const VOCAB: u32 = 50;
pub(super) const EOS: TokenId = 0;
pub(super) const PAGE_BYTES: u64 = 10;

pub(super) fn config(block_size: usize, num_blocks: usize) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 24,
        max_model_len: 120,
        block_size,
        num_blocks,
        max_prefill_chunk: None,
        enable_prefix_caching: false,
        run_ahead: 0,
        ..SchedulerConfig::default()
    }
}

pub(super) fn scheduler(config: SchedulerConfig) -> Scheduler {
    windowed(config, &[None])
}

/// A scheduler for a model with a layer of each of these windows.
pub(super) fn windowed(config: SchedulerConfig, windows: &[Option<usize>]) -> Scheduler {
    let groups = windows
        .iter()
        .enumerate()
        .map(|(layer, &window)| KvGroupSpec {
            layers: vec![layer],
            window,
        });
    let scheduler = Scheduler::new(config, groups.collect()).unwrap();
    scheduler.with_block_bytes(vec![PAGE_BYTES; windows.len()])
}

pub(super) fn request(id: u64, num_prompt_tokens: usize, max_tokens: usize) -> Request {
    let prompt = (0..num_prompt_tokens as u32).map(|i| 1 + i % (VOCAB - 1));
    let params = SamplingParams {
        max_tokens,
        prompt_logprobs: id.is_multiple_of(2).then_some(0),
        ..SamplingParams::default()
    };
    Request::new(RequestId(id), prompt.collect(), params, &[EOS])
}

/// What pages hold, by group and index.
type HostPages = BTreeMap<(usize, usize), Vec<Option<u32>>>;

/// Draws tokens by a hash of what came before, and holds a cache of its own to what the scheduler
/// promises: what a query sees must be where the block tables of its groups say, with the content
/// that the sequence's own tokens give it.
#[derive(Default)]
pub(super) struct FakeModel {
    /// What lies in (group, block, offset): the hash of all tokens up to there.
    pages: BTreeMap<(usize, BlockId, usize), u32>,
    /// Pages in host memory, by transfer.
    host: BTreeMap<u64, HostPages>,
    /// What was drawn, by position: the device knows it before the scheduler does.
    drawn: BTreeMap<(RequestId, usize), TokenId>,
    /// Sums of what is pooled, by how many tokens they cover.
    sums: BTreeMap<RequestId, BTreeMap<usize, u32>>,
    /// Tokens computed so far.
    pub(super) num_computed: usize,
}

fn hash(before: u32, id: &TokenId) -> u32 {
    before.wrapping_mul(31) ^ id
}

impl FakeModel {
    fn swap(&mut self, step: &SchedulerOutput, config: &SchedulerConfig) {
        for number in &step.swap_drops {
            self.host.remove(number);
        }
        for transfer in &step.swap_outs {
            let read = |moved: &MovedBlock| {
                let MovedBlock {
                    group,
                    index,
                    block,
                } = *moved;
                let slot = |offset| self.pages.get(&(group, block, offset)).copied();
                ((group, index), (0..config.block_size).map(slot).collect())
            };
            let pages = transfer.blocks.iter().map(read).collect();
            self.host.entry(transfer.number).or_insert(pages);
        }
        let held: usize = self.host.values().map(BTreeMap::len).sum();
        assert!(held as u64 * PAGE_BYTES <= config.swap_space_bytes);
        for transfer in &step.swap_ins {
            for moved in &transfer.blocks {
                let page = &self.host[&transfer.number][&(moved.group, moved.index)];
                for (offset, hash) in page.iter().enumerate() {
                    let slot = (moved.group, moved.block, offset);
                    match hash {
                        Some(hash) => self.pages.insert(slot, *hash),
                        None => self.pages.remove(&slot),
                    };
                }
            }
        }
    }

    /// Goes on with the sum that ends where the share begins, which must be there.
    fn pool(&mut self, share: &ScheduledSequence) -> Option<Vec<f32>> {
        let pool = share.pooling?;
        let sums = self.sums.entry(share.request_id).or_default();
        if pool.begins {
            *sums = BTreeMap::from([(share.num_computed_tokens, 0)]);
        }
        let pooled = share.token_ids[pool.first..].iter();
        let sum = pooled.fold(sums[&share.num_computed_tokens], hash);
        sums.insert(share.end_position(), sum);
        pool.ends.then(|| vec![(sum % 9973) as f32])
    }

    /// Computes a step that was just scheduled, all at once; its output may come later, or never.
    pub(super) fn run(&mut self, step: &SchedulerOutput, s: &Scheduler) -> ModelRunnerOutput {
        let config = s.config();
        self.swap(step, config);
        let at = |share: &ScheduledSequence, group: usize, position: usize| {
            let block = share.block_tables[group][position / config.block_size];
            assert_ne!(block, NULL_BLOCK, "{position} of {}", share.request_id);
            (group, block, position % config.block_size)
        };
        // By position: the hash of the tokens up to it.
        let drawn = self.drawn.clone();
        let hashes = |share: &ScheduledSequence| -> Vec<u32> {
            let request = s.request(share.request_id).unwrap();
            let known = request.token_ids();
            let id = |position: usize| match known.get(position) {
                Some(id) => *id,
                None => drawn[&(share.request_id, position)],
            };
            let ids: Vec<_> = (0..share.end_position()).map(id).collect();
            match share.awaits_token() {
                true => assert_eq!(share.num_computed_tokens + 1, ids.len()),
                false => assert_eq!(ids[share.num_computed_tokens..], share.token_ids),
            }
            assert!(share.awaits_token() == (ids.len() > known.len()));
            let so_far = ids.iter().scan(7, |h, id| {
                *h = hash(*h, id);
                Some(*h)
            });
            so_far.collect()
        };
        for copy in &step.block_copies {
            for offset in 0..config.block_size {
                let from = self.pages.get(&(copy.group, copy.src, offset)).copied();
                let to = (copy.group, copy.dst, offset);
                match from {
                    Some(hash) => self.pages.insert(to, hash),
                    None => self.pages.remove(&to),
                };
            }
        }
        // All that a step computes is written before anything is read.
        let mut written = BTreeSet::new();
        for share in &step.scheduled {
            let hashes = hashes(share);
            for group in 0..s.kv_cache().groups().len() {
                let positions = share.num_computed_tokens..share.end_position();
                for (position, &hash) in positions.clone().zip(&hashes[positions]) {
                    let slot = at(share, group, position);
                    assert!(written.insert(slot), "{slot:?} is written by two");
                    self.pages.insert(slot, hash);
                }
            }
        }
        for share in &step.scheduled {
            let hashes = hashes(share);
            for (g, group) in s.kv_cache().groups().iter().enumerate() {
                let first = group.first_seen(share.num_computed_tokens);
                let positions = first..share.end_position();
                for (position, &hash) in positions.clone().zip(&hashes[positions]) {
                    let found = self.pages[&at(share, g, position)];
                    assert_eq!(found, hash, "group {g}, position {position}");
                }
            }
        }
        let num_tokens = step.total_num_scheduled_tokens();
        assert!(num_tokens <= config.max_num_batched_tokens);
        assert!(step.scheduled.len() <= config.max_num_seqs);
        self.num_computed += num_tokens;
        for id in step.finished_ids.iter().chain(&step.preempted_ids) {
            self.sums.remove(id);
        }
        let pooled: Vec<_> = step.scheduled.iter().map(|s| self.pool(s)).collect();
        let sequences = step.scheduled.iter().zip(pooled).map(|(share, pooled)| {
            let chunk = config.max_prefill_chunk.unwrap_or(usize::MAX);
            assert!((1..=chunk).contains(&share.num_scheduled_tokens()));
            let blocks = share.end_position().div_ceil(config.block_size);
            for table in &share.block_tables {
                assert_eq!(table.len(), blocks);
            }
            let last = hashes(share).pop().unwrap();
            let logprob = |t: &TokenId| TokenLogprobs {
                logprob: -(*t as f32),
                rank: 1,
                top: vec![],
            };
            let id = (last ^ share.sampling.seed as u32) % VOCAB;
            if share.samples {
                self.drawn
                    .insert((share.request_id, share.end_position()), id);
            }
            SequenceOutput {
                request_id: share.request_id,
                token_id: share.samples.then_some(id),
                logprobs: None,
                prompt_logprobs: share.prompt_logprob_targets.iter().map(logprob).collect(),
                pooled,
                error: None,
            }
        });
        ModelRunnerOutput {
            sequences: sequences.collect(),
        }
    }
}

pub(super) fn step(s: &mut Scheduler, model: &mut FakeModel) -> Vec<RequestUpdate> {
    let out = s.schedule();
    s.check_integrity().unwrap();
    let result = model.run(&out, s);
    let updates = s.update_from_output(&out, result, VOCAB as usize);
    s.check_integrity().unwrap();
    updates
}
