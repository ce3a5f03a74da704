//! The attention kernels against their references, and every body and regime against each other
//! bit for bit: prefill and decode, chunks, page sizes, batches.

use crate::attention_bodies::{BODIES, PLAIN};
use crate::attention_step::{GROUP, REGIMES, Regime, Rows, Seq, Shape, borders};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::step;
use twoclock_tests::{assert_close, gpu};

/// Asserts that the tokens both runs computed have the same bits.
fn assert_same_bits(what: &str, a: &Rows, b: &Rows) {
    let mut shared = 0;
    for (token, a) in a {
        let Some(b) = b.get(token) else { continue };
        shared += 1;
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert_eq!(
                a.to_bits(),
                b.to_bits(),
                "{what}: (seed, position) {token:?} at {i}: {a} and {b}"
            );
        }
    }
    assert!(shared > 0, "{what}: nothing to compare");
}

/// Every body, regime and page size gives the same bits, and the reference's values.
fn assert_agreement(shape: Shape, seqs: &[Seq]) {
    let paged = |block_size| Shape {
        block_size,
        ..shape
    };
    let on_cpu = |regime, block_size| {
        let executor = &mut CpuExecutor::default();
        paged(block_size).run(executor, PLAIN, regime, seqs)
    };
    let reference = on_cpu(Regime::Prefill, 16);
    let mut first: Option<Rows> = None;
    for regime in REGIMES {
        let what = format!("{shape:?}, {regime:?}, reference");
        assert_same_bits(&what, &reference, &on_cpu(regime, 32));
        for bodies in BODIES {
            for block_size in [16, 32] {
                let shape = paged(block_size);
                let what = format!("{shape:?}, {regime:?}, {bodies:?}");
                let rows = shape.run(&mut *gpu(), bodies, regime, seqs);
                for (token, row) in &rows {
                    assert_close(&format!("{what}: {token:?}"), row, &reference[token], 1e-5);
                }
                assert_same_bits(&what, first.get_or_insert_with(|| rows.clone()), &rows);
            }
        }
    }
}

#[test]
fn every_body_and_regime_agrees() {
    for (head_dim, group, kv_heads) in [
        (64, 3, 3),
        (16, 1, 2),
        (96, 4, 1),
        (128, 8, 1),
        (20, 12, 1),
        (256, 2, 1),
    ] {
        assert_agreement(Shape::new(head_dim, kv_heads, group, 16), &borders(11));
    }
}

/// Halves, and bytes with their scales: groups cut short, an odd number of them a row.
#[test]
fn every_type_of_pages_agrees() {
    for (dtype, head_dim, group, window, softcap) in [
        (KvDtype::F16, 64, 3, 0, 0.0),
        (KvDtype::F16, 20, 2, 33, 1.0),
        (KvDtype::Int8, 64, 3, 0, 0.0),
        (KvDtype::Int8, 20, 2, 33, 1.0),
        (KvDtype::Int8, 80, 12, 0, 0.0),
    ] {
        let shape = Shape {
            dtype,
            window,
            softcap,
            ..Shape::new(head_dim, 2, group, 16)
        };
        assert_agreement(shape, &borders(9));
    }
}

/// Windows of one key, under, of and over a page, a block and a part; with a cap that matters, one
/// that hardly does, and none.
#[test]
fn windows_and_caps_agree() {
    for (head_dim, group, window, softcap) in [
        (64, 3, 1, 0.0),
        (20, 2, 10, 1.0),
        (64, 3, 16, 0.0),
        (256, 2, 32, 50.0),
        (64, 3, 33, 1.0),
        (20, 2, 100, 0.0),
        (64, 3, 256, 0.0),
        (256, 2, 300, 1.0),
        (64, 3, 0, 2.0),
    ] {
        let shape = Shape {
            window,
            softcap,
            ..Shape::new(head_dim, 1, group, 16)
        };
        assert_agreement(shape, &borders(9));
    }
}

