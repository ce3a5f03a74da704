//! `pool_sum` against its reference, and a sum of pieces against the whole.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::pool_sum::{Buffers, NO_ROW, PoolSumParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

const DIM: usize = 260;
const ROWS: usize = 6;
const TOKENS: usize = 40;

/// The sums after these shares, one dispatch after the other.
fn sums(executor: &mut impl Executor, steps: &[&[[u32; 4]]]) -> Vec<f32> {
    let mut noise = Noise::new(9);
    let padded = DIM.next_multiple_of(32);
    let (x, rstd) = (noise.f32s(TOKENS * padded), noise.f32s(TOKENS));
    let mut sums = noise.f32s(ROWS * DIM);
    for shares in steps {
        let case = Case {
            inputs: vec![
                x.clone().into(),
                rstd.clone().into(),
                shares.concat().into(),
                sums.into(),
            ],
            dispatches: Box::new(move |b| {
                let params = PoolSumParams {
                    dim4: DIM as u32 / 4,
                    act_stride: padded as u32 / 4,
                };
                let buffers = Buffers {
                    x: b[0],
                    rstd: b[1],
                    pools: b[2],
                    sums: b[3],
                };
                vec![dispatch(params, CountId(0), buffers)]
            }),
            counts: vec![shares.len() as u32],
        };
        sums = case.run(executor, 3);
    }
    sums
}

fn row(sums: &[f32], row: usize) -> &[f32] {
    &sums[row * DIM..][..DIM]
}

#[test]
fn pieces_give_the_bits_of_the_whole() {
    let whole: &[&[[u32; 4]]] = &[&[[0, 33, NO_ROW, 0], [33, 7, NO_ROW, 2]]];
    // The first sequence in three pieces, one of them computed twice; the second beside it.
    let pieces: &[&[[u32; 4]]] = &[
        &[[0, 1, NO_ROW, 0]],
        &[[1, 20, 0, 1], [33, 3, NO_ROW, 3]],
        &[[1, 20, 0, 1], [33, 3, NO_ROW, 3]],
        &[[36, 4, 3, 2], [21, 12, 1, 0]],
    ];
    let reference = sums(&mut CpuExecutor::default(), whole);
    let on_device = |steps| sums(&mut *gpu(), steps);
    let (device, cut) = (on_device(whole), on_device(pieces));
    assert_close("sums", &device, &reference, 1e-6);
    let cut_reference = sums(&mut CpuExecutor::default(), pieces);
    for sum in [0, 2] {
        assert!(row(&device, sum).iter().any(|&v| v != 0.0));
        assert_eq!(row(&cut, sum), row(&device, sum));
        assert_eq!(row(&cut_reference, sum), row(&reference, sum));
    }
    // A row that no share names stays as it is.
    assert_eq!(row(&device, 4), row(&reference, 4));
}
