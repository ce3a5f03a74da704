//! An engine on its own thread: asked from several threads, ended in order, and with a fault.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use pollster::block_on;
use twoclock::engine_thread::EngineThread;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::engine::{EngineCore, EngineHandle, HandleOptions, LlmEngine, Prompt};
use twoclock_core::error::Result;
use twoclock_core::runner::{ExecuteModel, ModelRunner, RunnerOptions};
use twoclock_core::sched::{ModelRunnerOutput, SchedulerConfig, SchedulerOutput};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{FinishReason, SamplingParams, TokenId};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/golden")
            .join(name),
    )
    .unwrap()
}

/// A model of a test, that meets a fault after so many steps.
struct Faulty<R> {
    inner: R,
    steps: usize,
}

impl<R: ExecuteModel> ExecuteModel for Faulty<R> {
    type Launched = R::Launched;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<R::Launched> {
        self.steps = self.steps.checked_sub(1).expect("a fault of a test");
        self.inner.launch_step(step).await
    }

    async fn finish_step(&mut self, launched: R::Launched) -> Result<ModelRunnerOutput> {
        self.inner.finish_step(launched).await
    }
}

type Engine = LlmEngine<Faulty<ModelRunner<CpuExecutor>>, ManualClock>;

fn engine(steps: usize) -> anyhow::Result<Engine> {
    let source = ("Q4_0.gguf".to_owned(), golden("gguf/Q4_0.gguf"));
    let checkpoint = Checkpoint::from_gguf(Arc::new(source))?;
    let tokenizer = Tokenizer::from_json(&golden("tokenizer/tokenizer.json"), None, None)?;
    let config = SchedulerConfig {
        max_model_len: 128,
        ..SchedulerConfig::default()
    };
    let options = RunnerOptions::default();
    let inner = ModelRunner::load(
        CpuExecutor::default(),
        &checkpoint,
        &config,
        options,
        |_| (),
    )?;
    let runner = Faulty { inner, steps };
    let core = EngineCore::new(runner, ManualClock::default(), &checkpoint.config, config)?;
    Ok(LlmEngine::new(core, tokenizer))
}

fn ask(handle: &EngineHandle, first: TokenId) -> std::result::Result<Vec<TokenId>, StreamError> {
    let params = SamplingParams {
        max_tokens: 12,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let prompt = Prompt::TokenIds(vec![first, 2, 3]);
    let mut stream = handle.submit(prompt, params).unwrap();
    let mut ids = Vec::new();
    while let Some(piece) = block_on(stream.next()) {
        let output = piece?.output;
        ids.extend(output.token_ids);
        if let Some(finished) = output.finished {
            assert_eq!(finished, Ok(FinishReason::Length));
        }
    }
    Ok(ids)
}

#[test]
fn threads_share_an_engine_and_it_ends_when_asked() {
    let ended = Arc::new(AtomicBool::new(false));
    let at_end = Arc::clone(&ended);
    let spawned = EngineThread::spawn(
        HandleOptions::default(),
        || engine(usize::MAX),
        move |_| at_end.store(true, Ordering::SeqCst),
    );
    let engine = spawned.unwrap();
    let alone: Vec<_> = (1..5)
        .map(|id| ask(&engine.handle(), id).unwrap())
        .collect();
    assert!(alone.iter().all(|ids| ids.len() == 12));
    let threads: Vec<_> = (1..5)
        .map(|id| {
            let handle = engine.handle();
            thread::spawn(move || ask(&handle, id).unwrap())
        })
        .collect();
    let together: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(together, alone);
    engine.join().unwrap();
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn a_fault_ends_all_streams_and_says_what_it_was() {
    let spawned = EngineThread::spawn(HandleOptions::default(), || engine(6), |_| ());
    let engine = spawned.unwrap();
    let (told, tells) = mpsc::channel();
    for id in 1..4 {
        let (handle, told) = (engine.handle(), told.clone());
        thread::spawn(move || told.send(ask(&handle, id)).unwrap());
    }
    for _ in 1..4 {
        match tells.recv().unwrap() {
            Err(StreamError::Panicked(fault)) => assert_eq!(fault, "a fault of a test"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(engine.join(), Err(StreamError::Panicked(_))));
}

#[test]
fn what_keeps_an_engine_from_being_made_is_told() {
    let refused = EngineThread::spawn(
        HandleOptions::default(),
        || -> anyhow::Result<Engine> { anyhow::bail!("no such file") },
        |_| (),
    );
    assert_eq!(refused.unwrap_err().to_string(), "no such file");
    let refused = EngineThread::spawn(
        HandleOptions::default(),
        || -> anyhow::Result<Engine> { panic!("a fault of a test") },
        |_| (),
    );
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "loading met a fault: a fault of a test");
}
