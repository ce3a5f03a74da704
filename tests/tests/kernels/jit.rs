//! What the driver's compiler costs for each variant that the device under test asks for: figures,
//! not a check.

use std::collections::HashSet;
use std::time::Duration;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};
use twoclock_shaders::kernel::{Kernel, KernelKey};
use twoclock_shaders::kernels::fused_row::offered;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::kernels::{self, act::ActFormat, moe_matmul, weight::WeightFormat};
use twoclock_shaders::program::{Command, Cost, Dispatch, Extent, Program, Slice, StepArgs};

/// Processor time of all threads so far, as Linux counts it: in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, after_name) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |i: usize| fields[i].parse::<u64>().expect("a number");
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Whether the engine asks for this variant on such a device.
fn asked_for(caps: &Caps, key: &KernelKey) -> bool {
    match key.kernel {
        "matmul" | "moe_matmul" => [1, 2, 3, 8, 9, 65].iter().any(|&tokens| {
            let regime = Regime::choose(caps, tokens);
            WeightFormat::ALL.iter().any(|&format| {
                // Of few rows, and of a vocabulary.
                let many = regime.for_rows(u32::MAX, &caps.tuning);
                ActFormat::ALL.iter().any(|&act_format| {
                    [regime, many]
                        .map(|r| r.key(format, act_format))
                        .contains(key)
                        || moe_matmul::key(regime, format, act_format) == *key
                })
            })
        }),
        "matmul_coop" => caps.coop.is_some(),
        fused if fused.starts_with("fused_row") => offered(caps, ActFormat::Int8, 1),
        _ => match caps.kind {
            DeviceKind::Cpu => !["_workgroup", "_gemv"]
                .iter()
                .any(|end| key.body.ends_with(end)),
            DeviceKind::Gpu => !["_lane", "_row"].iter().any(|end| key.body.ends_with(end)),
        },
    }
}

/// Compiles a variant and runs one workgroup of it, on buffers that any of them can bear.
fn first_run(gpu: &mut WgpuExecutor, kernel: &Kernel, key: &KernelKey) -> Duration {
    const BYTES: u64 = 1 << 16;
    let bindings: Vec<Slice> = kernel
        .bindings
        .iter()
        .map(|b| {
            let buffer = gpu.create_buffer(b.name, BYTES).expect("memory");
            gpu.write(buffer, 0, &[0; BYTES as usize]).expect("writes");
            Slice::whole(buffer, BYTES)
        })
        .collect();
    let dispatch = Dispatch {
        key: key.clone(),
        bindings: bindings.clone(),
        // Nothing divides by zero, four elements of a head by four among them, and no count is too large.
        params: [4, 0, 0, 0].repeat(kernel.params.len()),
        grid: [Extent::Fixed(1); 3],
        cost: Cost::default(),
    };
    let program = Program::new("jit", vec![Command::Dispatch(Box::new(dispatch))]);
    let start = cpu_time();
    gpu.launch(&program, &StepArgs::default())
        .expect("launches");
    let last = bindings[bindings.len() - 1].buffer;
    pollster::block_on(gpu.read(last, 0..4)).expect("reads");
    let spent = cpu_time() - start;
    for slice in bindings {
        gpu.destroy_buffer(slice.buffer);
    }
    spent
}

#[test]
#[ignore = "prints figures; run by name with --nocapture, alone, with MESA_SHADER_CACHE_DISABLE=true"]
fn jit() {
    assert!(
        std::env::var("MESA_SHADER_CACHE_DISABLE").is_ok_and(|v| v == "true"),
        "set MESA_SHADER_CACHE_DISABLE=true: a cache would hide what is measured"
    );
    let device = pollster::block_on(GpuDevice::open(DeviceOptions::default())).expect("a device");
    let mut gpu = WgpuExecutor::new(device);
    let caps = gpu.caps().clone();
    // The first use of a device costs what no variant is to blame for.
    let warm = kernels::find("residual").expect("a kernel");
    first_run(&mut gpu, warm, &(warm.variants)()[0]);
    // All kernels, or those whose names begin so.
    let only = std::env::var("TWOCLOCK_JIT").unwrap_or_default();
    let mut figures = Vec::new();
    for kernel in kernels::ALL.iter().filter(|k| k.name.starts_with(&only)) {
        let mut seen = HashSet::new();
        for key in (kernel.variants)() {
            if asked_for(&caps, &key) && seen.insert(key.clone()) {
                figures.push((first_run(&mut gpu, kernel, &key), key));
            }
        }
    }
    figures.sort_by_key(|(spent, _)| std::cmp::Reverse(*spent));
    println!("milliseconds of processor time to compile and run once:");
    for (spent, key) in figures {
        let mark = if spent > Duration::from_secs(1) {
            "OVER"
        } else {
            "    "
        };
        println!("{:6} {mark} {key}", spent.as_millis());
    }
}
