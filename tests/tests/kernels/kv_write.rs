//! `kv_write` against its reference, to the bit, and against what its types promise.

use crate::step::step_buffer;
use half::f16;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::kv_write::{Buffers, KvWriteParams, dispatch};
use twoclock_shaders::kernels::step::{NO_SLOT, NUM_TOKENS, SLOTS};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

/// Numbers of every size, ties, and what is hard to round.
fn values(n: usize) -> Vec<f32> {
    let mut values = Noise::new(5).f32s(n);
    for (i, v) in values.iter_mut().enumerate() {
        *v *= [1e-6, 1e-4, 1.0, 1e4, 1e6][i / 11 % 5];
        match i % 67 {
            0 => *v = 0.0,
            1 => *v = 1.0 + (i % 256) as f32 / 2048.0,
            2 => *v = (i % 7) as f32 / 2.0 / 16_777_216.0,
            _ => {}
        }
    }
    // A group of zeros, one so small that its scale is zero, one with something infinite.
    values[64..96].fill(0.0);
    values[96..128].fill(1e-9);
    values[130] = f32::INFINITY;
    values
}

/// Runs it with rows of qkv, slots and pages as given.
fn case(
    dtype: KvDtype,
    head_dim: u32,
    params: KvWriteParams,
    qkv: &[f32],
    step: Vec<u32>,
    pages: &[u32],
) -> Case<'static> {
    let tokens = qkv.len() as u32 / (4 * params.stride4);
    Case {
        inputs: vec![qkv.into(), step.into(), pages.into(), pages.into()],
        dispatches: Box::new(move |b| {
            let buffers = Buffers {
                qkv: b[0],
                step: b[1],
                kcache: b[2],
                vcache: b[3],
                dtype,
            };
            vec![dispatch(head_dim, params, CountId(0), buffers)]
        }),
        counts: vec![tokens],
    }
}

#[test]
fn writes_slots_and_nothing_else() {
    for dtype in KvDtype::ALL {
        for (head_dim, block_size) in [(20, 16), (32, 32), (72, 16)] {
            let kv_heads = 3u32;
            let stride = 9 * head_dim;
            let params = KvWriteParams {
                kv_heads,
                stride4: stride / 4,
                k_at4: 3 * head_dim / 4,
                v_at4: 6 * head_dim / 4,
                block_size,
                group: 1,
            };
            // Two tokens side by side share a word of scales.
            let side = 5 * block_size + 2;
            let last = 2 * block_size - 1;
            let slots = [side + 1, NO_SLOT, block_size, last, side];
            // Those of the other group first.
            let mut step = step_buffer(&[(SLOTS, &[[0, 1, 2, 3, 4], slots].concat())]);
            step[NUM_TOKENS] = 5;
            // Neither a code nor a half that is ever written.
            let page = dtype.page_bytes(kv_heads, head_dim, block_size) as usize / 4;
            let pages = vec![0x8080_8080_u32; 6 * page];
            let qkv = values(5 * stride as usize);
            let case = case(dtype, head_dim, params, &qkv, step, &pages);
            let what = format!("{dtype:?}, {head_dim} dims, pages of {block_size}");
            for output in [2, 3] {
                let words = |run: Vec<f32>| run.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let expected = words(case.run(&mut CpuExecutor::default(), output));
                let bytes = bytemuck::cast_slice::<u32, u8>(&expected);
                let written = bytes.chunks(2).filter(|half| **half != [0x80; 2]).count();
                let each = dtype.row_bytes(head_dim) * kv_heads;
                assert_eq!(written, 4 * each as usize / 2, "{what}");
                let got = words(case.run(&mut *gpu(), output));
                for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    assert_eq!(got, expected, "{what}: word {i}: {got:x}, {expected:x}");
                }
            }
        }
    }
}

/// What is read back is what was written, to half a step.
#[test]
fn rounds_to_the_nearest() {
    let (head_dim, block_size) = (64, 16);
    let row = Noise::new(9).f32s(128);
    let params = KvWriteParams {
        kv_heads: 1,
        stride4: 32,
        k_at4: 0,
        v_at4: 16,
        block_size,
        group: 0,
    };
    for (dtype, tolerance) in [(KvDtype::F16, 0.5 / 1024.0), (KvDtype::Int8, 0.5 / 126.9)] {
        let page = vec![0; dtype.page_bytes(1, head_dim, block_size) as usize / 4];
        let step = step_buffer(&[(SLOTS, &[0])]);
        let case = case(dtype, head_dim, params, &row, step, &page);
        for (output, row) in [2, 3].into_iter().zip(row.chunks(64)) {
            let page = case.run(&mut *gpu(), output);
            let bytes = bytemuck::cast_slice::<f32, u8>(&page);
            let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
            for (i, v) in row.iter().enumerate() {
                let (read, most) = match dtype {
                    KvDtype::Int8 => {
                        let scale = half(64 * 16 + 2 * (i / 32));
                        let group = row[i / 32 * 32..][..32].iter();
                        let top = group.fold(0f32, |top, v| top.max(v.abs()));
                        (f32::from(bytes[i].cast_signed()) * scale, top)
                    }
                    _ => (half(2 * i), v.abs()),
                };
                let error = (read - v).abs();
                assert!(error <= tolerance * most, "{dtype:?}: {v} became {read}");
            }
        }
    }
}