#[test]
fn chunks_and_company_change_no_bit() {
    let full = Shape::new(64, 1, 3, 32);
    chunks_change_no_bit(full);
    chunks_change_no_bit(Shape {
        dtype: KvDtype::Int8,
        ..full
    });
    chunks_change_no_bit(Shape {
        window: 40,
        softcap: 3.0,
        ..full
    });
}

fn chunks_change_no_bit(shape: Shape) {
    let seq = |context, queries| Seq {
        seed: 9,
        context,
        queries,
    };
    let company = |context, queries| Seq {
        seed: 10,
        context,
        queries,
    };
    let whole = shape.run(&mut *gpu(), PLAIN, Regime::Prefill, &[seq(300, 300)]);
    for bodies in BODIES {
        for chunk in [
            seq(1, 1),
            seq(37, 36),
            seq(250, 13),
            seq(263, 13),
            seq(300, 37),
        ] {
            for seqs in [vec![chunk], vec![company(77, 5), chunk, company(3, 3)]] {
                // Positions are drawn in order, so a prefix has the contents of the whole.
                let rows = shape.run(&mut *gpu(), bodies, Regime::Prefill, &seqs);
                assert_same_bits(&format!("{seqs:?} {bodies:?}"), &whole, &rows);
                let rows = shape.run(&mut *gpu(), bodies, Regime::Decode, &seqs);
                assert_same_bits(&format!("{seqs:?} {bodies:?} decode"), &whole, &rows);
            }
        }
    }
    let whole = shape.run(
        &mut CpuExecutor::default(),
        PLAIN,
        Regime::Prefill,
        &[seq(300, 300)],
    );
    let rows = shape.run(
        &mut CpuExecutor::default(),
        PLAIN,
        Regime::Decode,
        &[seq(290, 40)],
    );
    assert_same_bits("reference", &whole, &rows);
}

/// Against the softmax as written in a textbook, in f64: the reference's own check.
#[test]
fn the_reference_is_attention() {
    for (window, softcap) in [(0, 0.0), (50, 0.0), (0, 0.7), (290, 0.7)] {
        textbook(Shape {
            window,
            softcap,
            ..Shape::new(20, 2, 2, 16)
        });
    }
}

fn textbook(shape: Shape) {
    let seqs = [Seq {
        seed: 4,
        context: 300,
        queries: 1,
    }];
    let step = shape.step(&seqs);
    let rows = shape.run(&mut CpuExecutor::default(), PLAIN, Regime::Prefill, &seqs);
    let pages = 300usize.div_ceil(16);
    let table = &step.words[step::HEADER + GROUP as usize * pages..];
    let keys = || shape.first_seen(299)..300;
    let mut expected = Vec::new();
    for head in 0..shape.heads() {
        let q = &step.qkv[4 + head * 20..][..20];
        let row = |position: usize| {
            let page = table[position / 16] as usize;
            ((page * 2 + head / 2) * 16 + position % 16) * 20
        };
        let scores: Vec<f64> = keys()
            .map(|position| {
                let k: &[f32] = bytemuck::cast_slice(&step.kcache[row(position)..][..20]);
                let dot: f64 = q
                    .iter()
                    .zip(k)
                    .map(|(&q, &k)| f64::from(q) * f64::from(k))
                    .sum();
                match f64::from(shape.softcap) {
                    0.0 => dot / 20f64.sqrt(),
                    cap => cap * (dot / 20f64.sqrt() / cap).tanh(),
                }
            })
            .collect();
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        for d in 0..20 {
            let o: f64 = keys()
                .zip(&scores)
                .map(|(position, s)| {
                    s.exp() / sum * f64::from(f32::from_bits(step.vcache[row(position) + d]))
                })
                .sum();
            expected.push(o as f32);
        }
    }
    assert_close("textbook", &rows[&(4, 299)], &expected, 1e-5);
}
