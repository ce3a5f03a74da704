//! Recorded rows against a plain account of the model, and against themselves however they are served.

use crate::{PLAIN, engine, golden, limits};
use twoclock_core::error::Error;
use twoclock_core::model::{Tap, Taps, TapsError};
use twoclock_core::runner::{ComputeDtype, KvCacheDtype, MemoryPlan, ModelRunner, RunnerOptions};
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{Expected, PlainDecoder, gpu};

fn taps() -> Taps {
    Taps {
        layers: vec![0, 1, 2],
        hidden: true,
    }
}

fn options(taps: Taps) -> RunnerOptions {
    RunnerOptions {
        taps,
        ..RunnerOptions::exact()
    }
}

/// The recorded rows of each prompt's tokens, in order, and the token that was drawn after them.
fn recorded(
    executor: impl Executor,
    checkpoint: &Checkpoint,
    prompts: &[Vec<u32>],
    chunk: usize,
    tap: Tap,
) -> Vec<(Vec<f32>, Vec<u32>)> {
    let hidden = checkpoint.config.hidden_size;
    let mut engine = engine(executor, checkpoint, limits(chunk), options(taps()));
    let params = SamplingParams {
        max_tokens: 1,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let ids = prompts
        .iter()
        .map(|prompt| engine.add_request(prompt.clone(), params.clone()))
        .collect::<Result<Vec<_>, _>>()
        .expect("requests");
    let mut rows = vec![(Vec::new(), Vec::new()); prompts.len()];
    while engine.has_unfinished_requests() {
        let before: Vec<_> = rows.iter().map(|(rows, _)| rows.len() / hidden).collect();
        for output in pollster::block_on(engine.step()).expect("a device") {
            let place = ids.iter().position(|id| *id == output.request_id);
            rows[place.expect("one of them")].1.extend(output.token_ids);
        }
        // The rows lie in the order of the step's tokens: sequence after sequence, oldest first.
        let mut at = 0;
        for (place, id) in ids.iter().enumerate() {
            let request = engine.scheduler().request(*id);
            let computed = request.map_or(prompts[place].len(), |r| r.num_computed_tokens());
            let end = at + computed - before[place];
            let read = engine.runner_mut().read_tap(tap, at..end);
            rows[place]
                .0
                .extend(pollster::block_on(read).expect("recorded"));
            at = end;
        }
    }
    rows
}

fn prompts() -> Vec<Vec<u32>> {
    let expected = Expected::read(PLAIN).into_iter();
    expected.map(|case| case.input_ids).collect()
}

fn close(what: &str, rows: &[f32], expected: &[Vec<f64>]) {
    let expected = expected.concat();
    assert_eq!(rows.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0, |most: f64, v| most.max(v.abs()));
    for (row, expected) in rows.iter().zip(expected) {
        let difference = (f64::from(*row) - expected).abs();
        assert!(difference <= 2e-5 * largest, "{what}: {row}, {expected}");
    }
}

#[test]
fn what_is_recorded_is_what_is_computed() {
    let plain = PlainDecoder::golden(PLAIN);
    let checkpoint = golden("models/mistral_full");
    let states: Vec<_> = prompts().iter().map(|ids| plain.states(ids)).collect();
    // The plain account is right: it gives the logits of the reference implementation.
    for (states, case) in states.iter().zip(Expected::read(PLAIN)) {
        let logits = states.logits.concat();
        assert_eq!(logits.len(), case.logits.len());
        for (ours, theirs) in logits.iter().zip(&case.logits) {
            assert!((ours - f64::from(*theirs)).abs() < 1e-3);
        }
    }
    for tap in taps().iter() {
        let cpu = recorded(CpuExecutor::default(), &checkpoint, &prompts(), 64, tap);
        let device = recorded(&mut *gpu(), &checkpoint, &prompts(), 64, tap);
        for (place, states) in states.iter().enumerate() {
            let expected = match tap {
                Tap::Layer(layer) => &states.layers[layer],
                Tap::Hidden => &states.hidden,
            };
            close(&format!("{tap} on the reference"), &cpu[place].0, expected);
            close(&format!("{tap} on the device"), &device[place].0, expected);
        }
    }
}

/// Some of the prompts alone, all together, in chunks.
fn check_bits<E: Executor>(executor: &mut E, alone: &[usize]) {
    let checkpoint = golden("models/mistral_full");
    for tap in [Tap::Layer(1), Tap::Hidden] {
        let together = [64, 7].map(|c| recorded(&mut *executor, &checkpoint, &prompts(), c, tap));
        assert!(together[0] == together[1], "{tap} in chunks");
        for &place in alone {
            let prompt = &prompts()[place..=place];
            let alone = recorded(&mut *executor, &checkpoint, prompt, 64, tap);
            assert_eq!(alone[0].1.len(), 1);
            assert!(alone[0] == together[0][place], "{tap} of {place}");
        }
    }
}

#[test]
fn the_same_bits_however_served() {
    check_bits(&mut CpuExecutor::default(), &[0, 1, 2]);
    check_bits(&mut *gpu(), &[1]);
}

/// What is not asked for is not recorded, by a program of its own.
#[test]
fn a_step_records_what_is_asked_for() {
    let checkpoint = golden("models/mistral_full");
    let executor = CpuExecutor::default();
    let mut engine = engine(executor, &checkpoint, limits(1), options(taps()));
    let params = SamplingParams {
        max_tokens: 0,
        ..SamplingParams::default()
    };
    engine.add_request(vec![5, 6, 7], params).expect("fits");
    let mut step = |taps: &Taps| {
        engine.runner_mut().record(taps).expect("loaded with them");
        pollster::block_on(engine.step()).expect("a device");
        let all = self::taps();
        engine.runner_mut().record(&all).expect("loaded with them");
        [Tap::Layer(1), Tap::Hidden].map(|tap| {
            let rows = engine.runner_mut().read_tap(tap, 0..1);
            pollster::block_on(rows).expect("there is a buffer")
        })
    };
    let hidden = Taps {
        layers: Vec::new(),
        hidden: true,
    };
    let [layer, first] = step(&hidden);
    assert_eq!(layer, vec![0.0; 64]);
    let [layer, second] = step(&taps());
    assert!(layer.iter().any(|v| *v != 0.0));
    assert!(first != second && first.iter().any(|v| *v != 0.0));
    let [kept, third] = step(&hidden);
    assert_eq!(kept, layer);
    assert_ne!(third, second);
}

#[test]
fn taps_are_counted_chosen_and_refused_by_name() {
    let checkpoint = golden("models/mistral_full");
    let (config, executor) = (limits(64), CpuExecutor::default());
    let plan = |taps: &Taps| {
        let plan = MemoryPlan::new(
            executor.caps(),
            &checkpoint,
            &config,
            ComputeDtype::Auto,
            KvCacheDtype::Auto,
        )
        .expect("a plan");
        plan.with_taps(executor.caps(), &checkpoint.config, &config, taps)
    };
    let none = plan(&Taps::default()).expect("a plan").total();
    let all = plan(&taps()).expect("a plan").total();
    assert_eq!(all - none, 4 * 4 * 64 * 64);
    let deep = Taps {
        layers: vec![1, 3],
        hidden: false,
    };
    let refused = TapsError::NoSuchLayer {
        tap: Tap::Layer(3),
        layers: 3,
    };
    assert!(matches!(plan(&deep), Err(Error::Taps(error)) if error == refused));

    let load = |taps| {
        let executor = CpuExecutor::default();
        ModelRunner::load(executor, &checkpoint, &config, options(taps), |_| ()).expect("loads")
    };
    let mut runner = load(taps());
    let hidden = Taps {
        layers: Vec::new(),
        hidden: true,
    };
    runner.record(&hidden).expect("it was loaded with it");
    runner.tap(Tap::Hidden).expect("recorded");
    assert_eq!(
        runner.tap(Tap::Layer(1)),
        Err(TapsError::NotRecorded(Tap::Layer(1)))
    );
    let rows = pollster::block_on(runner.read_tap(Tap::Hidden, 60..65));
    assert!(matches!(
        rows,
        Err(Error::Taps(TapsError::NoSuchRows { .. }))
    ));
    let mut runner = load(Taps::default());
    let refused = TapsError::NotRecorded(Tap::Hidden);
    assert_eq!(runner.record(&hidden), Err(refused));
}
