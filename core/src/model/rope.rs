//! The rotary table: (cos, sin) for every position and pair, computed once on the host.

use crate::config::{ModelConfig, RopeParameters, RopeScaling};
use std::f32::consts::PI;

/// Inverse frequencies, one a rotary pair of `dim` rotated dimensions, long-context correction
/// applied, for sequences of up to `positions` tokens.
///
/// `theta^(−2 i / dim)`; Llama 3's blend as in the reference implementation of Llama 3.1; `YaRN`
/// as in its paper's (arXiv:2309.00071) section 3.2.
pub fn inverse_frequencies(rope: &RopeParameters, dim: usize, positions: usize) -> Vec<f32> {
    let theta = f64::from(rope.theta);
    let plain = |i: usize| theta.powf(-2.0 * i as f64 / dim as f64) as f32;
    let pairs = 0..dim / 2;
    let divided = |factors: &[f32]| {
        pairs
            .clone()
            .zip(factors)
            .map(|(i, f)| plain(i) / f)
            .collect()
    };
    match &rope.scaling {
        RopeScaling::None => pairs.map(plain).collect(),
        RopeScaling::Linear { factor } => pairs.map(|i| plain(i) / factor).collect(),
        RopeScaling::Factors(factors) => divided(factors),
        RopeScaling::LongRope {
            short_factor,
            long_factor,
            original_max_position_embeddings,
            ..
        } => {
            if positions > *original_max_position_embeddings as usize {
                divided(long_factor)
            } else {
                divided(short_factor)
            }
        }
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let original = *original_max_position_embeddings as f32;
            let blend = |plain: f32| {
                let wavelength = 2.0 * PI / plain;
                if wavelength < original / high_freq_factor {
                    plain
                } else if wavelength > original / low_freq_factor {
                    plain / factor
                } else {
                    let smooth = (original / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * plain / factor + smooth * plain
                }
            };
            pairs.map(plain).map(blend).collect()
        }
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_max_position_embeddings,
            truncate,
            ..
        } => {
            let original = f64::from(*original_max_position_embeddings);
            // The pair that turns so often over the original context.
            let pair = |turns: f32| {
                let period = original / (f64::from(turns) * 2.0 * std::f64::consts::PI);
                dim as f64 * period.ln() / (2.0 * theta.ln())
            };
            let (mut low, mut high) = (pair(*beta_fast), pair(*beta_slow));
            if *truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, mut high) = (low.max(0.0), high.min(dim as f64 - 1.0));
            if low == high {
                high += 0.001;
            }
            let ramp = |i: usize| ((i as f64 - low) / (high - low)).clamp(0.0, 1.0) as f32;
            pairs
                .map(|i| plain(i) / factor * ramp(i) + plain(i) * (1.0 - ramp(i)))
                .collect()
        }
    }
}

/// f32 `[positions][pairs][cos, sin]`.
pub fn table(rope: &RopeParameters, dim: usize, positions: usize) -> Vec<f32> {
    let frequencies = inverse_frequencies(rope, dim, positions);
    let scale = match rope.scaling {
        RopeScaling::Yarn {
            attention_factor, ..
        }
        | RopeScaling::LongRope {
            attention_factor, ..
        } => attention_factor,
        _ => 1.0,
    };
    (0..positions)
        .flat_map(|position| {
            frequencies.iter().flat_map(move |frequency| {
                let angle = f64::from(position as f32 * frequency);
                [angle.cos() as f32 * scale, angle.sin() as f32 * scale]
            })
        })
        .collect()
}

/// Bytes of each [`table`] of a model.
pub fn table_bytes(config: &ModelConfig, positions: usize) -> u64 {
    8 * (positions * (config.rotary_dim / 2)) as u64
}
