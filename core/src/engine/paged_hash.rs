//! A model that is only a hash, kept in pages like a real one's keys, an engine of it, and what serving it
//! gives. Knows no device.

use super::core::{EngineCore, EngineOutput};
use crate::clock::ManualClock;
use crate::config::{LayerConfig, ModelConfig, RopeParameters};
use crate::error::{Error, Result};
use crate::runner::ExecuteModel;
use crate::sched::{
    ModelRunnerOutput, PLACEHOLDER_TOKEN, RequestError, ScheduledSequence, SchedulerConfig,
    SchedulerOutput, SequenceOutput,
};
use crate::types::{FinishReason, RequestId, SamplingParams, TokenId, TokenLogprobs};
use pollster::block_on;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const VOCAB: usize = 997;
pub(super) const EOS: TokenId = 2;

/// A token is drawn from a hash of the whole context, read back from the pages through the block
/// table, so that a wrong table, a block given to two or a position left out changes the answer.
pub(super) struct PagedHash {
    pages: Vec<Vec<TokenId>>,
    block_size: usize,
    pub(super) clock: ManualClock,
    pub(super) fail_next: bool,
    /// The next step is not done when it is first asked for.
    pub(super) late: bool,
    pub(super) num_in_flight: usize,
    /// The most there ever were.
    pub(super) most_in_flight: usize,
    pub(super) num_preemptions: usize,
    pub(super) num_computed: usize,
    /// Tokens of each step.
    pub(super) step_tokens: Vec<usize>,
    /// What each request drew last.
    last_drawn: BTreeMap<RequestId, TokenId>,
}

impl PagedHash {
    pub(super) fn new(config: &SchedulerConfig, clock: ManualClock) -> Self {
        Self {
            pages: vec![vec![TokenId::MAX; config.block_size]; config.num_blocks],
            block_size: config.block_size,
            clock,
            fail_next: false,
            late: false,
            num_in_flight: 0,
            most_in_flight: 0,
            num_preemptions: 0,
            num_computed: 0,
            step_tokens: Vec::new(),
            last_drawn: BTreeMap::new(),
        }
    }

    fn run(&mut self, share: &ScheduledSequence) -> SequenceOutput {
        let table = &share.block_tables[0];
        let params = &share.sampling.params;
        assert!(!(share.awaits_token() && params.presence_penalty != 0.0));
        for (i, &id) in share.token_ids.iter().enumerate() {
            let p = share.num_computed_tokens + i;
            let id = match id {
                PLACEHOLDER_TOKEN => self.last_drawn[&share.request_id],
                id => id,
            };
            self.pages[table[p / self.block_size] as usize][p % self.block_size] = id;
        }
        let start = share.num_computed_tokens;
        let targets = share.prompt_logprob_targets.iter().enumerate();
        let hash = self.hash(table, share.end_position());
        let id = (hash ^ share.sampling.seed) % VOCAB as u64;
        let token_id = share.samples.then_some(id as TokenId);
        if let Some(id) = token_id {
            self.last_drawn.insert(share.request_id, id);
        }
        let logprob = |p: usize, target: TokenId| TokenLogprobs {
            logprob: -((self.hash(table, p) ^ u64::from(target)) as f32),
            rank: 1,
            top: Vec::new(),
        };
        SequenceOutput {
            request_id: share.request_id,
            token_id,
            logprobs: share
                .sampling
                .params
                .logprobs
                .and(token_id)
                .map(|t| logprob(1, t)),
            prompt_logprobs: targets.map(|(i, &t)| logprob(start + i + 1, t)).collect(),
            pooled: share
                .pooling
                .filter(|pool| pool.ends)
                .map(|_| vec![3.0, 4.0]),
            error: None,
        }
    }

    fn hash(&self, table: &[u32], len: usize) -> u64 {
        let id = |p: usize| self.pages[table[p / self.block_size] as usize][p % self.block_size];
        (0..len).fold(0xcbf2_9ce4_8422_2325, |h: u64, p| {
            (h ^ u64::from(id(p))).wrapping_mul(0x0100_0000_01b3) >> 3
        })
    }
}

