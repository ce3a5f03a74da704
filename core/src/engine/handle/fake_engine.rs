//! A model that is only a hash of what its pages hold, on a device that goes away when a test says
//! so, with its handle, and answers as a reader gathers them.

use super::{EngineDriver, EngineHandle, HandleOptions, RequestStream, StreamError, Turn};
use crate::clock::ManualClock;
use crate::config::{ModelConfig, TokenKind, Vocabulary};
use crate::engine::metrics::MetricValue;
use crate::engine::paged_hash::model;
use crate::engine::{EngineCore, LlmEngine, Prompt, RequestOutput, RetryPolicy, RunnerFactory};
use crate::error::{Error, ExecutorError, Result};
use crate::runner::ExecuteModel;
use crate::sched::{
    ModelRunnerOutput, ScheduledSequence, SchedulerConfig, SchedulerOutput, SequenceOutput,
};
use crate::text::Tokenizer;
use crate::types::{FinishReason, RequestId, SamplingParams, TokenId};
use pollster::block_on;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) const VOCAB: usize = 97;

/// What becomes of a device and of the next ones, by the number of the step.
#[derive(Default)]
pub(super) struct Fate {
    pub(super) steps: usize,
    pub(super) lost_at: BTreeSet<usize>,
    pub(super) finished: usize,
    /// Lost when this step was launched already.
    pub(super) lost_unread: BTreeSet<usize>,
    pub(super) fails_at: Option<usize>,
    pub(super) panics_at: Option<usize>,
    /// So many attempts to make another fail first.
    pub(super) no_device: usize,
    /// Steps are launched and do not end.
    pub(super) hangs: bool,
    pub(super) waits: Vec<Duration>,
    pub(super) num_released: usize,
}

pub(super) type SharedFate = Rc<RefCell<Fate>>;

/// Draws a token from a hash of the whole context as it lies in the pages of the block table.
pub(super) struct Paged {
    pages: Vec<Vec<TokenId>>,
    /// What each request drew last.
    drawn: BTreeMap<RequestId, TokenId>,
    lost: bool,
    fate: SharedFate,
}

impl Paged {
    pub(super) fn new(fate: &SharedFate) -> Self {
        let config = config();
        Self {
            pages: vec![vec![TokenId::MAX; config.block_size]; config.num_blocks],
            drawn: BTreeMap::new(),
            lost: false,
            fate: Rc::clone(fate),
        }
    }

    pub(super) fn run(&mut self, share: &ScheduledSequence) -> SequenceOutput {
        let table = &share.block_tables[0];
        let size = config().block_size;
        for (i, &id) in share.token_ids.iter().enumerate() {
            let p = share.num_computed_tokens + i;
            let id = match share.awaits_token() {
                true => self.drawn[&share.request_id],
                false => id,
            };
            self.pages[table[p / size] as usize][p % size] = id;
        }
        let id = |p: usize| self.pages[table[p / size] as usize][p % size];
        let hash = (0..share.end_position()).fold(share.sampling.seed, |h, p| {
            (h ^ u64::from(id(p))).wrapping_mul(0x0100_0000_01b3) >> 3
        });
        let id = (hash % VOCAB as u64) as TokenId;
        self.drawn.insert(share.request_id, id);
        SequenceOutput {
            request_id: share.request_id,
            token_id: share.samples.then_some(id),
            logprobs: None,
            prompt_logprobs: Vec::new(),
            pooled: None,
            error: None,
        }
    }
}

pub(super) fn lost() -> Error {
    Error::Executor(ExecutorError::DeviceLost("a test".into()))
}

impl ExecuteModel for Paged {
    type Launched = ModelRunnerOutput;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<ModelRunnerOutput> {
        let mut fate = self.fate.borrow_mut();
        let number = fate.steps;
        fate.steps += 1;
        self.lost |= fate.lost_at.contains(&number);
        if self.lost {
            return Err(lost());
        }
        assert!(fate.panics_at != Some(number), "a fault of a test");
        if fate.fails_at == Some(number) {
            return Err(Error::DoesNotFit("a step of a test".into()));
        }
        drop(fate);
        for copy in &step.block_copies {
            self.pages[copy.dst as usize] = self.pages[copy.src as usize].clone();
        }
        let sequences = step.scheduled.iter().map(|share| self.run(share)).collect();
        Ok(ModelRunnerOutput { sequences })
    }

    async fn finish_step(&mut self, launched: ModelRunnerOutput) -> Result<ModelRunnerOutput> {
        std::future::poll_fn(|_| match self.fate.borrow().hangs {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        let mut fate = self.fate.borrow_mut();
        fate.finished += 1;
        let number = fate.finished - 1;
        self.lost |= fate.lost_unread.contains(&number);
        if self.lost {
            return Err(lost());
        }
        Ok(launched)
    }

    fn release(&mut self) {
        self.pages.clear();
        self.fate.borrow_mut().num_released += 1;
    }
}

pub(super) struct Devices(SharedFate);

impl RunnerFactory for Devices {
    type Runner = Paged;

    async fn create(&mut self) -> Result<Paged> {
        let mut fate = self.0.borrow_mut();
        if fate.no_device > 0 {
            fate.no_device -= 1;
            let none = "gone for a while".into();
            return Err(Error::Executor(ExecutorError::NoDevice(none)));
        }
        drop(fate);
        Ok(Paged::new(&self.0))
    }

    async fn wait(&mut self, span: Duration) {
        self.0.borrow_mut().waits.push(span);
    }
}

pub(super) fn config() -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 64,
        max_model_len: 200,
        block_size: 16,
        num_blocks: 33,
        ..SchedulerConfig::default()
    }
}

