//! An executor that, when told, keeps the dispatches of the steps it runs, and runs any of them again by
//! themselves to see how long they take. Knows no model; of a dispatch only what its kernel says.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::time::Instant;

use pollster::block_on;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::kernel::{Access, KernelKey};
use twoclock_shaders::kernels;
use twoclock_shaders::program::{BufferId, Command, Dispatch, Extent, Program, Slice, StepArgs};
use twoclock_shaders::recording::Launched;

/// Passes everything on, and keeps what is launched while it is told to.
#[derive(Debug)]
pub struct KeepingExecutor<E> {
    inner: E,
    keeps: bool,
    kept: Vec<Launched>,
    /// What was timed, where dispatches run one by one.
    singles: Option<HashMap<KernelKey, Single>>,
}

/// A variant by itself.
#[derive(Clone, Debug)]
pub struct Single {
    /// Its largest launch.
    pub launched: Launched,
    /// Seconds of its first run, compiling included.
    pub first: f64,
    /// Seconds of the largest.
    pub seconds: f64,
}

impl Single {
    /// Workgroups.
    fn work(&self) -> u64 {
        self.launched.grid.iter().map(|&n| u64::from(n)).product()
    }
}

/// Whether a dispatch may run again: not where it moves the state of sequences on.
fn repeatable(dispatch: &Dispatch) -> bool {
    let Some(kernel) = kernels::find(dispatch.key.kernel) else {
        return false;
    };
    let mut written = kernel
        .bindings
        .iter()
        .filter(|b| b.access == Access::ReadWrite);
    written.all(|b| !["step", "state"].contains(&b.name))
}

impl<E: Executor> KeepingExecutor<E> {
    /// Around this one.
    pub fn new(inner: E) -> Self {
        Self {
            inner,
            keeps: false,
            kept: Vec::new(),
            singles: None,
        }
    }

    /// From now on runs dispatches one by one, and times the first of each variant and its largest.
    pub fn time_singly(&mut self) {
        self.singles = Some(HashMap::new());
    }

    /// The variants timed so far.
    pub fn singles(&self) -> impl Iterator<Item = (&KernelKey, &Single)> {
        self.singles.iter().flatten()
    }

    /// Runs a program's commands one by one. A dispatch is timed in its own step: what it reads of the
    /// step, and so how long it loops, is there at no other time.
    fn launch_singly(
        &mut self,
        program: &Program,
        args: &StepArgs,
        singles: &mut HashMap<KernelKey, Single>,
    ) -> Result<Ticket, ExecutorError> {
        if let Some((buffer, bytes)) = &args.upload {
            self.inner.write(*buffer, 0, bytes)?;
        }
        let args = StepArgs {
            upload: None,
            counts: args.counts.clone(),
        };
        let mut ticket = Ticket(0);
        for command in program.commands() {
            let alone = Program::new("alone", vec![command.clone()]);
            let start = Instant::now();
            ticket = self.inner.launch(&alone, &args)?;
            let Some(dispatch) = command.dispatch() else {
                continue;
            };
            let grid = dispatch.resolve_grid(&args.counts).unwrap_or_default();
            let work: u64 = grid.iter().map(|&n| u64::from(n)).product();
            let Some(last) = dispatch.bindings.last().filter(|_| work > 0) else {
                continue;
            };
            let known = singles.get(&dispatch.key);
            let again = repeatable(dispatch);
            let least = work + u64::from(!again);
            if known.is_some_and(|known| known.work() >= least) {
                continue;
            }
            block_on(self.inner.read(last.buffer, 0..4))?;
            let once = start.elapsed().as_secs_f64();
            let first = known.map_or(once, |known| known.first);
            let launched = Launched {
                dispatch: dispatch.clone(),
                grid,
            };
            let seconds = match known.filter(|known| known.work() == work) {
                _ if again => self.time_alone(std::slice::from_ref(&launched))?,
                // What may not run again is timed as often as it comes.
                Some(known) => known.seconds.min(once),
                None => once,
            };
            let single = Single {
                launched,
                first,
                seconds,
            };
            singles.insert(dispatch.key.clone(), single);
        }
        Ok(ticket)
    }