impl ExecuteModel for PagedHash {
    type Launched = ModelRunnerOutput;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<ModelRunnerOutput> {
        self.num_in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.num_in_flight);
        self.num_preemptions += step.preempted_ids.len();
        for copy in &step.block_copies {
            self.pages[copy.dst as usize] = self.pages[copy.src as usize].clone();
        }
        self.num_computed += step.total_num_scheduled_tokens();
        self.step_tokens.push(step.total_num_scheduled_tokens());
        let sequences = step.scheduled.iter().map(|share| self.run(share)).collect();
        Ok(ModelRunnerOutput { sequences })
    }

    async fn finish_step(&mut self, launched: ModelRunnerOutput) -> Result<ModelRunnerOutput> {
        if std::mem::take(&mut self.late) {
            std::future::pending::<()>().await;
        }
        self.clock.advance(Duration::from_millis(10));
        self.num_in_flight -= 1;
        if std::mem::take(&mut self.fail_next) {
            return Err(Error::DoesNotFit("the device is gone".into()));
        }
        Ok(launched)
    }
}

pub(crate) fn model() -> ModelConfig {
    ModelConfig {
        vocab_size: VOCAB,
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 3,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 8,
        max_position_embeddings: 1024,
        rms_norm_eps: 1e-5,
        embedding_scale: 1.0,
        attention_scale: 1.0,
        layers: vec![LayerConfig::default(); 3],
        rotary_dim: 8,
        rope: RopeParameters {
            theta: 1e4,
            ..RopeParameters::default()
        },
        tie_word_embeddings: true,
        eos_token_ids: vec![EOS],
        ..ModelConfig::default()
    }
}

pub(super) fn config() -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 2048,
        max_model_len: 800,
        block_size: 16,
        num_blocks: 400,
        max_prefill_chunk: None,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    }
}

pub(super) type Engine = EngineCore<PagedHash, ManualClock>;

pub(super) fn engine(config: SchedulerConfig) -> Engine {
    engine_ending_at(EOS, config)
}

pub(super) fn engine_ending_at(eos: TokenId, config: SchedulerConfig) -> Engine {
    let clock = ManualClock::default();
    let runner = PagedHash::new(&config, clock.clone());
    let model = ModelConfig {
        eos_token_ids: vec![eos],
        ..model()
    };
    EngineCore::new(runner, clock, &model, config).unwrap()
}

pub(super) fn prompt(index: usize) -> (Vec<TokenId>, SamplingParams) {
    let len = [1, 5, 15, 16, 17, 33, 129, 700][index];
    let ids = (0..len).map(|i| (i * 31 + index * 7) as TokenId % VOCAB as TokenId);
    let params = SamplingParams {
        max_tokens: 60,
        seed: index as u64,
        ignore_eos: true,
        logprobs: index.is_multiple_of(2).then_some(0),
        prompt_logprobs: index.is_multiple_of(3).then_some(0),
        ..SamplingParams::default()
    };
    (ids.collect(), params)
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) token_ids: Vec<TokenId>,
    pub(super) logprobs: Vec<TokenLogprobs>,
    pub(super) prompt_logprobs: Vec<TokenLogprobs>,
    pub(super) finished: Option<Result<FinishReason, RequestError>>,
}

impl Answer {
    pub(super) fn take(&mut self, output: EngineOutput) {
        assert_eq!(self.finished, None);
        self.token_ids.extend(output.token_ids);
        self.logprobs.extend(output.logprobs);
        self.prompt_logprobs.extend(output.prompt_logprobs);
        self.finished = output.finished;
    }
}

pub(super) fn drive(engine: &mut Engine, answers: &mut BTreeMap<RequestId, Answer>) {
    while engine.has_unfinished_requests() {
        for output in block_on(engine.step()).unwrap() {
            answers.entry(output.request_id).or_default().take(output);
        }
        engine.scheduler().check_integrity().unwrap();
    }
}

pub(super) fn serve(engine: &mut Engine, indices: impl IntoIterator<Item = usize>) -> Vec<Answer> {
    let mut answers = BTreeMap::new();
    for index in indices {
        let (ids, params) = prompt(index);
        let id = engine.add_request(ids, params).unwrap();
        answers.insert(id, Answer::default());
    }
    drive(engine, &mut answers);
    answers.into_values().collect()
}

pub(super) fn served_alone() -> Vec<Answer> {
    let alone = |i| serve(&mut engine(config()), [i]).remove(0);
    (0..8).map(alone).collect()
}
