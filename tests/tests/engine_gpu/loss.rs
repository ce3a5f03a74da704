//! A device that is lost in the middle of a batch: another in its place, and the same tokens.

use super::{device, options, tiny};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, NumericsClass};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::{RequestId, SamplingParams};
use twoclock_shaders::caps::{Caps, Coop};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::{Losing, Loss};

/// What five requests get where the device is lost at these launches, each counted from the loss
/// before, and how many launches were left when all was said.
fn generate<E: Executor>(
    class: NumericsClass,
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
        let options = options(class, KvDtype::F16);
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
    let open = || {
        CpuExecutor::new(Caps {
            coop: Some(Coop { subgroup: 32 }),
            ..Caps::reference()
        })
    };
    for class in NumericsClass::ALL {
        let run = |lost_after: &[usize]| generate(class, open, || Loss::Claimed, lost_after);
        let whole = run(&[]);
        for launches in (class as usize..60).step_by(6) {
            assert_eq!(run(&[launches]), whole, "{class:?}, at launch {launches}");
        }
        assert_eq!(run(&[7, 0, 1, 5]), whole, "{class:?}");
    }
}

#[test]
fn a_destroyed_device_is_replaced_with_the_same_tokens() {
    let destroy = || Loss::Real(|gpu: &_| destroy(gpu));
    let all = [&[0][..], &[5], &[12], &[9, 4]];
    for (class, losses) in [
        (NumericsClass::Int8, &all[..]),
        (NumericsClass::F16, &all[1..2]),
    ] {
        let run = |lost_after: &[usize]| generate(class, device, destroy, lost_after);
        let whole = run(&[]);
        for launches in losses {
            assert_eq!(run(launches), whole, "{class:?}, {launches:?}");
        }
    }
}

fn destroy(gpu: &twoclock_shaders::gpu::WgpuExecutor) {
    gpu.device().destroy();
}
