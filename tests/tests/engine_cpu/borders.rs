//! Batches, chunks and page sizes around every border of the chains, in every class and by the programs of
//! processors and GPUs; and mutants with one wrong border, which must be noticed.

use super::{
    MODELS, Model, PLAIN, Served, Serving, bits, bits_of, kernel, plain, plain_all, reference,
};
use proptest::prelude::*;
use twoclock_core::runner::NumericsClass;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::cpu::{Bound, CpuExecutor};
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::kernels::attention_decode::AttentionDecodeParams;
use twoclock_shaders::kernels::fused_row_join::FusedRowJoinParams;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::matmul::MatmulParams;

/// The same for a model with a window, which begins to leave pages behind and then parts.
const WINDOWED: [usize; 9] = [1, 33, 36, 37, 38, 64, 257, 300, 513];

/// For what makes no difference between lengths but their number.
const FEW: [usize; 3] = [1, 33, 70];

/// Lengths around every border: groups of 32, pages of 16 and 32, blocks, parts, and two parts.
const LENGTHS: [usize; 16] = [
    1, 2, 15, 16, 17, 31, 32, 33, 127, 253, 255, 256, 257, 511, 513, 700,
];

/// In small chunks, batches and pages, with steps in flight; and in the sizes of servers.
const WAYS: [Serving; 2] = [
    Serving {
        chunk: 7,
        block_size: 16,
        max_num_batched_tokens: 70,
        decode_queries: 4,
        together: true,
        run_ahead: 2,
        ..PLAIN
    },
    Serving {
        chunk: 64,
        max_num_batched_tokens: 520,
        run_ahead: 1,
        ..PLAIN
    },
];

#[test]
fn every_border_is_crossed_the_same_way() {
    for way in WAYS {
        // Few at a time, so that the pool holds them.
        let full = LENGTHS.chunks(3).map(|lengths| (Model::Full, lengths));
        let mixed = WINDOWED.chunks(3).map(|lengths| (Model::Mixed, lengths));
        let others = [Model::Mixture, Model::Gemma].map(|model| (model, &FEW[..]));
        for (model, lengths) in full.chain(mixed).chain(others) {
            let served = bits(model, lengths, way);
            let plain = plain_all(model, way, lengths);
            assert!(served == plain, "{model:?}, {lengths:?} tokens, {way:?}");
        }
        for kv in [KvDtype::F16, KvDtype::Int8] {
            let (with_kv, lengths) = (Serving { kv, ..way }, [33, 70, 257]);
            let served = bits(Model::Mixed, &lengths, with_kv);
            let plain = plain_all(Model::Mixed, with_kv, &lengths);
            assert!(served == plain, "{lengths:?} tokens, {with_kv:?}");
            assert!(served != plain_all(Model::Mixed, way, &lengths));
        }
    }
}

/// What classes have in common the test above crosses; here are their matrices, at many numbers of tokens.
#[test]
fn every_class_gives_the_same_bits_however_served() {
    // A GPU's steps of a token or two are fused, and those of a prompt fill tiles; all together is a step
    // of more tokens than a tile has.
    let together = Serving {
        chunk: 512,
        together: true,
        ..WAYS[1]
    };
    for model in [Model::Full, Model::Mixture, Model::Gemma] {
        let mut plains: Vec<Served> = Vec::new();
        for class in NumericsClass::ALL {
            for (kind, way) in [
                (DeviceKind::Cpu, WAYS[0]),
                (DeviceKind::Gpu, WAYS[0]),
                (DeviceKind::Gpu, together),
            ] {
                let way = Serving { class, kind, ..way };
                let served = bits(model, &FEW, way);
                let plain = plain_all(model, way, &FEW);
                assert!(served == plain, "{model:?}, {way:?}");
            }
            let plain = plain_all(model, Serving { class, ..PLAIN }, &FEW);
            assert!(!plains.contains(&plain), "{class:?} is a class of its own");
            plains.push(plain);
        }
    }
}

