//! Figures of attention, not checks: compile time and speed of each body at the shapes of a small model.

use crate::attention_bodies::BODIES;
use crate::attention_step::{Regime, Seq, Shape};
use std::time::Instant;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::program::{Command, Program, Slice, StepArgs};
use twoclock_tests::gpu;

/// Prints compile time and speed of each body at the shapes of a small model.
/// `MESA_SHADER_CACHE_DISABLE=true cargo test --test kernels attention_perf -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut gpu = gpu();
    for (bodies, dtype) in BODIES
        .map(|bodies| KvDtype::ALL.map(|dtype| (bodies, dtype)))
        .concat()
    {
        for (regime, context, queries, window, softcap) in [
            (Regime::Prefill, 34, 34, 0, 0.0),
            (Regime::Prefill, 512, 512, 0, 0.0),
            (Regime::Decode, 128, 1, 0, 0.0),
            (Regime::Decode, 1200, 1, 0, 0.0),
            (Regime::Prefill, 512, 512, 128, 50.0),
            (Regime::Decode, 700, 1, 128, 50.0),
        ] {
            let shape = Shape {
                dtype,
                window,
                softcap,
                ..Shape::new(64, 3, 3, 32)
            };
            let step = shape.step(&[Seq {
                seed: 1,
                context,
                queries,
            }]);
            let caps = bodies.caps(gpu.caps());
            let case = shape.case(caps, regime, &step);
            let slices: Vec<Slice> = case
                .inputs
                .iter()
                .map(|input| {
                    let bytes = input.bytes();
                    let buffer = gpu.create_buffer("speed", bytes.len() as u64).unwrap();
                    gpu.write(buffer, 0, bytes).unwrap();
                    Slice::whole(buffer, bytes.len() as u64)
                })
                .collect();
            let commands = (case.dispatches)(&slices)
                .into_iter()
                .map(|d| Command::Dispatch(Box::new(d)))
                .collect();
            let program = Program::new("speed", commands);
            let args = StepArgs {
                upload: None,
                counts: case.counts.clone(),
            };
            let mut run = |times: usize| {
                let start = (Instant::now(), cpu_seconds());
                for _ in 0..times {
                    gpu.launch(&program, &args).unwrap();
                }
                pollster::block_on(gpu.read(slices[4].buffer, 0..4)).unwrap();
                (start.0.elapsed().as_secs_f64(), cpu_seconds() - start.1)
            };
            let cold = run(1);
            let warm = run(1);
            let times = ((0.3 / warm.0) as usize).clamp(1, 200);
            let (seconds, cpu) = (0..5)
                .map(|_| run(times))
                .fold((f64::INFINITY, f64::INFINITY), |a, b| {
                    (a.0.min(b.0 / times as f64), a.1.min(b.1 / times as f64))
                });
            let seen = |keys: usize| keys - shape.first_seen(keys - 1);
            let pairs: usize = (context - queries + 1..=context).map(seen).sum();
            let flops = (4 * pairs * shape.heads() * shape.head_dim) as f64;
            println!(
                "{dtype:?} {regime:?} {bodies:?}, context {context}, window {window}, cap {softcap}, {queries} queries: compile {:.0} ms ({:.0} CPU), run {:.1} µs ({:.1} CPU), {:.2} GFLOP/s ({:.2} a CPU second)",
                1e3 * (cold.0 - warm.0),
                1e3 * (cold.1 - warm.1),
                1e6 * seconds,
                1e6 * cpu,
                flops / seconds / 1e9,
                flops / cpu / 1e9
            );
        }
    }
}

/// Processor time of the process, which a busy machine does not stretch; zero where unknown.
fn cpu_seconds() -> f64 {
    // Fields 14 and 15 of `proc_pid_stat(5)`: user and system time in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}