    /// What it passes everything on to.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// From now on keeps what is launched.
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// What was launched since [`keep`](Self::keep); keeps no more.
    pub fn kept(&mut self) -> Vec<Launched> {
        self.keeps = false;
        std::mem::take(&mut self.kept)
    }

    /// Seconds a run of these commands takes, the shortest of some: they are repeated until the clock
    /// can tell. `last` is read to know that they ended.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&mut self, commands: &[Command], last: BufferId) -> Result<f64, ExecutorError> {
        const LONG_ENOUGH: f64 = 0.02;
        const RUNS: usize = 3;
        let mut seconds = |times: usize| {
            let repeated = (0..times).flat_map(|_| commands.iter().cloned());
            let program = Program::new("timed", repeated.collect());
            let start = Instant::now();
            self.inner.launch(&program, &StepArgs::default())?;
            block_on(self.inner.read(last, 0..4))?;
            Ok::<_, ExecutorError>(start.elapsed().as_secs_f64())
        };
        // The first run compiles.
        seconds(1)?;
        let once = seconds(1)?.max(1e-7);
        let times = ((LONG_ENOUGH / once) as usize).clamp(1, 200);
        let mut shortest = once;
        for _ in 0..RUNS {
            shortest = shortest.min(seconds(times)? / times as f64);
        }
        Ok(shortest)
    }

    /// Seconds from launching these commands once to having read of `last`, the shortest of some.
    ///
    /// # Errors
    /// The device's.
    pub fn once(&mut self, commands: &[Command], last: BufferId) -> Result<f64, ExecutorError> {
        let program = Program::new("once", commands.to_vec());
        let mut shortest = f64::INFINITY;
        for _ in 0..10 {
            let start = Instant::now();
            self.inner.launch(&program, &StepArgs::default())?;
            block_on(self.inner.read(last, 0..4))?;
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
        Ok(shortest)
    }

    /// Seconds that a launched dispatch takes, in the mean of these.
    ///
    /// # Errors
    /// The device's.
    pub fn time_alone(&mut self, launched: &[Launched]) -> Result<f64, ExecutorError> {
        let commands: Vec<Command> = launched.iter().map(|l| fixed(l).into()).collect();
        let Some(last) = launched.last().and_then(|l| l.dispatch.bindings.last()) else {
            return Ok(0.0);
        };
        Ok(self.time(&commands, last.buffer)? / launched.len() as f64)
    }
}

/// The dispatch with the grid it had.
fn fixed(launched: &Launched) -> Dispatch {
    Dispatch {
        grid: launched.grid.map(Extent::Fixed),
        ..launched.dispatch.clone()
    }
}