fn serving() -> impl Strategy<Value = Serving> {
    let arithmetic = (
        prop::sample::select(NumericsClass::ALL.to_vec()),
        prop::sample::select(vec![DeviceKind::Cpu, DeviceKind::Gpu]),
        prop::sample::select(KvDtype::ALL.to_vec()),
    );
    let steps = (
        prop::sample::select(vec![7, 64, 512]),
        prop::sample::select(vec![16, 32]),
        prop::sample::select(vec![70, 520]),
        1usize..=4,
        any::<bool>(),
        0usize..4,
    );
    (arithmetic, steps).prop_map(|((class, kind, kv), steps)| {
        let (chunk, block_size, max_num_batched_tokens, decode_queries, together, run_ahead) =
            steps;
        Serving {
            class,
            kind,
            chunk,
            block_size,
            max_num_batched_tokens,
            decode_queries,
            together,
            kv,
            run_ahead,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_same_bits_however_served(
        model in prop::sample::select(MODELS.to_vec()),
        lengths in prop::collection::vec(prop::sample::select(LENGTHS.to_vec()), 1..=3),
        serving in serving(),
    ) {
        let served = bits(model, &lengths, serving);
        prop_assert!(served == plain_all(model, serving, &lengths));
    }
}

/// `attention_decode` and `attention_merge` with parts of 288 keys instead of 256: the right
/// answer, by a chain of its own.
fn long_parts(
    name: &'static str,
    key: &KernelKey,
    params: &[u8],
    b: &mut Bound<'_>,
    grid: [u32; 3],
) {
    let mut key = key.clone();
    for (constant, value) in &mut key.consts {
        if *constant == "PART_KEYS" {
            *value = 288;
        }
    }
    kernel(name)(&key, params, b, grid);
}

#[test]
fn a_wrong_border_is_noticed() {
    let mutant = || {
        CpuExecutor::default()
            .with_kernel("attention_decode", |key, params, b, grid| {
                long_parts("attention_decode", key, params, b, grid);
            })
            .with_kernel("attention_merge", |key, params, b, grid| {
                long_parts("attention_merge", key, params, b, grid);
            })
    };
    // Up to the border nothing can differ; two blocks beyond it something must.
    for (len, same) in [(250, true), (300, false)] {
        let served = bits_of(mutant(), Model::Full, &[len], PLAIN);
        let plain = plain(Model::Full, PLAIN, len);
        assert_eq!(served == plain, same, "{len}");
    }
}

#[test]
fn a_wrong_window_is_noticed() {
    let mutant = CpuExecutor::default().with_kernel("attention_decode", |key, params, b, grid| {
        let mut params: AttentionDecodeParams = bytemuck::pod_read_unaligned(params);
        // One key more where there is a window.
        params.window += u32::from(params.window > 0);
        kernel("attention_decode")(key, bytemuck::bytes_of(&params), b, grid);
    });
    let served = bits_of(mutant, Model::Mixed, &[100], PLAIN);
    assert!(served != plain(Model::Mixed, PLAIN, 100));
}

#[test]
fn gains_of_another_norm_are_noticed() {
    let mutant = reference(PLAIN.class, PLAIN.kind);
    let mutant = mutant.with_kernel("fused_row_join", |key, params, b, grid| {
        let mut params: FusedRowJoinParams = bytemuck::pod_read_unaligned(params);
        params.gains4 = 0;
        kernel("fused_row_join")(key, bytemuck::bytes_of(&params), b, grid);
    });
    let served = bits_of(mutant, Model::Full, &[33], PLAIN);
    assert!(served != plain(Model::Full, PLAIN, 33));
}

/// `matmul` of more than eight tokens by the chain of cooperative matrices, as if tiles had a chain of their
/// own.
fn chain_of_tiles(key: &KernelKey, params: &[u8], b: &mut Bound<'_>, grid: [u32; 3]) {
    let p: MatmulParams = bytemuck::pod_read_unaligned(params);
    match p.tokens {
        ..=8 => kernel("matmul")(key, params, b, grid),
        tokens => kernel("matmul_coop")(key, params, b, [1, tokens.div_ceil(16), 1]),
    }
}

#[test]
fn a_chain_by_the_number_of_tokens_is_noticed() {
    let way = Serving {
        class: NumericsClass::F16,
        kind: DeviceKind::Gpu,
        ..PLAIN
    };
    for (chunk, same) in [(7, true), (64, false)] {
        let mutant = reference(way.class, way.kind).with_kernel("matmul", chain_of_tiles);
        let served = bits_of(mutant, Model::Full, &[33], Serving { chunk, ..way });
        let plain = plain(Model::Full, way, 33);
        assert_eq!(served == plain, same, "in chunks of {chunk}");
    }
}
