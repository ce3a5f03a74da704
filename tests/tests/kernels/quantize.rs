//! `quantize` against its reference, bit for bit.

use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::quantize::{QuantizeParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu, rounded, widened};

#[test]
fn rounds_as_the_reference_does() {
    for act_format in [ActFormat::F16, ActFormat::Int8] {
        for (tokens, dim) in [(1, 32), (3, 60), (9, 576), (2, 2080)] {
            let mut noise = Noise::new(21);
            let mut x = noise.f32s(tokens * dim);
            // Of many sizes, and ties: codes 127 and halves of steps.
            for (i, v) in x.iter_mut().enumerate() {
                *v *= 10f32.powi(i as i32 / 32 % 9 - 4);
            }
            x[..32].fill(0.5);
            x[0] = 127.0;
            x[1] = -2.5;
            x[2] = 3.5;
            if tokens > 1 {
                x[dim..dim + 32].fill(0.0);
            }
            let words = tokens * act_format.row_bytes(dim as u32) as usize / 4;
            let case = Case {
                inputs: vec![x.clone().into(), vec![0u32; words].into()],
                dispatches: Box::new(move |b| {
                    let params = QuantizeParams {
                        dim4: dim as u32 / 4,
                        act_stride: act_format.stride(dim as u32),
                    };
                    vec![dispatch(act_format, params, CountId(0), b[0], b[1])]
                }),
                counts: vec![tokens as u32],
            };
            let device: Vec<u32> = case
                .run(&mut *gpu(), 1)
                .iter()
                .map(|v| v.to_bits())
                .collect();
            let expected = rounded(act_format, &x, dim);
            assert_eq!(device, expected, "{act_format:?} {tokens} × {dim}");
            let padded = dim.next_multiple_of(32);
            for (i, value) in widened(act_format, &device).into_iter().enumerate() {
                let (token, k) = (i / padded, i % padded);
                let Some(&exact) = x[token * dim..][..dim].get(k) else {
                    assert_eq!(value, 0.0, "padding");
                    continue;
                };
                let group = &x[token * dim..][..dim][k / 32 * 32..];
                let most = group.iter().take(32).fold(0f32, |m, v| m.max(v.abs()));
                let step = match act_format {
                    ActFormat::Int8 => most / 127.0,
                    _ => (exact.abs() / 1024.0).max(1e-7),
                };
                let off = (value - f64::from(exact)).abs();
                assert!(
                    off <= 0.502 * f64::from(step),
                    "{act_format:?} {exact} {value}"
                );
            }
        }
    }
}
