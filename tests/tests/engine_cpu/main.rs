//! The whole engine on the reference executor: in every numerics class a request's tokens and
//! log-probabilities have the same bits whatever it is batched with, however it is chunked, whatever the
//! page size, and whichever programs compute it, a processor's or a GPU's. Owns the models that are served,
//! a way of serving, and what is compared.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod borders;
mod pages;
mod run_ahead;
mod sharing;

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{
    ComputeDtype, KvCacheDtype, ModelRunner, NumericsClass, RunnerOptions,
};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::{Caps, Coop, DeviceKind};
use twoclock_shaders::cpu::{CpuExecutor, CpuKernel, KERNELS};
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::{LogitsBits, Noise, Synthetic};

/// Tokens each request generates.
const TOKENS: usize = 3;

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Model {
    /// Every layer attends to everything.
    Full,
    /// A layer with a window that divides no page, then one without; caps on scores and logits.
    Mixed,
    /// Only layers with that window.
    Sliding,
    /// Two of five experts a token, whose width ends inside a span; norms of heads.
    Mixture,
    /// Norms around everything, GELU, a window with a rotation of its own.
    Gemma,
}

const MODELS: [Model; 5] = [
    Model::Full,
    Model::Mixed,
    Model::Sliding,
    Model::Mixture,
    Model::Gemma,
];

const WINDOW: usize = 37;

impl Model {
    fn checkpoint(self) -> &'static Checkpoint {
        static MODELS: [OnceLock<Checkpoint>; 5] = [const { OnceLock::new() }; 5];
        let synthetic = Synthetic::borders();
        MODELS[self as usize].get_or_init(|| match self {
            Self::Full => synthetic.checkpoint(),
            Self::Mixed => synthetic.windowed(WINDOW, &[true, false]),
            Self::Sliding => synthetic.windowed(WINDOW, &[true, true]),
            Self::Mixture => synthetic.mixture(5, 224),
            Self::Gemma => synthetic.gemma(WINDOW),
        })
    }
}

/// How a set of requests is served.
#[derive(Clone, Copy, Debug)]
struct Serving {
    class: NumericsClass,
    /// Whose programs.
    kind: DeviceKind,
    chunk: usize,
    block_size: usize,
    max_num_batched_tokens: usize,
    decode_queries: usize,
    together: bool,
    kv: KvDtype,
    run_ahead: usize,
}

const PLAIN: Serving = Serving {
    class: NumericsClass::Int8,
    kind: DeviceKind::Cpu,
    chunk: 1024,
    block_size: 32,
    max_num_batched_tokens: 1024,
    decode_queries: 1,
    together: false,
    kv: KvDtype::F32,
    run_ahead: 0,
};

/// The reference as a device of this kind, with cooperative matrices where the class is theirs. A processor has
/// the lanes that a step of one token joins matrices and norms for; longer steps stand beside it.
fn reference(class: NumericsClass, kind: DeviceKind) -> CpuExecutor {
    let coop = Coop { subgroup: 32 };
    CpuExecutor::new(Caps {
        kind,
        subgroups: (kind == DeviceKind::Cpu).then_some((8, 8)),
        coop: (class == NumericsClass::Coop).then_some(coop),
        ..Caps::reference()
    })
}

/// In this class, with pages of this type.
fn options(class: NumericsClass, kv: KvDtype) -> RunnerOptions {
    RunnerOptions {
        compute_dtype: ComputeDtype::Of(class),
        kv_cache_dtype: KvCacheDtype::Of(kv),
        ..RunnerOptions::default()
    }
}

fn prompt(len: usize) -> Vec<u32> {
    let mut noise = Noise::new(len as u64);
    (0..len).map(|_| noise.below(200)).collect()
}

fn limits(serving: Serving) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: serving.max_num_batched_tokens,
        max_model_len: 768,
        block_size: serving.block_size,
        num_blocks: 1 + 2400 / serving.block_size,
        max_prefill_chunk: Some(serving.chunk),
        enable_prefix_caching: false,
        run_ahead: serving.run_ahead,
        ..SchedulerConfig::default()
    }
}

