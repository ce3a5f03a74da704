//! What attention stores for the matmul behind it. Knows no way of computing it.

use crate::attention_bodies::BODIES;
use crate::attention_step::{REGIMES, Shape, borders};
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_tests::{gpu, rounded};

#[test]
fn every_format_of_inputs_is_rounded_singles() {
    for (head_dim, group) in [(64, 3), (256, 1)] {
        let singles = Shape::new(head_dim, 1, group, 16);
        let step = singles.step(&borders(9));
        let device = gpu().caps().clone();
        for regime in REGIMES {
            for bodies in BODIES {
                let run = |shape: Shape| {
                    let case = shape.case(bodies.caps(&device), regime, &step);
                    case.run(&mut *gpu(), 4)
                };
                let rows = run(singles);
                for act_format in [ActFormat::F16, ActFormat::Int8] {
                    let expected = rounded(act_format, &rows, head_dim * group);
                    let mut shape = singles;
                    shape.act_format = act_format;
                    let found = run(shape);
                    let found: Vec<u32> = found.into_iter().map(f32::to_bits).collect();
                    let what = format!("{head_dim} {act_format:?} {regime:?} {bodies:?}");
                    assert_eq!(found[..expected.len()], expected, "{what}");
                }
            }
        }
    }
}
