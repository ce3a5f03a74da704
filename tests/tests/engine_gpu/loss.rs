//! A device that is lost in the middle of a batch: another in its place, and the same tokens.

use super::{device, tiny};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::{RequestId, SamplingParams};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{Losing, Loss};

/// What five requests get where the device is lost at these launches, each counted from the loss
/// before, and how many launches were left when all was said.
fn generate<E: Executor>(
    open: impl Fn() -> E,
    loss: fn() -> Loss<E>,
    lost_after: &[usize],
) -> BTreeMap<RequestId, Vec<u32>> {
    let checkpoint = tiny().checkpoint();
    let config = SchedulerConfig {
        max_num_seqs: 3,
        max_model_len: 128,
        max_num_batched_tokens: 24,
        block_size: 16,
        num_blocks: 12,
        preemption_mode: PreemptionMode::Swap,
        ..SchedulerConfig::default()
    };
    let left = Rc::new(Cell::new(None));
    let load = || {
        let executor = Losing::new(open(), Rc::clone(&left), loss());
        let options = RunnerOptions::default();
        ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads")
    };
    let clock = ManualClock::default();
    let core = EngineCore::new(load(), clock, &checkpoint.config, config.clone());
    let mut engine = core.expect("an engine");
    for len in [1, 30, 50, 17, 40] {
        let params = SamplingParams {
            max_tokens: 12,
            temperature: 0.9,
            seed: len,
            repetition_penalty: 1.1,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let prompt = (1..=len as u32).collect();
        engine.add_request(prompt, params).expect("a request");
    }
    let mut losses = lost_after.iter();
    left.set(losses.next().copied());
    let mut lost = 0;
    let mut answers: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    while engine.has_unfinished_requests() {
        match pollster::block_on(engine.step()) {
            Ok(outputs) => {
                for output in outputs {
                    let answer = answers.entry(output.request_id).or_default();
                    answer.extend(output.token_ids);
                }
            }
            Err(error) => {
                assert!(error.is_device_lost(), "{error}");
                lost += 1;
                left.set(losses.next().copied());
                engine.replace_runner(load());
            }
        }
        engine.scheduler().check_integrity().expect("whole");
    }
    assert_eq!(lost, lost_after.len(), "every loss was noticed");
    assert!(answers.values().all(|ids| ids.len() == 12));
    answers
}

#[test]
fn the_reference_goes_on_with_the_same_tokens() {
    let open = CpuExecutor::default;
    let whole = generate(open, || Loss::Claimed, &[]);
    for launches in (0..60).step_by(3) {
        let lost = generate(open, || Loss::Claimed, &[launches]);
        assert_eq!(lost, whole, "lost at launch {launches}");
    }
    assert_eq!(generate(open, || Loss::Claimed, &[7, 0, 1, 5]), whole);
}

#[test]
fn a_destroyed_device_is_replaced_with_the_same_tokens() {
    let destroy = || Loss::Real(|gpu: &_| destroy(gpu));
    let whole = generate(device, destroy, &[]);
    for launches in [&[0][..], &[5], &[12], &[9, 4]] {
        assert_eq!(generate(device, destroy, launches), whole, "{launches:?}");
    }
}

fn destroy(gpu: &twoclock_shaders::gpu::WgpuExecutor) {
    gpu.device().destroy();
}
