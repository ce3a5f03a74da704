//! `fused_row_join`, and `fused_row_glu` and `fused_row_qkv` behind it, against the dispatches they stand for,
//! bit for bit on the device, and each against its reference.

use crate::joined::{
    CONSTANTS, EPS, H, NEXT, NORMED, OUT, POSITIONS_HELD, Problem, SHAPES, TABLE, X, Y,
};
use crate::step::step_buffer;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::fused_qkv::{Buffers as Pages, Heads};
use twoclock_shaders::kernels::fused_row::{RowMatrix, offered};
use twoclock_shaders::kernels::glu::Activation;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::rope_kv::Pairing;
use twoclock_shaders::kernels::step::{NO_SLOT, NUM_TOKENS, POSITIONS, SLOTS};
use twoclock_shaders::kernels::{fused_row_glu, fused_row_join, fused_row_qkv, glu, rope_kv};
use twoclock_shaders::program::{BufferId, CountId, Slice};
use twoclock_shaders::twin::TwinExecutor;
use twoclock_tests::{Case, Input, gpu};

const TOKENS: CountId = CountId(0);
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Whether two cases leave the same in the first words of these buffers, and every dispatch of the first what its
/// reference does.
fn compare(what: &str, [fused, apart]: [&Case<'_>; 2], outputs: &[(usize, usize)]) {
    for &(output, words) in outputs {
        let [got, expected] = [fused, apart].map(|case| bits(&case.run(&mut *gpu(), output)));
        assert!(
            got[..words] == expected[..words],
            "{what}: buffer {output} differs"
        );
    }
    let mut gpu = gpu();
    let (mut twin, agreements) = TwinExecutor::new(&mut *gpu);
    fused.run(&mut twin, outputs[0].0);
    let agreements = agreements.borrow();
    let joined = agreements
        .iter()
        .filter(|(key, _)| key.kernel.starts_with("fused_row"));
    assert_eq!(joined.count(), 2, "{what}");
    for (key, agreement) in &*agreements {
        assert_eq!(agreement.fault, None, "{what}: {key}");
        assert!(agreement.words > 0, "{what}: {key} wrote nothing");
    }
}

/// Capabilities of the device under test, where it has these kernels at all.
fn caps() -> Option<Caps> {
    let caps = gpu().caps().clone();
    // A processor of eight lanes must.
    let eight = caps.kind == DeviceKind::Cpu && caps.subgroups == Some((8, 8));
    assert_eq!(offered(&caps, ActFormat::Int8, 1), eight);
    if !eight {
        println!("not offered on {:?}: nothing to compare", caps.subgroups);
    }
    eight.then_some(caps)
}

#[test]
fn a_joined_norm_and_glu_are_the_same_bits() {
    let Some(caps) = caps() else { return };
    let [silu, gelu] = Activation::ALL;
    let all = [(96, silu), (32, gelu), (64, silu), (160, gelu)];
    for (shape, (rows, activation)) in SHAPES.into_iter().zip(all) {
        let act_format = shape.act_format;
        let out_words = act_format.row_bytes(rows) as usize / 4;
        let problem = Problem::new(shape, 2 * rows as usize, out_words);
        let fused = Case {
            inputs: problem.inputs.clone(),
            dispatches: Box::new(|b| {
                let mut all = problem.joined(&caps, b, true);
                let matrix = problem.matrix(b, NEXT);
                let glu = fused_row_glu::dispatch(activation, &matrix, EPS, TOKENS, b[OUT]);
                all.push(glu.expect("whole groups"));
                all
            }),
            counts: vec![1],
        };
        let apart = Case {
            inputs: problem.inputs.clone(),
            dispatches: Box::new(|b| {
                let mut all = problem.joined(&caps, b, false);
                all.push(problem.multiply(&caps, b, NEXT));
                let params = glu::GluParams {
                    dim4: rows / 4,
                    act_stride: act_format.stride(rows),
                };
                let rows = (TOKENS, 1);
                all.push(glu::dispatch(
                    activation, act_format, params, rows, b[Y], b[OUT],
                ));
                all
            }),
            counts: vec![1],
        };
        let normed = act_format.row_bytes(shape.hidden as u32) as usize / 4;
        let outputs = [(X, shape.hidden), (NORMED, normed), (OUT, out_words)];
        compare(&format!("{shape:?}"), [&fused, &apart], &outputs);
    }
}

#[test]
fn a_joined_norm_and_heads_are_the_same_bits() {
    let Some(caps) = caps() else { return };
    let (heads, kv_heads, block_size) = (3u32, 2u32, 16);
    let all = [
        (64u32, 32u32, KvDtype::F16, Pairing::Halves),
        (20, 0, KvDtype::F32, Pairing::Halves),
        (24, 4, KvDtype::F32, Pairing::Interleaved),
        (16, 8, KvDtype::F16, Pairing::Interleaved),
    ];
    for (shape, (head_dim, pairs, dtype, pairing)) in SHAPES.into_iter().zip(all) {
        let rows = (heads + 2 * kv_heads) * head_dim;
        let mut problem = Problem::new(shape, rows as usize, 1);
        let slot = if shape.bias { 20 } else { NO_SLOT };
        let mut step = step_buffer(&[(SLOTS, &[slot]), (POSITIONS, &[39])]);
        step[NUM_TOKENS] = 1;
        let page = dtype.page_bytes(kv_heads, head_dim, block_size) as usize / 4;
        let pages = vec![0x4321_u32; 2 * page];
        let [to_step, keys, values] = [0, 1, 2].map(|i| problem.inputs.len() + i);
        let mut more: Vec<Input> = vec![step.into(), pages.clone().into(), pages.into()];
        problem.inputs.append(&mut more);
        let table = |b: &[Slice]| {
            let words = POSITIONS_HELD * 2 * pairs as usize;
            (pairs > 0).then(|| Problem::constant(b, TABLE, words))
        };
        let fused = Case {
            inputs: problem.inputs.clone(),
            dispatches: Box::new(|b| {
                let all = Heads {
                    heads,
                    kv_heads,
                    head_dim,
                    pairs,
                    pairing,
                    table: table(b),
                };
                let pages = Pages {
                    step: b[to_step],
                    qkv: b[Y],
                    kcache: b[keys],
                    vcache: b[values],
                    dtype,
                    block_size,
                    group: 0,
                };
                let mut dispatches = problem.joined(&caps, b, true);
                let matrix = problem.matrix(b, NEXT);
                let qkv = fused_row_qkv::dispatch(&matrix, &all, EPS, TOKENS, pages);
                dispatches.push(qkv.expect("pairs and pages that it takes"));
                dispatches
            }),
            counts: vec![1],
        };
        let apart = Case {
            inputs: problem.inputs.clone(),
            dispatches: Box::new(|b| {
                let mut all = problem.joined(&caps, b, false);
                all.push(problem.multiply(&caps, b, NEXT));
                let params = rope_kv::RopeKvParams {
                    heads,
                    kv_heads,
                    pairs,
                    stride4: rows / 4,
                    block_size,
                    group: 0,
                };
                let buffers = rope_kv::Buffers {
                    table: table(b),
                    step: b[to_step],
                    qkv: b[Y],
                    kcache: b[keys],
                    vcache: b[values],
                    dtype,
                };
                all.push(rope_kv::dispatch(
                    pairing, head_dim, params, TOKENS, buffers,
                ));
                all
            }),
            counts: vec![1],
        };
        let queries = (heads * head_dim) as usize;
        let whole = 2 * page;
        let outputs = [(Y, queries), (keys, whole), (values, whole)];
        let what = format!("{shape:?}, {pairing:?} {head_dim} {pairs}");
        compare(&what, [&fused, &apart], &outputs);
        for pages in [keys, values] {
            let got = fused.run(&mut *gpu(), pages);
            let written = got.iter().filter(|v| v.to_bits() != 0x4321).count();
            // A row of each head, or nothing for a token that has no slot.
            let row = dtype.row_bytes(head_dim) as usize / 4;
            let expected = if slot == NO_SLOT {
                0
            } else {
                kv_heads as usize * row
            };
            assert_eq!(written, expected, "{what}: pages written");
        }
    }
}

#[test]
fn what_they_cannot_is_left_to_others() {
    let problem = Problem::new(SHAPES[0], 80, 1);
    let buffers: Vec<Slice> = (0..problem.inputs.len() as u32)
        .map(|i| Slice::whole(BufferId(i), 1 << 16))
        .collect();
    let matrix = problem.matrix(&buffers, NEXT);
    let odd = RowMatrix { rows: 80, ..matrix };
    let silu = Activation::Silu;
    let glu = |matrix| fused_row_glu::dispatch(silu, matrix, EPS, TOKENS, buffers[OUT]);
    assert!(glu(&odd).is_none());
    assert!(
        glu(&RowMatrix {
            rows: 128,
            ..matrix
        })
        .is_some()
    );
    let join = |matrix| {
        let join = fused_row_join::Buffers {
            x: buffers[X],
            gains: Slice {
                bytes: 4 * 320,
                ..buffers[CONSTANTS]
            },
            out: buffers[NORMED],
        };
        fused_row_join::dispatch(matrix, TOKENS, join)
    };
    assert!(join(&odd).is_none());
    assert!(join(&RowMatrix { rows: 96, ..matrix }).is_some());
    let qkv = |pairs, dtype| {
        let heads = Heads {
            heads: 3,
            kv_heads: 1,
            head_dim: 16,
            pairs,
            pairing: Pairing::Halves,
            table: None,
        };
        let pages = Pages {
            step: buffers[H],
            qkv: buffers[Y],
            kcache: buffers[OUT],
            vcache: buffers[X],
            dtype,
            block_size: 16,
            group: 0,
        };
        fused_row_qkv::dispatch(&odd, &heads, EPS, TOKENS, pages)
    };
    assert!(qkv(8, KvDtype::F16).is_some());
    assert!(qkv(7, KvDtype::F16).is_none());
    assert!(qkv(8, KvDtype::Int8).is_none());
}

#[test]
fn offered_to_processors_of_eight_lanes_for_one_token() {
    let cpu = Caps {
        subgroups: Some((8, 8)),
        ..Caps::reference()
    };
    assert!(offered(&cpu, ActFormat::Int8, 1));
    assert!(offered(&cpu, ActFormat::F32, 1));
    // Halves want the norm before they are rounded.
    assert!(!offered(&cpu, ActFormat::F16, 1));
    assert!(!offered(&cpu, ActFormat::Int8, 2));
    assert!(!offered(&Caps::portable_gpu(), ActFormat::F32, 1));
    for subgroups in [None, Some((4, 4)), Some((4, 8)), Some((16, 16))] {
        let other = Caps {
            subgroups,
            ..cpu.clone()
        };
        assert!(!offered(&other, ActFormat::Int8, 1), "{subgroups:?}");
    }
}
