//! Where the time of SmolLM2 goes on the device under test: tokens a second, and each kernel's
//! share when every dispatch runs alone. Figures, not a check.
//!
//! `TWOCLOCK_SMOLLM2` names the model's file, as in `smollm2.rs`.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::program::{BufferId, Command, Program, ProgramId, StepArgs};
use twoclock_tests::{Noise, gpu};

/// Seconds and dispatches by kernel and grid.
#[derive(Clone, Default)]
struct Shares {
    on: Rc<Cell<bool>>,
    by_kernel: Rc<RefCell<BTreeMap<String, (f64, u32)>>>,
}

/// An executor that can run every dispatch alone and wait for it.
struct Alone<E> {
    inner: E,
    shares: Shares,
    split: HashMap<ProgramId, Vec<Program>>,
}

impl<E: Executor> Executor for Alone<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
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
        if !self.shares.on.get() {
            return self.inner.launch(program, args);
        }
        let parts = self.split.entry(program.id()).or_insert_with(|| {
            program
                .commands()
                .iter()
                .filter(|c| **c != Command::Cut)
                .map(|c| Program::new("alone", vec![c.clone()]))
                .collect()
        });
        if let Some((buffer, bytes)) = &args.upload {
            self.inner.write(*buffer, 0, bytes)?;
        }
        let args = StepArgs {
            upload: None,
            counts: args.counts.clone(),
        };
        let mut ticket = Ticket(0);
        for part in parts {
            let (name, grid, buffer) = match &part.commands()[0] {
                Command::Dispatch(d) => (
                    format!(
                        "{} {} {}",
                        d.key.body,
                        d.key.slot("codes").unwrap_or(""),
                        d.key.slot("scale").unwrap_or("")
                    ),
                    d.resolve_grid(&args.counts).unwrap_or_default(),
                    d.bindings[0].buffer,
                ),
                Command::Copy { dst, .. } => ("copy".to_owned(), [1; 3], dst.buffer),
                Command::Cut => continue,
            };
            let start = Instant::now();
            ticket = self.inner.launch(part, &args)?;
            pollster::block_on(self.inner.read(buffer, 0..4))?;
            let seconds = start.elapsed().as_secs_f64();
            let mut shares = self.shares.by_kernel.borrow_mut();
            let share = shares.entry(format!("{name} {grid:?}")).or_default();
            *share = (share.0 + seconds, share.1 + 1);
        }
        Ok(ticket)
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

#[test]
#[ignore = "prints figures; run by name with --nocapture in a release build"]
fn profile() {
    let path = std::env::var_os("TWOCLOCK_SMOLLM2").expect("TWOCLOCK_SMOLLM2 names the model");
    let bytes = std::fs::read(&path).expect("the model's file");
    let checkpoint =
        Checkpoint::from_gguf(Arc::new(("smollm2".to_owned(), bytes))).expect("a checkpoint");
    let config = SchedulerConfig {
        max_num_batched_tokens: 1024,
        num_blocks: 1 + 64,
        ..SchedulerConfig::default()
    };
    let shares = Shares::default();
    let mut gpu = gpu();
    let executor = Alone {
        inner: &mut *gpu,
        shares: shares.clone(),
        split: HashMap::new(),
    };
    let runner = ModelRunner::load(
        executor,
        &checkpoint,
        &config,
        RunnerOptions::default(),
        |_| (),
    )
    .expect("loads");
    let mut engine = EngineCore::new(runner, ManualClock::default(), &checkpoint.config, config)
        .expect("an engine");
    const STEPS: usize = 16;
    // Sequences, tokens of each prompt, steps behind the first.
    for (sequences, prompt, steps) in [(1, 35, STEPS), (8, 35, STEPS), (1, 530, 4)] {
        let mut noise = Noise::new(7);
        for pass in ["warm", "plain", "alone", "plain"] {
            for _ in 0..sequences {
                let ids = (0..prompt).map(|_| noise.below(40_000)).collect();
                let params = SamplingParams {
                    max_tokens: 1 + steps,
                    ignore_eos: true,
                    ..SamplingParams::default()
                };
                engine.add_request(ids, params).expect("a request");
            }
            shares.on.set(pass == "alone");
            let print_shares = |what: &str, steps: usize| {
                let mut shares: Vec<_> = std::mem::take(&mut *shares.by_kernel.borrow_mut())
                    .into_iter()
                    .collect();
                shares.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
                let sum: f64 = shares.iter().map(|(_, (seconds, _))| seconds).sum();
                if sum > 0.0 {
                    println!("  {what}: {:.1} ms a step alone", 1e3 * sum / steps as f64);
                }
                for (name, (seconds, n)) in shares {
                    println!(
                        "    {:5.1} % {:8.3} ms × {:4} {name}",
                        100.0 * seconds / sum,
                        1e3 * seconds / f64::from(n),
                        n as usize / steps
                    );
                }
            };
            let start = Instant::now();
            pollster::block_on(engine.step()).expect("a device");
            let prefill = start.elapsed().as_secs_f64();
            print_shares("prefill", 1);
            let start = Instant::now();
            for _ in 0..steps {
                pollster::block_on(engine.step()).expect("a device");
            }
            let decode = start.elapsed().as_secs_f64() / steps as f64;
            print_shares("decode", steps);
            assert!(!engine.has_unfinished_requests());
            println!(
                "{sequences} × {prompt}, {pass}: prefill {:.0} ms, {:.1} tokens/s; decode {:.1} \
                 ms a step, {:.1} tokens/s",
                1e3 * prefill,
                f64::from(sequences * prompt) / prefill,
                1e3 * decode,
                f64::from(sequences) / decode
            );
        }
    }
}
