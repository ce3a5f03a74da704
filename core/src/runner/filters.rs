//! Which tokens a row is drawn from, in the numbers that kernels take. Knows no row and no device.

use crate::types::SamplingParams;
use twoclock_shaders::kernels::step;

/// Which tokens a row is drawn from, as the words of its sampling record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// 0 for all.
    pub top_k: u32,
    /// In units of 2⁻³²; 0 for all.
    pub top_p: u32,
    /// How far under the largest logit, f32 bits.
    pub min_p: u32,
    /// One of them drops tokens.
    pub any: bool,
}

impl Filters {
    /// What these parameters ask for.
    pub fn of(params: &SamplingParams) -> Self {
        let none = Self {
            min_p: step::NO_MIN_P.to_bits(),
            ..Self::default()
        };
        if params.temperature == 0.0 {
            return none;
        }
        let mut filters = none;
        filters.top_k = u32::try_from(params.top_k).unwrap_or(u32::MAX);
        if params.top_p < 1.0 {
            // What rounds to nothing still keeps the largest.
            filters.top_p = ((f64::from(params.top_p) * 2f64.powi(32)) as u32).max(1);
        }
        if params.min_p > 0.0 {
            let gap = f64::from(params.temperature) * f64::from(params.min_p).ln();
            filters.min_p = (gap as f32).max(step::NO_MIN_P).to_bits();
        }
        filters.any = filters != none;
        filters
    }
}
