//! Mixtures of experts on a device: their pairs one by one and in tiles, and experts in windows.

use super::{device, logits, tiny};
use twoclock_core::error::Error;
use twoclock_core::model::experts::Experts;
use twoclock_core::runner::RunnerOptions;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::tuning::Tuning;
use twoclock_tests::{GoldenDir, Limited, Synthetic};

/// Checkpoints that `golden` holds against their reference implementations, where experts take their
/// tokens in tiles: pair by pair, and in the tiles of a GPU, they give the same bits.
#[test]
fn pairs_and_tiles_give_the_same_logits() {
    let tuned = |kind: DeviceKind, field: &'static str, value| {
        move |caps: &Caps| Caps {
            kind,
            tuning: Tuning::default().with(field, value).expect("a field"),
            ..caps.clone()
        }
    };
    let by_pairs = tuned(DeviceKind::Cpu, "row_tokens", 1);
    let by_gpu_tiles = tuned(DeviceKind::Gpu, "gemv_tokens", 0);
    for dir in ["models/mixtral", "models/qwen3_moe"] {
        let config = "config.json";
        let checkpoint = Checkpoint::from_hf(&GoldenDir { dir, config }).expect("a checkpoint");
        let exact = RunnerOptions::exact;
        let tiles = logits(device(), &checkpoint, exact(), 64, 16, true);
        for limit in [&by_pairs as &dyn Fn(&Caps) -> Caps, &by_gpu_tiles] {
            let limited = Limited::new(device(), limit);
            let other = logits(limited, &checkpoint, exact(), 64, 16, true);
            assert!(other == tiles, "{dir}");
        }
        let reference = || CpuExecutor::new(by_pairs(&Caps::reference()));
        let pairs = logits(reference(), &checkpoint, exact(), 64, 16, true);
        let tiles = logits(CpuExecutor::default(), &checkpoint, exact(), 64, 16, true);
        assert!(pairs == tiles, "{dir}, the reference");
    }
}

/// Experts that no one binding holds together: windows of whole experts, and the same bits.
#[test]
fn experts_split_into_windows() {
    let limit = |caps: &Caps| Caps {
        max_binding_bytes: 170 << 10,
        ..caps.clone()
    };
    // An expert's projections take 40 KiB each: four fit, and so does every other buffer.
    let wide = Synthetic {
        hidden_size: 320,
        ..tiny()
    };
    let checkpoint = wide.mixture(9, 64);
    let names = (0..9).map(|e| format!("model.layers.0.mlp.experts.{e}.gate_proj.weight"));
    let tensors: Vec<_> = names
        .map(|name| checkpoint.tensors.get(&name).expect("an expert"))
        .collect();
    let mut reference = CpuExecutor::new(limit(&Caps::reference()));
    let experts = Experts::load(&mut reference, &tensors).expect("loads");
    assert_eq!(experts.num_windows(), 3);
    let options = RunnerOptions::default;
    assert!(
        logits(reference, &checkpoint, options(), 7, 16, false)
            == logits(CpuExecutor::default(), &checkpoint, options(), 7, 16, false)
    );
    let mut gpu = device();
    let limited = Limited::new(&mut gpu, limit);
    let split = logits(limited, &checkpoint, options(), 7, 16, false);
    assert!(split == logits(device(), &checkpoint, options(), 7, 16, false));
    // One expert that no binding holds is refused before anything is read.
    let small = |caps: &Caps| Caps {
        max_binding_bytes: 32 << 10,
        ..caps.clone()
    };
    let mut reference = CpuExecutor::new(small(&Caps::reference()));
    let refused = Experts::load(&mut reference, &tensors).map(|_| ());
    assert!(matches!(refused, Err(Error::DoesNotFit(_))), "{refused:?}");
}
