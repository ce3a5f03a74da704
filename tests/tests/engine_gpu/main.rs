//! The executor on a device, as the engine uses it: submits, their cuts, bad programs and a lost
//! device.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod bindings;
mod experts;
mod fusion;
mod loss;
mod run_ahead;
mod sharing;
mod submits;

use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::error::Error;
use twoclock_core::runner::{
    ComputeDtype, KvCacheDtype, ModelRunner, NumericsClass, RunnerOptions,
};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::residual::{ResidualParams, dispatch};
use twoclock_shaders::program::{Command, CountId, Program, Slice, StepArgs};
use twoclock_tests::{Limited, LogitsBits, Synthetic};

fn device() -> WgpuExecutor {
    let device = pollster::block_on(GpuDevice::open(DeviceOptions::default()));
    WgpuExecutor::new(device.expect("a Vulkan device; tests/run.sh installs a software one"))
}

fn tiny() -> Synthetic {
    Synthetic {
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 3,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 32,
        vocab_size: 100,
        max_position_embeddings: 128,
        seed: 7,
    }
}

/// In this class, with pages of this type.
fn options(class: NumericsClass, dtype: KvDtype) -> RunnerOptions {
    RunnerOptions {
        compute_dtype: ComputeDtype::Of(class),
        kv_cache_dtype: KvCacheDtype::Of(dtype),
        ..RunnerOptions::default()
    }
}

/// A device that is given the programs of GPUs.
fn as_gpu(caps: &Caps) -> Caps {
    Caps {
        kind: DeviceKind::Gpu,
        ..caps.clone()
    }
}

