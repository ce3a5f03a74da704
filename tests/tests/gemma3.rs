//! Gemma 3 270M from its real file on the device under test, held against llama.cpp's float32 run of
//! the same weights: windows, two rotary bases, norms around everything, and a table of 262144 rows
//! that takes more than one binding.
//!
//! The model's path comes from `TWOCLOCK_GEMMA3`; `tests/run.sh` fetches it and sets that.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use half::f16;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::{Bound, CpuExecutor};
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::kernels::glu::GluParams;
use twoclock_tests::{Reference, Share, gpu, model_of_variable};

fn checkpoint() -> Checkpoint {
    model_of_variable("TWOCLOCK_GEMMA3", "twoclock pull gemma3-270m")
}

/// llama.cpp takes GELU from a table of halves, even where all else is float32; see the last test.
const TOLERANCE: f64 = 0.04;

/// A part of the reference, to be quick.
#[test]
fn agrees_with_the_float32_reference() {
    let share = Share {
        prompts: 3,
        tokens: 8,
        text: 96,
    };
    let reference = Reference::read("gemma3.json");
    reference.assert_agrees(&mut *gpu(), &checkpoint(), share, TOLERANCE);
}

#[test]
#[ignore = "takes minutes on a processor"]
fn agrees_with_the_whole_float32_reference() {
    let reference = Reference::read("gemma3.json");
    reference.assert_agrees(&mut *gpu(), &checkpoint(), Share::ALL, TOLERANCE);
}

/// With a GELU of halves the difference goes: it is the table's, and nothing else's.
#[test]
#[ignore = "takes minutes, and looks at the reference rather than at the engine"]
fn with_a_gelu_of_halves_agrees_closely() {
    let executor = CpuExecutor::default().with_kernel("glu", glu_of_halves);
    let share = Share {
        prompts: 3,
        tokens: 8,
        text: 0,
    };
    let reference = Reference::read("gemma3.json");
    reference.assert_agrees(executor, &checkpoint(), share, 2e-3);
}

fn glu_of_halves(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &GluParams = bytemuck::from_bytes(params);
    let gate_up = bound.f32s(0);
    let out = bound.f32s_mut(1);
    let dim = 4 * p.dim4 as usize;
    for token in 0..grid[1] as usize {
        let (gate, up) = gate_up[2 * token * dim..][..2 * dim].split_at(dim);
        let out = &mut out[4 * token * p.act_stride as usize..][..dim];
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            let x = f16::from_f32(*gate).to_f32();
            let u = 0.797_884_6 * x * (1.0 + 0.044_715 * x * x);
            let gelu = match *gate {
                ..=-10.0 => 0.0,
                10.0.. => *gate,
                _ => f16::from_f32(0.5 * x * (1.0 + u.tanh())).to_f32(),
            };
            *out = gelu * up;
        }
    }
}