pub(super) fn llm(fate: &SharedFate) -> LlmEngine<Paged, ManualClock> {
    let model = ModelConfig {
        vocab_size: VOCAB,
        ..model()
    };
    let numbers = Tokenizer::from_vocabulary(&Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: (0..VOCAB).map(|id| format!("{id}\u{120}")).collect(),
        kinds: vec![TokenKind::Normal; VOCAB],
        ..Vocabulary::default()
    });
    let core = EngineCore::new(Paged::new(fate), ManualClock::default(), &model, config());
    let llm = LlmEngine::new(core.unwrap(), numbers.unwrap());
    llm.with_factory(Devices(Rc::clone(fate)), RetryPolicy::default())
}

pub(super) type Driver = EngineDriver<Paged, ManualClock>;

pub(super) fn engine(fate: &SharedFate) -> (Driver, EngineHandle) {
    let options = HandleOptions {
        max_waiting: 4,
        max_unread_tokens: 8,
    };
    EngineDriver::new(llm(fate), options)
}

pub(super) fn request(index: usize) -> (Prompt, SamplingParams) {
    let len = [1, 16, 33, 70, 5, 31][index];
    let ids = (0..len).map(|i| (i * 31 + index * 7) as TokenId % VOCAB as TokenId);
    let params = SamplingParams {
        max_tokens: 20 + index,
        seed: index as u64,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    (Prompt::TokenIds(ids.collect()), params)
}

pub(super) fn submit(handle: &EngineHandle, index: usize) -> RequestStream {
    let (prompt, params) = request(index);
    handle.submit(prompt, params).unwrap()
}

/// What can be read now; `None` at the stream's end.
pub(super) fn read(stream: &mut RequestStream) -> Option<Vec<Result<RequestOutput, StreamError>>> {
    let mut pieces = Vec::new();
    loop {
        let next = std::pin::pin!(stream.next());
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => return Some(pieces),
            Poll::Ready(Some(piece)) => pieces.push(piece),
            Poll::Ready(None) if pieces.is_empty() => return None,
            Poll::Ready(None) => return Some(pieces),
        }
    }
}

/// An answer's ids and how it ended.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) ids: Vec<TokenId>,
    pub(super) text: String,
    pub(super) finished: Option<FinishReason>,
}

impl Answer {
    pub(super) fn take(&mut self, piece: RequestOutput) {
        assert_eq!(self.finished, None);
        self.ids.extend(piece.output.token_ids);
        self.text.push_str(&piece.text);
        self.finished = piece.output.finished.map(|f| f.unwrap());
    }
}

pub(super) fn use_up(driver: &mut Driver, streams: &mut [RequestStream]) -> Vec<Answer> {
    let mut answers: Vec<_> = streams.iter().map(|_| Answer::default()).collect();
    loop {
        let turn = block_on(driver.turn());
        driver
            .engine()
            .core()
            .scheduler()
            .check_integrity()
            .unwrap();
        for (stream, answer) in streams.iter_mut().zip(&mut answers) {
            for piece in read(stream).into_iter().flatten() {
                answer.take(piece.unwrap());
            }
        }
        if turn != Turn::Stepped {
            return answers;
        }
    }
}

pub(super) fn plain() -> Vec<Answer> {
    let requests: Vec<_> = (0..6).map(request).collect();
    let answers = block_on(llm(&SharedFate::default()).generate(requests)).unwrap();
    let answers = answers.into_iter().map(|a| a.unwrap());
    let answers = answers.map(|a| Answer {
        ids: a.completion.token_ids,
        text: a.text,
        finished: a.completion.finish_reason,
    });
    answers.collect()
}

/// Answers that ended: by a stop, at their length, given up, failed.
pub(super) fn ends(driver: &Driver) -> Vec<u64> {
    let core = driver.engine().core();
    let families = core.metrics().families(&core.gauges());
    let found = families.iter().find(|f| f.name == "vllm:request_success");
    let MetricValue::LabelledCounter(_, reasons) = &found.unwrap().value else {
        panic!("no counts by reason");
    };
    let order = ["stop", "length", "abort", "error"];
    assert!(reasons.iter().map(|(reason, _)| *reason).eq(order));
    reasons.iter().map(|(_, count)| *count).collect()
}

pub(super) fn free_blocks(driver: &Driver) -> usize {
    driver
        .engine()
        .core()
        .scheduler()
        .kv_cache()
        .num_free_blocks()
}
