//! What a model is said to take on a device, held against what it takes.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use twoclock_core::error::Error;
use twoclock_core::model::Taps;
use twoclock_core::runner::{
    ComputeDtype, KvCacheDtype, MemoryPlan, ModelRunner, NumericsClass, RunnerOptions,
};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::program::{BufferId, Program, StepArgs};
use twoclock_tests::{GoldenDir, Synthetic};

/// Counts the bytes of the buffers it makes.
struct Counting {
    inner: CpuExecutor,
    bytes: Rc<Cell<u64>>,
}

impl Executor for Counting {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        self.bytes.set(self.bytes.get() + bytes);
        self.inner.create_buffer(label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        self.inner.destroy_buffer(buffer);
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        self.inner.write(buffer, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        self.inner.launch(program, args)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        self.inner.read(buffer, range)
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        self.inner.read_with_next(buffer, range)
    }
}

const EXACT: ComputeDtype = ComputeDtype::Of(NumericsClass::F32);

#[test]
fn every_byte_is_counted() {
    let golden = |dir| {
        let config = "config.json";
        Checkpoint::from_hf(&GoldenDir { dir, config }).expect("a checkpoint")
    };
    let [f16, int8] = [KvDtype::F16, KvDtype::Int8].map(KvCacheDtype::Of);
    for (name, dtype, checkpoint) in [
        ("biases", KvCacheDtype::Auto, golden("models/llama_bias")),
        (
            "full and sliding layers",
            int8,
            golden("models/gemma3_text"),
        ),
        ("experts", f16, golden("models/qwen3_moe")),
        ("untied", int8, Synthetic::borders().checkpoint()),
    ] {
        let config = SchedulerConfig {
            max_num_seqs: 2,
            max_num_batched_tokens: 70,
            max_model_len: 100,
            block_size: 16,
            num_blocks: 40,
            ..SchedulerConfig::default()
        };
        let bytes = Rc::new(Cell::new(0));
        let executor = Counting {
            inner: CpuExecutor::default(),
            bytes: Rc::clone(&bytes),
        };
        let options = RunnerOptions {
            taps: Taps {
                layers: vec![1],
                hidden: true,
            },
            kv_cache_dtype: dtype,
            ..RunnerOptions::default()
        };
        let (caps, model) = (executor.caps(), &checkpoint.config);
        let plan =
            MemoryPlan::new(caps, &checkpoint, &config, ComputeDtype::Auto, dtype).expect("a plan");
        let plan = plan.with_taps(caps, model, &config, &options.taps);
        let plan = plan.expect("a plan");
        assert_eq!(bytes.get(), 0, "{name}: a plan takes nothing");
        ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads");
        assert_eq!(plan.total(), bytes.get(), "{name}: {plan}");
    }
}

#[test]
fn a_window_takes_the_pages_it_needs() {
    let config = SchedulerConfig {
        max_num_seqs: 2,
        max_num_batched_tokens: 64,
        max_model_len: 768,
        block_size: 32,
        num_blocks: 201,
        run_ahead: 1,
        ..SchedulerConfig::default()
    };
    let kv_cache = |sliding: &[bool]| {
        let checkpoint = Synthetic::borders().windowed(100, sliding);
        let caps = CpuExecutor::default().caps().clone();
        let plan = MemoryPlan::new(&caps, &checkpoint, &config, EXACT, KvCacheDtype::Auto);
        plan.expect("a plan").kv_cache
    };
    // Keys and values of a page: one head of 64 floats, 32 tokens.
    let page = 2 * 4 * 64 * 32;
    // A window of 100 lies in five pages at most, a sequence's chunk in one more than it fills; two
    // steps are in flight.
    let window = 1 + 2 * (5 + 1) + 2 * 2;
    assert_eq!(kv_cache(&[false, false]), 2 * 201 * page);
    assert_eq!(kv_cache(&[true, false]), (201 + window) * page);
    assert_eq!(kv_cache(&[true, true]), 2 * window * page);
}

/// The most tokens whose pages fit a given memory, by the plan itself: int8 holds 1.88 times as many
/// as f16 with heads of 64 dims (SmolLM2) and of 128 (Llama 3), f16 twice as many as f32.
#[test]
fn smaller_types_hold_more_tokens() {
    for head_dim in [64, 128] {
        let shape = Synthetic {
            head_dim,
            num_key_value_heads: 3,
            max_position_embeddings: 1 << 20,
            ..Synthetic::borders()
        };
        let checkpoint = shape.checkpoint();
        let tokens = KvDtype::ALL.map(|dtype| {
            let plan = |num_blocks| {
                let config = SchedulerConfig {
                    num_blocks,
                    ..SchedulerConfig::default()
                };
                let dtype = KvCacheDtype::Of(dtype);
                MemoryPlan::new(&Caps::portable_gpu(), &checkpoint, &config, EXACT, dtype)
                    .expect("a plan")
            };
            let fits = |blocks: &usize| plan(*blocks).kv_cache <= 32 << 20;
            let most = (2..4000).take_while(fits).last().expect("some fit");
            let plan = plan(most);
            assert_eq!(plan.kv_dtype, dtype);
            let counted = plan.kv_token_bytes * (plan.kv_tokens + 32);
            assert_eq!(counted, plan.kv_cache, "{plan}");
            plan.kv_tokens as f64
        });
        let [f32, f16, int8] = tokens;
        assert!(f16 / f32 >= 1.99, "{tokens:?}");
        assert!((1.85..1.9).contains(&(int8 / f16)), "{tokens:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic() {
    let config = SchedulerConfig {
        max_model_len: 768,
        num_blocks: 25,
        ..SchedulerConfig::default()
    };
    let load = |memory, config: &SchedulerConfig| {
        let options = RunnerOptions {
            memory,
            ..RunnerOptions::exact()
        };
        let progress = |done: f32| panic!("nothing is loaded, yet {done} is");
        let checkpoint = Synthetic::borders().checkpoint();
        match ModelRunner::load(
            CpuExecutor::default(),
            &checkpoint,
            config,
            options,
            progress,
        ) {
            Err(Error::DoesNotFit(why)) => why,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it fits"),
        }
    };
    // Two matrices of 200 × 320 halves; two layers of 320², 320 × 192 and three of 320 × 576; five
    // norms of floats.
    let weights = 2 * (2 * 200 * 320 + 2 * (320 * 320 + 320 * 192 + 3 * 320 * 576)) + 4 * 5 * 320;
    let expected = format!("weights {:.1} MiB", f64::from(weights) / f64::from(1 << 20));
    let error = load(Some(1 << 20), &config);
    assert!(error.contains(&expected), "{error}");
    assert!(error.contains("only 1.0 MiB are available"), "{error}");
    let many = SchedulerConfig {
        num_blocks: 1 << 20,
        ..config
    };
    let error = load(None, &many);
    let expected = "one layer's keys of 33554400 tokens would take 8192.0 MiB";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_shape_that_no_kernel_computes_is_refused_before_it_is_counted() {
    let widest = Synthetic {
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 256,
        ..Synthetic::borders()
    };
    let plan = |shape: Synthetic| {
        let config = SchedulerConfig {
            max_model_len: 768,
            ..SchedulerConfig::default()
        };
        MemoryPlan::new(
            &Caps::reference(),
            &shape.checkpoint(),
            &config,
            EXACT,
            KvCacheDtype::Auto,
        )
    };
    plan(widest).expect("a plan");
    for (shape, words) in [
        (
            Synthetic {
                head_dim: 260,
                ..widest
            },
            "head_dim is 260",
        ),
        (
            Synthetic {
                hidden_size: 322,
                ..widest
            },
            "hidden_size is 322",
        ),
        (
            Synthetic {
                intermediate_size: 577,
                ..widest
            },
            "intermediate_size is 577",
        ),
    ] {
        let refused = plan(shape).expect_err("no kernel computes it").to_string();
        assert!(refused.contains(words), "{refused}");
        assert!(refused.contains("a multiple of 4"), "{refused}");
    }
}
