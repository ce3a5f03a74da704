//! What `matmul` reaches on the device under test. Figures, not checks.

use crate::matmul::Problem;
use std::time::Instant;
use twoclock_core::weights::DType;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::program::{Program, Slice, StepArgs};
use twoclock_tests::gpu;

/// Figures, not a check, for inputs as `TWOCLOCK_PERF_ACT` says (f32, f16, int8): GB/s of weights,
/// GFLOP/s, and the first launch (compilation included; run with `MESA_SHADER_CACHE_DISABLE=true` and
/// without the engine's own cache to see it cold).
#[test]
#[ignore = "prints figures; run by name with --nocapture in a release build"]
fn perf() {
    let caps = gpu().caps().clone();
    let square = vec![(576, 576)];
    let formats = DType::ALL.map(|dtype| match dtype {
        DType::Q4_1 => (
            dtype,
            vec![(576, 576), (192, 576), (1536, 576), (576, 1536)],
        ),
        DType::Q8_0 => (dtype, vec![(49152, 576), (576, 576)]),
        _ if dtype.block_elements() == 256 => (dtype, vec![(576, 512)]),
        _ => (dtype, square.clone()),
    });
    let act_format = match std::env::var("TWOCLOCK_PERF_ACT").as_deref() {
        Ok("f16") => ActFormat::F16,
        Ok("int8") => ActFormat::Int8,
        _ => ActFormat::F32,
    };
    println!("format rows × k × tokens: first launch | median | GB/s of weights | GFLOP/s");
    for (dtype, shapes) in formats {
        for (rows, k) in shapes {
            for tokens in [1, 2, 4, 8, 34, 512] {
                if rows * tokens > 1 << 20 {
                    continue;
                }
                let problem = Problem::new(1, dtype, act_format, (rows, k), tokens);
                let format = problem.weights.format;
                let regime =
                    Regime::choose(&caps, tokens as u32).for_rows(rows as u32, &caps.tuning);
                let case = problem.case(regime, tokens);
                let gpu = &mut *gpu();
                let flops = 2.0 * (rows * k * tokens) as f64;
                let repeat = (2e8 / flops).clamp(1.0, 50.0) as usize;
                let slices: Vec<Slice> = case.upload(gpu);
                let program = |n| {
                    let once = case.commands(&slices);
                    Program::new("perf", (0..n).flat_map(|_| once.clone()).collect())
                };
                let args = StepArgs {
                    upload: None,
                    counts: case.counts.clone(),
                };
                let mut seconds = |program: &Program| {
                    let start = Instant::now();
                    gpu.launch(program, &args).expect("launches");
                    let y = slices[2].buffer;
                    pollster::block_on(gpu.read(y, 0..4)).expect("reads");
                    start.elapsed().as_secs_f64()
                };
                let first = seconds(&program(1));
                let many = program(repeat);
                let mut times: Vec<f64> = (0..9).map(|_| seconds(&many) / repeat as f64).collect();
                times.sort_by(f64::total_cmp);
                let median = times[4];
                let bytes = rows as f64 * format.row_bytes(k as u32 / 32) as f64;
                println!(
                    "{dtype} {rows} × {k} × {tokens} {}: {:.0} ms | {:.3} ms | {:.2} | {:.1}",
                    regime.key(format, act_format).body,
                    first * 1e3,
                    median * 1e3,
                    bytes / median / 1e9,
                    flops / median / 1e9,
                );
                for slice in slices {
                    gpu.destroy_buffer(slice.buffer);
                }
            }
        }
    }
}
