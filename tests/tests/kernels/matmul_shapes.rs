//! What tuning may choose of `matmul`, rows a lane, lanes and tiles, in one format and each way of storing
//! inputs: the bits of the usual shapes.

use crate::matmul::Problem;
use twoclock_core::weights::DType;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_tests::gpu;

/// Tiles and lanes of GPUs' bodies take drivers for processors seconds to compile, so each input is tried with
/// some of them: every tile with one, every number of lanes and of rows with bytes.
fn tried(act_format: ActFormat, regime: Regime) -> bool {
    let bytes = act_format == ActFormat::Int8;
    match regime {
        Regime::Row { tokens, rows, .. } => bytes || (tokens, rows) == (1, 8),
        Regime::Gemv { tokens, lanes } => tokens == 1 || (bytes && (tokens, lanes) == (4, 128)),
        Regime::Tile { rows, tokens } => match act_format {
            ActFormat::F32 => (rows, tokens) == (128, 32),
            ActFormat::F16 => (rows, tokens) == (64, 64),
            ActFormat::Int8 => [(32, 16), (128, 16), (128, 64)].contains(&(rows, tokens)),
        },
    }
}

#[test]
fn tuned_shapes_same_bits() {
    let caps = gpu().caps().clone();
    let others = Regime::others(&caps);
    // Borders of every tile; then more spans than 32 and 64 lanes take at a time.
    let borders = ActFormat::ALL.iter().map(|act| (*act, (193, 96), 66));
    for (act_format, shape, tokens) in borders.chain([(ActFormat::Int8, (9, 8352), 3)]) {
        let problem = Problem::new(11, DType::Q4_0, act_format, shape, tokens);
        let run = |regime| problem.case(regime, tokens).run(&mut *gpu(), 2);
        let expected = run(Regime::all(&caps)[0]);
        problem.assert_close("the usual one", &expected, tokens);
        for &regime in others.iter().filter(|&&r| tried(act_format, r)) {
            if shape.1 > 96 && !matches!(regime, Regime::Gemv { .. }) {
                continue;
            }
            let y = run(regime);
            let mut pairs = y.iter().zip(&expected);
            let first = pairs.position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(
                first, None,
                "{act_format:?} {shape:?} × {tokens}: {regime:?}"
            );
        }
    }
}
