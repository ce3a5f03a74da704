//! `sample_pick`: both bodies pick the same, whatever the order of the candidates.

use crate::sample::draw;
use twoclock_shaders::caps::DeviceKind;
use twoclock_tests::{Noise, gpu};

#[test]
fn bodies_agree() {
    let vocab = 5000u32;
    let rows = 7;
    let logits = Noise::new(10).f32s(rows * vocab as usize);
    let records: Vec<_> = (0..rows as u32).map(|i| (0.9, 77, i)).collect();
    let mut gpu = gpu();
    let lane = draw(&mut *gpu, DeviceKind::Cpu, &logits, vocab, &records);
    let workgroup = draw(&mut *gpu, DeviceKind::Gpu, &logits, vocab, &records);
    assert_eq!(lane, workgroup);
    assert!(lane.iter().all(|&id| id < vocab));
    assert!(lane.windows(2).any(|w| w[0] != w[1]));
}