/// A parameter of a dispatch, by its name in the kernel.
pub fn param(dispatch: &Dispatch, name: &str) -> Option<u32> {
    let kernel = kernels::find(dispatch.key.kernel)?;
    let at = kernel.params.iter().position(|(field, _)| *field == name)?;
    let bytes = dispatch.params.get(4 * at..4 * at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes of the weights that a dispatch of a dense matrix product reads, whatever joins it: all of them once.
pub fn weight_bytes(dispatch: &Dispatch) -> Option<u64> {
    let dense = ["matmul", "fused"];
    let kernel = kernels::find(dispatch.key.kernel)
        .filter(|k| dense.iter().any(|begin| k.name.starts_with(begin)))?;
    let mut windows: Vec<Slice> = Vec::new();
    for (def, slice) in kernel.bindings.iter().zip(&dispatch.bindings) {
        if ["w", "ws"].contains(&def.name) && !windows.contains(slice) {
            windows.push(*slice);
        }
    }
    Some(windows.iter().map(|window| window.bytes).sum())
}

/// Rows and columns of a dense matrix product.
pub fn matrix(dispatch: &Dispatch) -> Option<[u32; 2]> {
    weight_bytes(dispatch)?;
    let number = |name| param(dispatch, name);
    let rows = match dispatch.key.kernel {
        "fused_qkv" | "fused_row_qkv" => {
            (number("heads")? + 2 * number("kv_heads")?) * number("head_dim")?
        }
        // Gates, and as many ups.
        "fused_glu" | "fused_row_glu" => 2 * number("rows")?,
        _ => number("rows")?,
    };
    Some([rows, 32 * number("groups")?])
}

impl<E: Executor> Executor for KeepingExecutor<E> {
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
        if self.keeps {
            let dispatches = program.dispatches();
            let launched = dispatches.map(|dispatch| Launched {
                dispatch: dispatch.clone(),
                grid: dispatch.resolve_grid(&args.counts).unwrap_or_default(),
            });
            self.kept.extend(launched.filter(|l| !l.grid.contains(&0)));
        }
        match self.singles.take() {
            None => self.inner.launch(program, args),
            Some(mut singles) => {
                let ticket = self.launch_singly(program, args, &mut singles);
                self.singles = Some(singles);
                ticket
            }
        }
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

#[cfg(test)]
mod tests {
    use super::{matrix, weight_bytes};
    use serde_json::json;
    use twoclock_core::clock::ManualClock;
    use twoclock_core::engine::EngineCore;
    use twoclock_core::runner::{ComputeDtype, ModelRunner, NumericsClass, RunnerOptions};
    use twoclock_core::sched::SchedulerConfig;
    use twoclock_core::types::SamplingParams;
    use twoclock_core::weights::{Checkpoint, DType, model_config_of_json};
    use twoclock_shaders::caps::Caps;
    use twoclock_shaders::recording::RecordingExecutor;

    /// Bytes of weights and elements of matrices of a decode step's products, and how many there are.
    fn products(caps: Caps) -> [u64; 3] {
        let shape = json!({
            "model_type": "llama", "vocab_size": 512, "hidden_size": 288, "intermediate_size": 352,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        });
        let model = model_config_of_json(&shape).expect("a shape");
        let checkpoint = Checkpoint::dummy(model, "dummy", |_| DType::Q4_0).expect("a checkpoint");
        let config = SchedulerConfig {
            max_num_seqs: 1,
            max_model_len: 64,
            max_num_batched_tokens: 1,
            num_blocks: 4,
            ..SchedulerConfig::default()
        };
        let options = RunnerOptions {
            compute_dtype: ComputeDtype::Of(NumericsClass::F16),
            ..RunnerOptions::default()
        };
        let (executor, launches) = RecordingExecutor::new(caps);
        let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ());
        let runner = runner.expect("loads");
        let clock = ManualClock::default();
        let engine = EngineCore::new(runner, clock, &checkpoint.config, config);
        let mut engine = engine.expect("an engine");
        let params = SamplingParams {
            max_tokens: 1,
            ..SamplingParams::default()
        };
        let answers = engine.generate(vec![(vec![1], params)]);
        pollster::block_on(answers).expect("a device");
        let launches = launches.borrow();
        let found = launches.iter().filter_map(|launched| {
            let [rows, columns] = matrix(&launched.dispatch)?.map(u64::from);
            Some([weight_bytes(&launched.dispatch)?, rows * columns, 1])
        });
        found.fold([0; 3], |sum, one| std::array::from_fn(|i| sum[i] + one[i]))
    }

    #[test]
    fn products_are_found_whatever_joins_them() {
        let [bytes, elements, count] = products(Caps::reference());
        // Queries, keys and values; output; gate and up; down; head.
        assert_eq!(count, 5);
        let of_layer = 288 * (8 * 72 + 4 * 72 + 3 * 352);
        assert_eq!(elements, of_layer + 288 * 512);
        assert_eq!(products(Caps::portable_gpu()), [bytes, elements, count]);
    }
}
