//! Reference of [`crate::kernels::glu`].

use super::{Bound, act, fma};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::glu::{Activation, GluParams};

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &GluParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let activation = activation(key);
    let gate_up = bound.f32s(0);
    let out = bound.u32s_mut(1);
    for token in 0..grid[1] * grid[2] {
        let row = &gate_up[(8 * token * p.dim4) as usize..][..8 * p.dim4 as usize];
        let (gate, up) = row.split_at(4 * p.dim4 as usize);
        let gated: Vec<f32> = gate
            .iter()
            .zip(up)
            .map(|(g, u)| activation(*g) * u)
            .collect();
        act::store(format, out, (token, 0, p.act_stride), &gated);
    }
}

fn activation(key: &KernelKey) -> fn(f32) -> f32 {
    match Activation::of(key) {
        Activation::GeluTanh => gelu_tanh,
        Activation::Silu => silu,
    }
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// 2 √(2/π), and that times 0.044715.
const GELU: [f32; 2] = [1.595_769, 0.071_354_814];

fn gelu_tanh(x: f32) -> f32 {
    x / (1.0 + (-(x * fma(x * x, GELU[1], GELU[0]))).exp())
}
