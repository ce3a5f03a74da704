//! `sample` and `sample_pick` together: what they draw, and from which distribution.

use crate::step::step_buffer;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::sample::{SampleParams, candidates};
use twoclock_shaders::kernels::sample_pick::SamplePickParams;
use twoclock_shaders::kernels::sample_scan::ROW_WORDS;
use twoclock_shaders::kernels::{sample, sample_pick, step};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

/// Draws one id a record (temperature, seed, position).
pub(crate) fn draw(
    executor: &mut impl Executor,
    kind: DeviceKind,
    logits: &[f32],
    vocab: u32,
    records: &[(f32, u64, u32)],
) -> Vec<u32> {
    let samples: Vec<u32> = records
        .iter()
        .flat_map(|&(t, seed, position)| {
            let draw = [t.to_bits(), seed as u32, (seed >> 32) as u32, position];
            // No filters.
            [draw, [0; 4]].concat()
        })
        .collect();
    let rows = records.len();
    let n = candidates(vocab);
    let caps = Caps {
        kind,
        ..executor.caps().clone()
    };
    let case = Case {
        inputs: vec![
            logits.into(),
            step_buffer(&[(step::SAMPLES, &samples)]).into(),
            vec![0u32; ROW_WORDS].into(),
            vec![0u32; 2 * rows * n as usize].into(),
            vec![0u32; rows].into(),
        ],
        dispatches: Box::new(move |b| {
            let params = SampleParams {
                vocab,
                first_row: 0,
            };
            let pick = SamplePickParams {
                candidates: n,
                first_row: 0,
            };
            vec![
                sample::dispatch(params, CountId(0), b[0], b[1], b[2], b[3]),
                sample_pick::dispatch(&caps, pick, CountId(0), b[3], b[4]),
            ]
        }),
        counts: vec![rows as u32],
    };
    case.run(executor, 4)
        .into_iter()
        .map(f32::to_bits)
        .collect()
}

#[test]
fn greedy_takes_the_largest_and_the_lowest_on_a_tie() {
    let vocab = 9001;
    let mut logits = Noise::new(8).f32s(3 * vocab);
    logits[4096] = 2.0;
    logits[vocab + 17] = 2.0;
    logits[vocab + 17 + 4096] = 2.0;
    logits[vocab + 16 + 64] = 2.0;
    logits[3 * vocab - 1] = 2.0;
    let records = [(0.0, 1, 1); 3];
    for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
        let ids = draw(&mut *gpu(), kind, &logits, vocab as u32, &records);
        assert_eq!(ids, [4096, 17, vocab as u32 - 1], "{kind:?}");
    }
    let ids = draw(
        &mut CpuExecutor::default(),
        DeviceKind::Cpu,
        &logits,
        vocab as u32,
        &records,
    );
    assert_eq!(ids, [4096, 17, vocab as u32 - 1]);
}

#[test]
fn draws_follow_the_softmax() {
    let vocab = 16usize;
    let temperature = 0.7f32;
    let row: Vec<f32> = Noise::new(9).f32s(vocab).iter().map(|v| 2.0 * v).collect();
    let draws = 20_000usize;
    let records: Vec<(f32, u64, u32)> = (0..draws)
        .map(|i| {
            (
                temperature,
                0x1234_5678_9abc + (i / 100) as u64,
                (i % 100) as u32,
            )
        })
        .collect();
    let logits = row.repeat(draws);
    let ids = draw(
        &mut *gpu(),
        DeviceKind::Cpu,
        &logits,
        vocab as u32,
        &records,
    );
    let weights: Vec<f64> = row
        .iter()
        .map(|&v| f64::from(v / temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let chi2: f64 = weights
        .iter()
        .enumerate()
        .map(|(id, w)| {
            let expected = draws as f64 * w / total;
            let seen = ids.iter().filter(|&&i| i as usize == id).count() as f64;
            (seen - expected).powi(2) / expected
        })
        .sum();
    // 15 degrees of freedom: 37.7 is exceeded once in a thousand. The seeds are fixed.
    assert!(chi2 < 37.7, "chi² = {chi2}");

    let cpu = draw(
        &mut CpuExecutor::default(),
        DeviceKind::Cpu,
        &logits,
        vocab as u32,
        &records,
    );
    // The two differ only where a logarithm's last bit decides.
    let differ = ids.iter().zip(&cpu).filter(|(a, b)| a != b).count();
    assert!(differ <= draws / 1000, "{differ} of {draws} draws differ");
}
