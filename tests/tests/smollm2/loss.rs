//! A device that is lost under a real model and its readers.

use super::checkpoint;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{
    EngineCore, EngineDriver, HandleOptions, LlmEngine, Prompt, RetryPolicy, RunnerFactory,
};
use twoclock_core::error::Error;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};
use twoclock_tests::{Losing, Loss, Reference};

/// Opens a device and loads the model; the device is destroyed at the launch after so many.
struct Devices {
    checkpoint: Checkpoint,
    config: SchedulerConfig,
    launches_left: Rc<Cell<Option<usize>>>,
    opened: Rc<Cell<usize>>,
}

impl RunnerFactory for Devices {
    type Runner = ModelRunner<Losing<WgpuExecutor>>;

    async fn create(&mut self) -> Result<Self::Runner, Error> {
        let device = GpuDevice::open(DeviceOptions::default()).await?;
        self.opened.set(self.opened.get() + 1);
        let destroy = Loss::Real(|gpu: &WgpuExecutor| gpu.device().destroy());
        let left = Rc::clone(&self.launches_left);
        let executor = Losing::new(WgpuExecutor::new(device), left, destroy);
        let options = RunnerOptions::default();
        ModelRunner::load(executor, &self.checkpoint, &self.config, options, |_| ())
    }

    async fn wait(&mut self, span: Duration) {
        std::thread::sleep(span);
    }
}

/// The device is destroyed while four streams are under way; another takes its place, and no reader
/// notices.
#[test]
fn a_lost_device_changes_no_token() {
    let checkpoint = checkpoint();
    let config = SchedulerConfig {
        max_model_len: 256,
        num_blocks: 1 + 1024 / 32,
        ..SchedulerConfig::default()
    };
    let text = Reference::read("smollm2.json").text();
    let answers = |launches: Option<usize>| {
        let (left, opened) = (Rc::default(), Rc::default());
        let mut devices = Devices {
            checkpoint: checkpoint.clone(),
            config: config.clone(),
            launches_left: Rc::clone(&left),
            opened: Rc::clone(&opened),
        };
        let runner = pollster::block_on(devices.create()).expect("loads");
        let clock = ManualClock::default();
        let core = EngineCore::new(runner, clock, &checkpoint.config, config.clone());
        let tokenizer = Tokenizer::from_assets(&checkpoint.text).expect("a tokenizer");
        let engine = LlmEngine::new(core.expect("an engine"), tokenizer);
        let engine = engine.with_factory(devices, RetryPolicy::default());
        let (mut driver, handle) = EngineDriver::new(engine, HandleOptions::default());
        let streams: Vec<_> = [1, 30, 70, 100]
            .into_iter()
            .map(|len| {
                let params = SamplingParams {
                    max_tokens: 10,
                    temperature: 0.8,
                    seed: len as u64,
                    ignore_eos: true,
                    ..SamplingParams::default()
                };
                let prompt = Prompt::TokenIds(text[len..2 * len].to_vec());
                handle.submit(prompt, params).expect("room")
            })
            .collect();
        left.set(launches);
        handle.drain();
        pollster::block_on(driver.run()).expect("an end in order");
        assert_eq!(opened.get(), 1 + usize::from(launches.is_some()));
        let ids = streams.into_iter().map(|mut stream| {
            let mut ids = Vec::new();
            while let Some(piece) = pollster::block_on(stream.next()) {
                ids.extend(piece.expect("no reader notices").output.token_ids);
            }
            ids
        });
        ids.collect::<Vec<_>>()
    };
    let whole = answers(None);
    assert!(whole.iter().all(|ids| ids.len() == 10));
    assert_eq!(answers(Some(9)), whole);
}
