//! `embed` in every format: the exact values, from the window that holds them.

use crate::step::step_buffer;
use twoclock_core::weights::DType;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::embed::{Buffers, EmbedParams, dispatch};
use twoclock_shaders::kernels::step::IDS;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, Weights, assert_close, gpu};

/// As Gemma has it.
const SCALE: f32 = 25.298_222;

fn run(executor: &mut impl Executor, weights: &Weights, ids: &[u32], first_row: u32) -> Vec<f32> {
    let dim = weights.k;
    let mut ws = weights.ws.clone();
    ws.resize(ws.len().max(4), 0);
    let params = EmbedParams {
        dim4: dim as u32 / 4,
        groups: weights.groups as u32,
        first_row,
        rows: weights.rows as u32,
        scale: SCALE,
    };
    let format = weights.format;
    let tokens = ids.len();
    let case = Case {
        inputs: vec![
            weights.w.clone().into(),
            ws.into(),
            step_buffer(&[(IDS, ids)]).into(),
            vec![-7f32; tokens * dim].into(),
        ],
        dispatches: Box::new(move |b| {
            let buffers = Buffers {
                w: b[0],
                ws: Some(b[1]),
                step: b[2],
                x: b[3],
            };
            vec![dispatch(format, params, CountId(0), buffers)]
        }),
        counts: vec![tokens as u32],
    };
    case.run(executor, 3)
}

#[test]
fn widens_exactly_the_rows_of_its_window() {
    let first_row = 64;
    let ids = [70, 64, 63, 70, 84, 85];
    for dtype in DType::ALL {
        for k in [32, 36, 320, 768] {
            if dtype.row_bytes(k).is_none() {
                continue;
            }
            let weights = Weights::random(&mut Noise::new(11), dtype, 21, k);
            let expected: Vec<f32> = ids
                .iter()
                .flat_map(|&id| {
                    let row = (id as usize).checked_sub(first_row as usize);
                    let row = row.filter(|&row| row < weights.rows);
                    (0..k).map({
                        let weights = &weights;
                        move |i| row.map_or(-7.0, |row| SCALE * weights.values[row * k + i])
                    })
                })
                .collect();
            let what = format!("{dtype} {k}");
            let cpu = run(&mut CpuExecutor::default(), &weights, &ids, first_row);
            assert_close(&what, &cpu, &expected, 1e-6);
            let device = run(&mut *gpu(), &weights, &ids, first_row);
            assert_close(&what, &device, &expected, 1e-6);
        }
    }
}
