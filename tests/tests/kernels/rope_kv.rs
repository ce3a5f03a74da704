//! `rope_kv` against its reference, to the bit where nothing is turned, and against what its types
//! promise.

use crate::step::step_buffer;
use half::f16;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::rope_kv::{Buffers, Pairing, RopeKvParams, dispatch};
use twoclock_shaders::kernels::step::{NO_SLOT, NUM_TOKENS, POSITIONS, SLOTS};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

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

/// Positions of a table of angles.
const TABLE: usize = 100;

/// Runs it with rows of qkv, slots and pages as given.
fn case(
    (pairing, dtype): (Pairing, KvDtype),
    head_dim: u32,
    params: RopeKvParams,
    qkv: &[f32],
    step: Vec<u32>,
    pages: &[u32],
) -> Case<'static> {
    let tokens = qkv.len() as u32 / (4 * params.stride4);
    let table: Vec<f32> = (0..TABLE * params.pairs as usize)
        .flat_map(|i| [(i as f32 * 0.37).cos(), (i as f32 * 0.37).sin()])
        .chain([0.0; 4])
        .collect();
    Case {
        inputs: vec![
            qkv.into(),
            step.into(),
            pages.into(),
            pages.into(),
            table.into(),
        ],
        dispatches: Box::new(move |b| {
            let buffers = Buffers {
                table: (params.pairs > 0).then_some(b[4]),
                qkv: b[0],
                step: b[1],
                kcache: b[2],
                vcache: b[3],
                dtype,
            };
            vec![dispatch(pairing, head_dim, params, CountId(0), buffers)]
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
            let params = RopeKvParams {
                heads: 3,
                kv_heads,
                pairs: 0,
                stride4: stride / 4,
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
            let how = (Pairing::Halves, dtype);
            let case = case(how, head_dim, params, &qkv, step, &pages);
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
    let params = RopeKvParams {
        heads: 0,
        kv_heads: 1,
        pairs: 0,
        stride4: 32,
        block_size,
        group: 0,
    };
    for (dtype, tolerance) in [(KvDtype::F16, 0.5 / 1024.0), (KvDtype::Int8, 0.5 / 126.9)] {
        let page = vec![0; dtype.page_bytes(1, head_dim, block_size) as usize / 4];
        let step = step_buffer(&[(SLOTS, &[0])]);
        let how = (Pairing::Halves, dtype);
        let case = case(how, head_dim, params, &row, step, &page);
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

/// Queries in place, keys on the way: each dimension by its pair, in both pairings, whole heads and parts
/// of them, pairs that end inside a vector; keys, values and what is not turned stay.
#[test]
fn turns_queries_and_keys() {
    let (heads, kv_heads, block_size, positions) = (5u32, 2u32, 16, [0, 1, 99, 3]);
    for pairing in Pairing::ALL {
        for (head_dim, pairs) in [(64u32, 32u32), (16, 8), (32, 12), (24, 5)] {
            let what = format!("{pairing:?}, {head_dim} dims, {pairs} pairs");
            let stride = (heads + 2 * kv_heads + 1) * head_dim;
            let params = RopeKvParams {
                heads,
                kv_heads,
                pairs,
                stride4: stride / 4,
                block_size,
                group: 0,
            };
            let slots = [3, 20, NO_SLOT, 9];
            let step = || step_buffer(&[(SLOTS, &slots), (POSITIONS, &positions)]);
            let x = Noise::new(6).f32s(4 * stride as usize);
            let page = KvDtype::F32.page_bytes(kv_heads, head_dim, block_size) as usize / 4;
            let pages = vec![0; 2 * page];
            let f32_case = case(
                (pairing, KvDtype::F32),
                head_dim,
                params,
                &x,
                step(),
                &pages,
            );
            let [queries, keys, values] = [0, 2, 3].map(|output| f32_case.run(&mut *gpu(), output));
            let mut expected = x.clone();
            let mut turned = x.clone();
            let dims = |pair: u32| match pairing {
                Pairing::Halves => (pair, pair + pairs),
                Pairing::Interleaved => (2 * pair, 2 * pair + 1),
            };
            for (token, position) in positions.iter().enumerate() {
                for head in 0..heads + kv_heads {
                    for pair in 0..pairs {
                        let angle = (position * pairs + pair) as f32 * 0.37;
                        let at = token as u32 * stride + head * head_dim;
                        let (i, j) = dims(pair);
                        let (i, j) = ((at + i) as usize, (at + j) as usize);
                        let (a, b) = (x[i], x[j]);
                        turned[i] = a * angle.cos() - b * angle.sin();
                        turned[j] = b * angle.cos() + a * angle.sin();
                        if head < heads {
                            (expected[i], expected[j]) = (turned[i], turned[j]);
                        }
                    }
                }
            }
            assert_close(&what, &queries, &expected, 1e-5);
            let kept = |row: &[f32]| row[(heads * head_dim) as usize..].to_vec();
            for (queries, x) in queries
                .chunks_exact(stride as usize)
                .zip(x.chunks_exact(stride as usize))
            {
                assert_eq!(kept(queries), kept(x), "{what}");
            }
            for (pages, source, first) in [(&keys, &turned, heads), (&values, &x, heads + kv_heads)]
            {
                for (token, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NO_SLOT) {
                    for head in 0..kv_heads {
                        let row =
                            (slot / block_size * kv_heads + head) * block_size + slot % block_size;
                        let got = &pages[(row * head_dim) as usize..][..head_dim as usize];
                        let at = token as u32 * stride + (first + head) * head_dim;
                        let expected = &source[at as usize..][..head_dim as usize];
                        assert_close(&what, got, expected, 1e-5);
                    }
                }
            }
            // Rounded keys are those of singles, rounded: in pages from rows that are turned already.
            let mut rows = x.clone();
            for (token, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NO_SLOT) {
                for head in 0..kv_heads {
                    let row =
                        (slot / block_size * kv_heads + head) * block_size + slot % block_size;
                    let to = (token as u32 * stride + (heads + head) * head_dim) as usize;
                    let from = (row * head_dim) as usize;
                    let dims = head_dim as usize;
                    rows[to..to + dims].copy_from_slice(&keys[from..from + dims]);
                }
            }
            let still = RopeKvParams { pairs: 0, ..params };
            for dtype in [KvDtype::F16, KvDtype::Int8] {
                let page = dtype.page_bytes(kv_heads, head_dim, block_size) as usize / 4;
                let pages = vec![0; 2 * page];
                let bits = |x: &[f32], params: RopeKvParams| {
                    let case = case((pairing, dtype), head_dim, params, x, step(), &pages);
                    let pages = case.run(&mut *gpu(), 2);
                    pages.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert!(bits(&x, params) == bits(&rows, still), "{what}, {dtype:?}");
            }
        }
    }
}
