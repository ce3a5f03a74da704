//! The whole engine on the reference executor: a request's tokens and log-probabilities have the
//! same bits whatever it is batched with, however it is chunked, and whatever the page size.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use proptest::prelude::*;
use std::sync::OnceLock;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{KvCacheDtype, ModelRunner, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::{Bound, CpuExecutor, CpuKernel, KERNELS};
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::kernels::attention_decode::AttentionDecodeParams;
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
    chunk: usize,
    block_size: usize,
    max_num_batched_tokens: usize,
    decode_queries: usize,
    together: bool,
    kv: KvDtype,
    run_ahead: usize,
}

const PLAIN: Serving = Serving {
    chunk: 1024,
    block_size: 32,
    max_num_batched_tokens: 1024,
    decode_queries: 1,
    together: false,
    kv: KvDtype::F32,
    run_ahead: 0,
};

/// With pages of this type.
fn caching(dtype: KvDtype) -> RunnerOptions {
    RunnerOptions {
        kv_cache_dtype: KvCacheDtype::Of(dtype),
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
        ..caching(serving.kv)
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

fn bits(executor: CpuExecutor, model: Model, lengths: &[usize], serving: Serving) -> Served {
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

/// What plain serving gives for these prompts.
fn plain_all(model: Model, kv: KvDtype, lengths: &[usize]) -> Served {
    let mut all = Served {
        answers: Vec::new(),
        logits: Vec::new(),
    };
    for &len in lengths {
        let one = plain(model, kv, len);
        all.answers.extend(one.answers);
        all.logits.extend(one.logits);
    }
    all.logits.sort_unstable();
    all
}

/// What plain serving gives for one prompt; computed once a model, type of pages and length.
fn plain(model: Model, kv: KvDtype, len: usize) -> Served {
    use std::collections::HashMap;
    use std::sync::Mutex;
    type Known = HashMap<(Model, KvDtype, usize), Served>;
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(answer) = known
        .lock()
        .expect("no panic inside")
        .get(&(model, kv, len))
    {
        return answer.clone();
    }
    let answer = bits(
        CpuExecutor::default(),
        model,
        &[len],
        Serving { kv, ..PLAIN },
    );
    known
        .lock()
        .expect("no panic inside")
        .insert((model, kv, len), answer.clone());
    answer
}

/// The same for a model with a window, which begins to leave pages behind and then parts.
const WINDOWED: [usize; 9] = [1, 33, 36, 37, 38, 64, 257, 300, 513];

/// For what makes no difference between lengths but their number.
const FEW: [usize; 3] = [1, 33, 70];

/// Lengths around every border: groups of 32, pages of 16 and 32, blocks, parts, and two parts.
const LENGTHS: [usize; 16] = [
    1, 2, 15, 16, 17, 31, 32, 33, 127, 253, 255, 256, 257, 511, 513, 700,
];

#[test]
fn every_border_is_crossed_the_same_way() {
    let ways = [
        Serving {
            chunk: 7,
            block_size: 16,
            max_num_batched_tokens: 70,
            decode_queries: 4,
            together: true,
            kv: KvDtype::F32,
            run_ahead: 2,
        },
        Serving {
            chunk: 64,
            block_size: 32,
            max_num_batched_tokens: 520,
            decode_queries: 1,
            together: false,
            kv: KvDtype::F32,
            run_ahead: 1,
        },
    ];
    for way in ways {
        // Few at a time, so that the pool holds them.
        let full = LENGTHS.chunks(3).map(|lengths| (Model::Full, lengths));
        let mixed = WINDOWED.chunks(3).map(|lengths| (Model::Mixed, lengths));
        let others = [Model::Mixture, Model::Gemma].map(|model| (model, &FEW[..]));
        for (model, lengths) in full.chain(mixed).chain(others) {
            let served = bits(CpuExecutor::default(), model, lengths, way);
            let plain = plain_all(model, way.kv, lengths);
            assert!(served == plain, "{model:?}, {lengths:?} tokens, {way:?}");
        }
        for kv in [KvDtype::F16, KvDtype::Int8] {
            let (way, lengths) = (Serving { kv, ..way }, [33, 70, 257]);
            let served = bits(CpuExecutor::default(), Model::Mixed, &lengths, way);
            let plain = plain_all(Model::Mixed, kv, &lengths);
            assert!(served == plain, "{lengths:?} tokens, {way:?}");
            assert!(served != plain_all(Model::Mixed, KvDtype::F32, &lengths));
        }
    }
}

/// What a conversation gave.
#[derive(Debug, PartialEq)]
struct Conversation {
    /// Rows of logits, in order.
    logits: Vec<Vec<u32>>,
    answers: Vec<Vec<u32>>,
}

/// Five prompts one after the other: two equal ones, one that leaves them halfway, a second turn
/// that repeats the first and its answer, and one of another tenant. Also says how many tokens each
/// found in the cache.
fn conversation(model: Model, kv: KvDtype, config: SchedulerConfig) -> (Conversation, Vec<usize>) {
    let vocab = model.checkpoint().config.vocab_size;
    let (executor, logits) = LogitsBits::new(CpuExecutor::default(), vocab);
    let mut engine = engine(executor, model, config, caching(kv));
    let first = prompt(300);
    let (mut answers, mut cached) = (Vec::<Vec<u32>>::new(), Vec::new());
    for turn in 0..5 {
        let ids = match turn {
            2 => [&first[..150], &prompt(33)].concat(),
            3 => [&first[..], &answers[0], &prompt(31)].concat(),
            _ => first.clone(),
        };
        let params = SamplingParams {
            max_tokens: 40,
            ignore_eos: true,
            temperature: 1.0,
            seed: turn,
            logprobs: Some(0),
            cache_salt: (turn == 4).then(|| "another".to_owned()),
            ..SamplingParams::default()
        };
        let answer = pollster::block_on(engine.generate(vec![(ids, params)]));
        let answer = answer.expect("a device").remove(0).expect("an answer");
        answers.push(answer.token_ids);
        cached.push(answer.num_cached_tokens);
        let checked = engine.scheduler().check_integrity();
        checked.expect("whole");
    }
    let logits = logits.take();
    assert_eq!(logits.len(), 5 * 40);
    (Conversation { logits, answers }, cached)
}

/// Shared pages hold what the request would have computed itself, to the bit; a second turn
/// computes only what is new, but for the part of a page.
#[test]
fn shared_beginnings_change_nothing_and_are_not_computed_again() {
    for (model, block_size, kv) in [
        (Model::Full, 32, KvDtype::Int8),
        (Model::Mixed, 16, KvDtype::F32),
        (Model::Sliding, 32, KvDtype::F16),
        (Model::Gemma, 16, KvDtype::F32),
    ] {
        let config = |enable_prefix_caching| SchedulerConfig {
            enable_prefix_caching,
            ..limits(Serving {
                block_size,
                chunk: 100,
                ..PLAIN
            })
        };
        let (plain, none) = conversation(model, kv, config(false));
        assert_eq!(none, [0; 5]);
        let (shared, cached) = conversation(model, kv, config(true));
        assert!(shared == plain, "{model:?}");
        let whole = |tokens: usize| tokens / block_size * block_size;
        // The last token of an answer is drawn, but never computed.
        assert_eq!(
            cached,
            [0, whole(299), whole(150), whole(300 + 39), 0],
            "{model:?}"
        );
    }
}

/// Several answers to one prompt are those of as many requests with their seeds: the pages of the
/// prompt are shared, the last one is copied when somebody goes on in it.
#[test]
fn answers_of_one_prompt_are_those_of_requests_alone() {
    for (model, len, block_size, kv) in [
        (Model::Full, 301, 32, KvDtype::F32),
        (Model::Mixed, 300, 16, KvDtype::Int8),
        (Model::Sliding, 83, 32, KvDtype::F16),
    ] {
        let run = |n: usize, seed: u64, copy: CpuKernel| {
            let config = limits(Serving {
                block_size,
                chunk: 100,
                ..PLAIN
            });
            let vocab = model.checkpoint().config.vocab_size;
            let executor = CpuExecutor::default().with_kernel("kv_copy", copy);
            let (executor, logits) = LogitsBits::new(executor, vocab);
            let mut engine = engine(executor, model, config, caching(kv));
            let params = SamplingParams {
                max_tokens: 20,
                ignore_eos: true,
                temperature: 1.0,
                logprobs: Some(0),
                seed,
                n,
                ..SamplingParams::default()
            };
            let answers = pollster::block_on(engine.generate(vec![(prompt(len), params)]));
            let answers = answers.expect("a device").into_iter();
            let ids = answers.map(|answer| answer.expect("an answer").token_ids);
            let ids: Vec<_> = ids.collect();
            let mut rows = logits.take();
            rows.sort_unstable();
            (ids, rows)
        };
        let kernel = reference("kv_copy");
        let mut alone = (Vec::new(), Vec::new());
        for seed in 5..8 {
            let (ids, rows) = run(1, seed, kernel);
            alone.0.extend(ids);
            alone.1.extend(rows);
        }
        alone.1.sort_unstable();
        assert_ne!(alone.0[0], alone.0[1], "seeds differ");
        assert!(run(3, 5, kernel) == alone, "{model:?}");
        // Without the copies nothing is right.
        assert!(run(3, 5, |_, _, _, _| ()) != alone, "{model:?}");
    }
}

/// Three requests in pages for two: whoever gives way comes back with pages computed again, or moved
/// to the host and back.
#[test]
fn preemption_changes_nothing() {
    for (model, blocks, kv) in [
        (Model::Full, 41, KvDtype::F32),
        (Model::Mixed, 41, KvDtype::Int8),
    ] {
        let run = |num_blocks, preemption_mode, enable_prefix_caching, run_ahead| {
            let config = SchedulerConfig {
                num_blocks,
                preemption_mode,
                enable_prefix_caching,
                ..limits(Serving {
                    block_size: 16,
                    chunk: 100,
                    run_ahead,
                    ..PLAIN
                })
            };
            let vocab = model.checkpoint().config.vocab_size;
            let (executor, logits) = LogitsBits::new(CpuExecutor::default(), vocab);
            let mut engine = engine(executor, model, config, caching(kv));
            let requests = [200, 201, 203].map(|len| {
                let params = SamplingParams {
                    max_tokens: 24,
                    ignore_eos: true,
                    logprobs: Some(0),
                    ..SamplingParams::default()
                };
                (prompt(len), params)
            });
            let answers = pollster::block_on(engine.generate(requests.to_vec()));
            let ids = answers.expect("a device").into_iter();
            let ids = ids.map(|answer| answer.expect("an answer").token_ids);
            let mut rows = logits.take();
            rows.sort_unstable();
            let metrics = engine.scheduler().cache_metrics();
            let preemptions = (
                metrics.num_preemptions_recompute,
                metrics.num_preemptions_swap,
            );
            ((ids.collect::<Vec<_>>(), rows), preemptions)
        };
        let (plain, none) = run(60, PreemptionMode::Recompute, false, 0);
        assert_eq!(none, (0, 0));
        for (mode, caching, run_ahead) in [
            (PreemptionMode::Recompute, true, 1),
            (PreemptionMode::Swap, false, 0),
            (PreemptionMode::Swap, true, 3),
        ] {
            let (answers, (recomputed, swapped)) = run(blocks, mode, caching, run_ahead);
            let swaps = mode == PreemptionMode::Swap;
            assert_eq!((recomputed == 0, swapped == 0), (swaps, !swaps));
            assert!(answers == plain, "{model:?}, {mode:?}, {caching}");
        }
    }
}

/// Everything that ends an answer or makes a draw depend on those before it, beside plain answers, with
/// steps in flight; one is aborted on the way.
#[test]
fn steps_in_flight_change_nothing() {
    let run = |run_ahead, num_blocks, stop: Option<u32>| {
        let config = SchedulerConfig {
            num_blocks,
            preemption_mode: PreemptionMode::Swap,
            enable_prefix_caching: num_blocks < 40,
            ..limits(Serving {
                block_size: 16,
                chunk: 24,
                run_ahead,
                ..PLAIN
            })
        };
        let executor = CpuExecutor::default();
        let mut engine = engine(executor, Model::Mixed, config, RunnerOptions::default());
        let plain = SamplingParams {
            max_tokens: 18,
            temperature: 1.0,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let penalized = SamplingParams {
            frequency_penalty: 0.7,
            repetition_penalty: 1.3,
            bad_words: vec![vec![3, 4]],
            ..plain.clone()
        };
        let ended = SamplingParams {
            stop_token_ids: stop.into_iter().collect(),
            min_tokens: 2,
            logprobs: Some(2),
            ..plain.clone()
        };
        let several = SamplingParams {
            n: 2,
            ..ended.clone()
        };
        let requests = [
            (40, &plain),
            (33, &penalized),
            (17, &ended),
            (50, &several),
            (60, &plain),
        ];
        let ids = requests.map(|(len, params)| {
            let seeded = SamplingParams {
                seed: len as u64,
                ..params.clone()
            };
            engine.add_request(prompt(len), seeded).expect("fits")
        });
        let mut answers = std::collections::BTreeMap::new();
        while engine.has_unfinished_requests() {
            let outputs = pollster::block_on(engine.step()).expect("a device");
            for output in outputs {
                let answer: &mut (Vec<u32>, Vec<u32>, _) = answers
                    .entry((output.request_id, output.index))
                    .or_default();
                let logprobs = output.logprobs.iter().flat_map(|l| &l.top);
                answer
                    .1
                    .extend(logprobs.flat_map(|(id, l)| [*id, l.to_bits()]));
                answer.0.extend(output.token_ids);
                answer.2 = output.finished;
                if output.request_id == ids[4] && answer.0.len() == 5 {
                    engine.abort(ids[4]);
                }
            }
            engine.scheduler().check_integrity().expect("sound");
        }
        let metrics = engine.scheduler().cache_metrics();
        (answers, metrics.num_preemptions_swap)
    };
    let (free, _) = run(0, 60, None);
    // An id that the third answer draws in the middle ends it, and perhaps others.
    let stop = free.values().nth(2).map(|answer| answer.0[6]);
    let (alone, _) = run(0, 60, stop);
    let third = &alone.values().nth(2).expect("an answer").0;
    assert!((2..=6).contains(&third.len()) && alone != free);
    let mut swapped = 0;
    for (run_ahead, num_blocks) in [(1, 60), (3, 60), (2, 8), (1, 8)] {
        let (answers, swaps) = run(run_ahead, num_blocks, stop);
        swapped += swaps;
        assert!(answers == alone, "{run_ahead} ahead, {num_blocks} blocks");
    }
    assert!(swapped > 0);
}

/// Generates token after token where the pages hold a window and no more.
#[test]
fn a_long_answer_takes_no_more_pages_than_its_window() {
    let answer = |num_blocks| {
        let config = SchedulerConfig {
            num_blocks,
            ..limits(Serving {
                block_size: 16,
                ..PLAIN
            })
        };
        let (executor, options) = (CpuExecutor::default(), RunnerOptions::default());
        let mut engine = engine(executor, Model::Sliding, config, options);
        let params = SamplingParams {
            max_tokens: 150,
            ignore_eos: true,
            temperature: 1.0,
            ..SamplingParams::default()
        };
        engine.add_request(prompt(100), params).expect("fits");
        let (mut ids, mut most) = (Vec::new(), 0);
        while engine.has_unfinished_requests() {
            for output in pollster::block_on(engine.step()).expect("a device") {
                ids.extend(output.token_ids);
            }
            let kv = engine.scheduler().kv_cache();
            most = most.max(kv.num_usable_blocks() - kv.num_free_blocks());
        }
        (ids, most)
    };
    let (ids, held) = answer(1 + 768 / 16);
    assert_eq!(ids.len(), 150);
    // A window of 37 lies in four pages at most, and needs them.
    assert!(held <= 4, "{held} pages");
    assert_eq!(answer(1 + 4), (ids, held));
}

fn serving() -> impl Strategy<Value = Serving> {
    (
        prop::sample::select(vec![7, 64, 512]),
        prop::sample::select(vec![16, 32]),
        prop::sample::select(vec![70, 520]),
        1usize..=4,
        any::<bool>(),
        prop::sample::select(KvDtype::ALL.to_vec()),
        0usize..4,
    )
        .prop_map(
            |(chunk, block_size, tokens, decode_queries, together, kv, run_ahead)| Serving {
                chunk,
                block_size,
                max_num_batched_tokens: tokens,
                decode_queries,
                together,
                kv,
                run_ahead,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_same_bits_however_served(
        model in prop::sample::select(MODELS.to_vec()),
        lengths in prop::collection::vec(prop::sample::select(LENGTHS.to_vec()), 1..=3),
        serving in serving(),
    ) {
        let served = bits(CpuExecutor::default(), model, &lengths, serving);
        prop_assert!(served == plain_all(model, serving.kv, &lengths));
    }
}

fn reference(name: &str) -> CpuKernel {
    KERNELS
        .iter()
        .find(|(kernel, _)| *kernel == name)
        .map(|&(_, kernel)| kernel)
        .expect("a kernel")
}

/// `attention_decode` and `attention_merge` with parts of 288 keys instead of 256: the right
/// answer, by a chain of its own.
fn long_parts(
    name: &'static str,
    key: &KernelKey,
    params: &[u8],
    b: &mut Bound<'_>,
    grid: [u32; 3],
) {
    let mut key = key.clone();
    for (constant, value) in &mut key.consts {
        if *constant == "PART_KEYS" {
            *value = 288;
        }
    }
    reference(name)(&key, params, b, grid);
}

#[test]
fn a_wrong_border_is_noticed() {
    let mutant = || {
        CpuExecutor::default()
            .with_kernel("attention_decode", |key, params, b, grid| {
                long_parts("attention_decode", key, params, b, grid);
            })
            .with_kernel("attention_merge", |key, params, b, grid| {
                long_parts("attention_merge", key, params, b, grid);
            })
    };
    // Up to the border nothing can differ; two blocks beyond it something must.
    for (len, same) in [(250, true), (300, false)] {
        let served = bits(mutant(), Model::Full, &[len], PLAIN);
        let plain = plain(Model::Full, KvDtype::F32, len);
        assert_eq!(served == plain, same, "{len}");
    }
}

#[test]
fn a_wrong_window_is_noticed() {
    let mutant = CpuExecutor::default().with_kernel("attention_decode", |key, params, b, grid| {
        let mut params: AttentionDecodeParams = bytemuck::pod_read_unaligned(params);
        // One key more where there is a window.
        params.window += u32::from(params.window > 0);
        reference("attention_decode")(key, bytemuck::bytes_of(&params), b, grid);
    });
    let served = bits(mutant, Model::Mixed, &[100], PLAIN);
    assert!(served != plain(Model::Mixed, KvDtype::F32, 100));
}