fn engine<E: Executor>(
    executor: E,
    model: Model,
    config: SchedulerConfig,
    options: RunnerOptions,
) -> EngineCore<ModelRunner<E>, ManualClock> {
    let checkpoint = model.checkpoint();
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine")
}

fn serve(
    executor: impl Executor,
    model: Model,
    lengths: &[usize],
    serving: Serving,
) -> Vec<Completion> {
    let options = RunnerOptions {
        decode_queries: Some(serving.decode_queries),
        ..options(serving.class, serving.kv)
    };
    let mut engine = engine(executor, model, limits(serving), options);
    let requests = lengths.iter().map(|&len| {
        let params = SamplingParams {
            max_tokens: TOKENS,
            ignore_eos: true,
            temperature: if len % 2 == 0 { 0.0 } else { 1.0 },
            seed: len as u64,
            logprobs: Some(200),
            ..SamplingParams::default()
        };
        (prompt(len), params)
    });
    let waves: Vec<Vec<_>> = if serving.together {
        vec![requests.collect()]
    } else {
        requests.map(|request| vec![request]).collect()
    };
    waves
        .into_iter()
        .flat_map(|wave| pollster::block_on(engine.generate(wave)).expect("a device"))
        .map(|completion| completion.expect("an answer"))
        .collect()
}

/// What is compared of one request: ids, and every log-probability to the bit.
type Bits = (Vec<u32>, Vec<u32>);

/// What serving some requests gave.
#[derive(Clone, Debug, PartialEq)]
struct Served {
    /// By request.
    answers: Vec<Bits>,
    /// The rows of logits all drawn tokens came of, to the bit. Sorted: the order in which they are
    /// computed is the scheduler's affair.
    logits: Vec<Vec<u32>>,
}

fn bits(model: Model, lengths: &[usize], serving: Serving) -> Served {
    let executor = reference(serving.class, serving.kind);
    bits_of(executor, model, lengths, serving)
}

fn bits_of(executor: CpuExecutor, model: Model, lengths: &[usize], serving: Serving) -> Served {
    let vocab = model.checkpoint().config.vocab_size;
    let (executor, logits) = LogitsBits::new(executor, vocab);
    let completions = serve(executor, model, lengths, serving);
    let mut logits = logits.take();
    logits.sort_unstable();
    assert_eq!(logits.len(), TOKENS * lengths.len(), "a row a token");
    let answers = completions
        .iter()
        .map(|c| {
            let logprobs = c.logprobs.iter().flat_map(|l| &l.top);
            (
                c.token_ids.clone(),
                logprobs.flat_map(|(id, l)| [*id, l.to_bits()]).collect(),
            )
        })
        .collect();
    Served { answers, logits }
}

/// What plain serving gives for these prompts, in the class and with the pages of another way.
fn plain_all(model: Model, way: Serving, lengths: &[usize]) -> Served {
    let mut all = Served {
        answers: Vec::new(),
        logits: Vec::new(),
    };
    for &len in lengths {
        let one = plain(model, way, len);
        all.answers.extend(one.answers);
        all.logits.extend(one.logits);
    }
    all.logits.sort_unstable();
    all
}

/// What plain serving gives for one prompt; computed once a model, class, type of pages and length.
fn plain(model: Model, Serving { class, kv, .. }: Serving, len: usize) -> Served {
    type Known = HashMap<(Model, NumericsClass, KvDtype, usize), Served>;
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let key = (model, class, kv, len);
    let known = || {
        let known = KNOWN.get_or_init(Mutex::default).lock();
        known.expect("no panic inside")
    };
    if let Some(answer) = known().get(&key) {
        return answer.clone();
    }
    let plain = Serving { class, kv, ..PLAIN };
    let answer = bits(model, &[len], plain);
    known().insert(key, answer.clone());
    answer
}

/// The reference of a kernel.
fn kernel(name: &str) -> CpuKernel {
    KERNELS
        .iter()
        .find(|(kernel, _)| *kernel == name)
        .map(|&(_, kernel)| kernel)
        .expect("a kernel")
}
