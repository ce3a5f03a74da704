//! Reference of [`crate::kernels::moe_route`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::moe_route::MoeRouteParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MoeRouteParams = bytemuck::from_bytes(params);
    let logits = bound.f32s(0);
    let route = bound.u32s_mut(1);
    let (experts, chosen) = (p.experts as usize, p.chosen as usize);
    let tokens = (grid[0] * key.value("TOKENS")).min(p.tokens) as usize;
    for (logits, route) in logits
        .chunks_exact(experts)
        .zip(route.chunks_exact_mut(2 * chosen))
        .take(tokens)
    {
        let mut order: Vec<usize> = (0..experts).collect();
        // Stable: equal ones stay by ascending id. What is no number comes last.
        order.sort_by(|&a, &b| {
            let (x, y) = (logits[a], logits[b]);
            let numbers_first = || x.is_nan().cmp(&y.is_nan());
            y.partial_cmp(&x).unwrap_or_else(numbers_first)
        });
        let top = logits[order[0]];
        let weight = |expert: usize| (logits[expert] - top).exp();
        let mut sum = 0.0;
        if p.norm != 0 {
            order[..chosen].iter().for_each(|&e| sum += weight(e));
        } else {
            (0..experts).for_each(|e| sum += weight(e));
        }
        for (&expert, out) in order.iter().zip(route.chunks_exact_mut(2)) {
            out[0] = expert as u32;
            out[1] = (weight(expert) / sum).to_bits();
        }
    }
}
