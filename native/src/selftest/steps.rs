//! How many tokens the steps of a self-test have, and what a device's tuning is besides what it is: so that
//! each body that steps can lead to is run by models that are small. Knows no model.

use std::cmp::Reverse;

use twoclock_core::weights::Layers;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::kernels::matmul_coop::Tiling;
use twoclock_shaders::tuning::Tuning;

use crate::asked_variants::MOST_TOKENS;
use crate::loads::{Core, serve_all_kinds, serve_alone};

/// Steps that attention's bodies differ for: alone, few and many queries, more of them than a tile has.
const OF_ATTENTION: [usize; 4] = [70, 24, 3, 1];

/// What computes a dense product of so many tokens.
fn body(caps: &Caps, tokens: usize) -> (Regime, Option<Tiling>) {
    let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    let coop = caps.coop.map(|_| Tiling::choose(&caps.tuning, tokens));
    (Regime::choose(caps, tokens), coop)
}

/// Numbers of tokens that lead to each body of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The longest first.
    sizes: Vec<usize>,
    /// Whether longer steps lead to others.
    others_beyond: bool,
}

impl Steps {
    /// For programs of a class, by what they use of a device.
    pub fn of(caps: &Caps) -> Self {
        let begins = |&n: &usize| n == 1 || body(caps, n) != body(caps, n - 1);
        let begins: Vec<usize> = (1..=MOST_TOKENS).filter(begins).collect();
        let ends = begins.iter().skip(1).map(|next| next - 1);
        let ends = ends.chain([MOST_TOKENS]);
        // Behind a border, so that the last tile is not full.
        let within = begins.iter().zip(ends).map(|(&n, end)| end.min(n + n / 8));
        let mut sizes: Vec<usize> = within.chain(OF_ATTENTION).collect();
        sizes.sort_unstable_by_key(|&n| Reverse(n));
        sizes.dedup();
        Self {
            sizes,
            others_beyond: body(caps, MOST_TOKENS) != body(caps, usize::MAX),
        }
    }

    /// Tokens of the longest.
    pub fn longest(&self) -> usize {
        self.sizes[0]
    }

    /// All of them that so many tokens fill, the longest first.
    pub fn sizes(&self, tokens: usize) -> impl Iterator<Item = usize> {
        let shorter = self.sizes.iter().copied().filter(move |&n| n < tokens);
        [tokens].into_iter().chain(shorter)
    }

    /// Whether steps of more than [`MOST_TOKENS`] lead to bodies that none of these do.
    pub fn others_beyond(&self) -> bool {
        self.others_beyond
    }
}

/// Requests that are served beside the reference, by programs for some capabilities.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What programs are built for.
    pub caps: Caps,
    alone: bool,
}

impl Pass {
    /// All that a narrow model is served with on a device.
    pub fn all(caps: &Caps) -> Vec<Self> {
        let mut passes = vec![Self {
            caps: caps.clone(),
            alone: false,
        }];
        if caps.kind == DeviceKind::Cpu {
            // Narrow matrices have few rows: as if those were very many, as the whole model's may be.
            let tuning = Tuning {
                row_many: 0,
                ..caps.tuning
            };
            passes.push(Self {
                caps: Caps {
                    tuning,
                    ..caps.clone()
                },
                alone: true,
            });
        }
        passes
    }

    /// Of the model that is served: what crosses layers does so in steps of one token, on processors.
    pub fn layers(&self) -> Layers {
        match self.alone {
            true => Layers::Neighbours,
            false => Layers::Kinds,
        }
    }

    /// Serves them.
    ///
    /// # Errors
    /// The device's; a request that is refused or fails.
    pub fn serve(&self, core: &mut Core<impl Executor>, steps: &Steps) -> anyhow::Result<()> {
        match self.alone {
            true => serve_alone(core),
            false => serve_all_kinds(core, steps.longest()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twoclock_shaders::caps::Coop;

    fn tuned(fields: &[(&str, u32)]) -> Caps {
        let mut caps = Caps::portable_gpu();
        for &(field, value) in fields {
            caps.tuning = caps.tuning.with(field, value).expect("a choice");
        }
        caps
    }

    #[test]
    fn steps_reach_every_body() {
        let sizes = |caps: &Caps| Steps::of(caps).sizes;
        // One, two, up to four and up to eight tokens; tiles of 16 up to 64; larger ones.
        assert_eq!(sizes(&tuned(&[])), [73, 70, 24, 10, 5, 3, 2, 1]);
        let far = tuned(&[("gemv_tokens", 0), ("skinny_tokens", 256)]);
        assert_eq!(sizes(&far), [289, 70, 24, 3, 1]);
        let at_the_end = tuned(&[("skinny_tokens", 510)]);
        assert_eq!(sizes(&at_the_end)[0], 512);
        let mut coop = tuned(&[("coop_skinny_tokens", 128)]);
        coop.coop = Some(Coop { subgroup: 32 });
        assert_eq!(sizes(&coop), [145, 73, 70, 24, 19, 10, 5, 3, 2, 1]);
        for caps in [tuned(&[]), far, at_the_end, coop, Caps::reference()] {
            let steps = Steps::of(&caps);
            assert!(!steps.others_beyond());
            for n in 1..=MOST_TOKENS {
                let same = |&&size: &&usize| body(&caps, size) == body(&caps, n);
                assert!(steps.sizes.iter().find(same).is_some(), "{n}");
            }
        }
    }

    #[test]
    fn a_border_that_no_step_crosses_is_noticed() {
        let steps = Steps::of(&tuned(&[("skinny_tokens", 512)]));
        assert!(steps.others_beyond());
        assert_eq!(steps.longest(), 70);
    }

    #[test]
    fn sizes_are_of_the_tokens_there_are() {
        let steps = Steps::of(&tuned(&[]));
        let of = |tokens| steps.sizes(tokens).collect::<Vec<_>>();
        assert_eq!(of(73), [73, 70, 24, 10, 5, 3, 2, 1]);
        assert_eq!(of(20), [20, 10, 5, 3, 2, 1]);
    }
}
