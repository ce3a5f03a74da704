//! Reference of [`crate::kernels::softcap`].

use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::softcap::SoftcapParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SoftcapParams = bytemuck::from_bytes(params);
    let len = (p.dim * grid[1]) as usize;
    for y in &mut bound.f32s_mut(0)[..len] {
        *y = soft_cap(*y, p.cap);
    }
}

pub(super) fn soft_cap(s: f32, cap: f32) -> f32 {
    let x = s / cap;
    if x.abs() < 0.25 {
        let z = x * x;
        let mut t = fma(z, 62.0 / 2835.0, -17.0 / 315.0);
        t = fma(z, t, 2.0 / 15.0);
        t = fma(z, t, -1.0 / 3.0);
        return fma(s * z, t, s);
    }
    let e = (-2.0 * x.abs()).exp();
    fma(-2.0 * cap, e / (1.0 + e), cap).copysign(s)
}
