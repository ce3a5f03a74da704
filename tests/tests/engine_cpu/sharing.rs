//! Pages that several requests share: of a beginning computed before, and of one prompt with several
//! answers.

use super::{Model, PLAIN, Serving, engine, kernel, limits, options, prompt, reference};
use twoclock_core::runner::NumericsClass;
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::cpu::CpuKernel;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::LogitsBits;

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
fn conversation(
    model: Model,
    (class, kind): (NumericsClass, DeviceKind),
    kv: KvDtype,
    config: SchedulerConfig,
) -> (Conversation, Vec<usize>) {
    let vocab = model.checkpoint().config.vocab_size;
    let (executor, logits) = LogitsBits::new(reference(class, kind), vocab);
    let mut engine = engine(executor, model, config, options(class, kv));
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
    use DeviceKind::{Cpu, Gpu};
    use NumericsClass::{Coop, F16, F32, Int8};
    for (model, block_size, kv, on) in [
        (Model::Full, 32, KvDtype::Int8, (F32, Cpu)),
        (Model::Mixed, 16, KvDtype::F32, (Int8, Cpu)),
        (Model::Sliding, 32, KvDtype::F16, (F16, Gpu)),
        (Model::Gemma, 16, KvDtype::F32, (Coop, Gpu)),
    ] {
        let config = |enable_prefix_caching| SchedulerConfig {
            enable_prefix_caching,
            ..limits(Serving {
                block_size,
                chunk: 100,
                ..PLAIN
            })
        };
        let (plain, none) = conversation(model, on, kv, config(false));
        assert_eq!(none, [0; 5]);
        let (shared, cached) = conversation(model, on, kv, config(true));
        assert!(shared == plain, "{model:?} {on:?}");
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
    use DeviceKind::{Cpu, Gpu};
    use NumericsClass::{Coop, F16, F32, Int8};
    for (model, len, block_size, kv, (class, kind)) in [
        (Model::Full, 301, 32, KvDtype::F32, (Int8, Cpu)),
        (Model::Mixed, 300, 16, KvDtype::Int8, (F16, Gpu)),
        (Model::Sliding, 83, 32, KvDtype::F16, (Coop, Gpu)),
        (Model::Mixture, 50, 16, KvDtype::F32, (F32, Gpu)),
    ] {
        let run = |n: usize, seed: u64, copy: CpuKernel| {
            let config = limits(Serving {
                block_size,
                chunk: 100,
                ..PLAIN
            });
            let vocab = model.checkpoint().config.vocab_size;
            let executor = reference(class, kind).with_kernel("kv_copy", copy);
            let (executor, logits) = LogitsBits::new(executor, vocab);
            let mut engine = engine(executor, model, config, options(class, kv));
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
        let copy = kernel("kv_copy");
        let mut alone = (Vec::new(), Vec::new());
        for seed in 5..8 {
            let (ids, rows) = run(1, seed, copy);
            alone.0.extend(ids);
            alone.1.extend(rows);
        }
        alone.1.sort_unstable();
        assert_ne!(alone.0[0], alone.0[1], "seeds differ");
        assert!(run(3, 5, copy) == alone, "{model:?} {class:?}");
        // Without the copies nothing is right.
        assert!(run(3, 5, |_, _, _, _| ()) != alone, "{model:?}");
    }
}