/// Every row of logits of three requests, sorted.
fn logits(
    device: impl Executor,
    checkpoint: &Checkpoint,
    options: RunnerOptions,
    chunk: usize,
    block_size: usize,
    together: bool,
) -> Vec<Vec<u32>> {
    let config = SchedulerConfig {
        max_num_seqs: 3,
        max_model_len: 128,
        max_num_batched_tokens: 64,
        max_prefill_chunk: Some(chunk),
        block_size,
        num_blocks: 1 + 256 / block_size,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let (executor, logits) = LogitsBits::new(device, checkpoint.config.vocab_size);
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let requests = [1, 30, 50].map(|len| {
        let params = SamplingParams {
            max_tokens: 25,
            ignore_eos: true,
            logprobs: Some(0),
            ..SamplingParams::default()
        };
        ((1..=len).collect::<Vec<u32>>(), params)
    });
    for wave in requests.chunks(if together { 3 } else { 1 }) {
        let answers = pollster::block_on(engine.generate(wave.to_vec()));
        for answer in answers.expect("a device") {
            assert_eq!(answer.expect("an answer").token_ids.len(), 25);
        }
    }
    let mut rows = logits.take();
    assert_eq!(rows.len(), 3 * 25, "a row a token");
    rows.sort_unstable();
    rows
}

/// A model with layers of either kind, one with experts, one with norms around everything; and classes but
/// that of cooperative matrices, which software does not have.
#[test]
fn the_same_bits_however_served() {
    // A head of 40 dims has a group cut short.
    let odd = Synthetic {
        head_dim: 40,
        ..tiny()
    };
    use NumericsClass::{F16, F32, Int8};
    for (name, checkpoint, class, dtype) in [
        (
            "windowed",
            tiny().windowed(11, &[true, false, true]),
            F32,
            KvDtype::F32,
        ),
        ("mixture", tiny().mixture(5, 36), Int8, KvDtype::F16),
        ("gemma", tiny().gemma(11), F16, KvDtype::F32),
        (
            "int8",
            odd.windowed(11, &[true, false, true]),
            Int8,
            KvDtype::Int8,
        ),
        (
            "halves",
            odd.windowed(11, &[true, false, true]),
            F16,
            KvDtype::F16,
        ),
    ] {
        let options = || options(class, dtype);
        let plain = logits(device(), &checkpoint, options(), 64, 32, false);
        let ways = [(64, 16), (7, 32), (3, 16)];
        let few = if name == "halves" { 1..2 } else { 0..3 };
        for &(chunk, block_size) in &ways[few] {
            let served = logits(device(), &checkpoint, options(), chunk, block_size, true);
            assert!(
                served == plain,
                "{name} in chunks of {chunk}, pages of {block_size}"
            );
        }
        if name == "halves" {
            let gpu = Limited::new(device(), as_gpu);
            let served = logits(gpu, &checkpoint, options(), 7, 16, true);
            assert!(served == plain, "{name} by the programs of GPUs");
        }
    }
}

#[test]
fn a_lost_device_is_an_error_with_a_name() {
    let checkpoint = tiny().checkpoint();
    let config = SchedulerConfig {
        max_model_len: 128,
        num_blocks: 5,
        ..SchedulerConfig::default()
    };
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(device(), &checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let params = SamplingParams::default();
    engine
        .add_request(vec![1, 2, 3], params)
        .expect("a request");
    pollster::block_on(engine.step()).expect("a first step");
    engine.runner_mut().executor().device().destroy();
    match pollster::block_on(engine.step()) {
        Err(Error::Executor(ExecutorError::DeviceLost(_))) => {}
        other => panic!("expected a lost device, got {other:?}"),
    }
    assert!(engine.has_unfinished_requests(), "no request is lost");
    assert!(engine.runner_mut().executor().device().lost().is_some());
}

#[test]
fn a_bad_program_is_refused_and_harms_nothing() {
    let mut executor = device();
    let good = executor.create_buffer("x", 1024).expect("memory");
    let other = executor.create_buffer("y", 1024).expect("memory");
    let params = ResidualParams { dim4: 16 };
    let run = |executor: &mut WgpuExecutor, y: Slice, x: Slice| {
        let command = Command::Dispatch(Box::new(dispatch(params, CountId(0), y, x)));
        let args = StepArgs {
            upload: None,
            counts: vec![1],
        };
        executor.launch(&Program::new("bad", vec![command]), &args)
    };
    let whole = |buffer| Slice::whole(buffer, 1024);
    let beyond = Slice {
        offset: 512,
        ..whole(good)
    };
    for (y, x) in [
        (whole(other), beyond),
        (whole(good), whole(good)),
        (Slice::whole(other, 1023), whole(good)),
    ] {
        let refused = run(&mut executor, y, x);
        assert!(
            matches!(refused, Err(ExecutorError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert!(executor.write(good, 1020, &[0; 8]).is_err());
    let limit = executor.caps().max_buffer_bytes;
    assert!(matches!(
        executor.create_buffer("huge", limit + 4),
        Err(ExecutorError::BufferTooLarge { .. })
    ));

    executor
        .write(good, 0, bytemuck::bytes_of(&1f32))
        .expect("writes");
    executor
        .write(other, 0, bytemuck::bytes_of(&2f32))
        .expect("writes");
    run(&mut executor, whole(other), whole(good)).expect("a good program");
    let bytes = pollster::block_on(executor.read(good, 0..4)).expect("reads");
    assert_eq!(bytes, 3f32.to_le_bytes());
    executor.destroy_buffer(other);
    assert!(run(&mut executor, whole(other), whole(good)).is_err());
}

/// Every step that cannot be is refused, and what was launched before it still happens.
fn refuses_bad_steps(executor: &mut impl Executor) {
    let x = executor.create_buffer("x", 1024).expect("memory");
    let y = executor.create_buffer("y", 1024).expect("memory");
    executor.write(x, 0, &1f32.to_le_bytes()).expect("writes");
    executor.write(y, 0, &2f32.to_le_bytes()).expect("writes");
    let whole = |buffer| Slice::whole(buffer, 1024);
    let sum = || {
        let params = ResidualParams { dim4: 16 };
        Command::Dispatch(Box::new(dispatch(params, CountId(0), whole(y), whole(x))))
    };
    let mut launch = |command, counts: Vec<u32>| {
        let upload = None;
        executor.launch(
            &Program::new("step", vec![command]),
            &StepArgs { upload, counts },
        )
    };
    launch(sum(), vec![1]).expect("a good step");
    let half = Slice::whole(y, 512);
    let copy = |src, dst| Command::Copy { src, dst };
    for (command, counts) in [
        (sum(), vec![]),
        (sum(), vec![65536 * 1024]),
        (copy(half, whole(x)), vec![]),
        (copy(half, Slice::whole(y, 512)), vec![]),
    ] {
        let refused = launch(command, counts);
        assert!(
            matches!(refused, Err(ExecutorError::Invalid(_))),
            "{refused:?}"
        );
    }
    let bytes = pollster::block_on(executor.read(x, 0..4)).expect("reads");
    assert_eq!(bytes, 3f32.to_le_bytes());
    let mut launch = |command| {
        let program = Program::new("copy", vec![command]);
        executor.launch(&program, &StepArgs::default())
    };
    launch(copy(half, Slice::whole(x, 512))).expect("a good copy");
    let bytes = pollster::block_on(executor.read(x, 0..4)).expect("reads");
    assert_eq!(bytes, 2f32.to_le_bytes());
}

#[test]
fn a_bad_step_is_refused_and_costs_no_other() {
    refuses_bad_steps(&mut device());
    refuses_bad_steps(&mut CpuExecutor::default());
}
