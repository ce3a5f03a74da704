//! The rotary table: (cos, sin) for every position and pair, computed once on the host.

use crate::config::{ModelConfig, RopeScaling};
use std::f32::consts::PI;

/// Inverse frequencies of a model, one a rotary pair, long-context correction applied.
///
/// `theta^(−2 i / d)`; Llama 3's blend as in the reference implementation of Llama 3.1.
pub fn inverse_frequencies(config: &ModelConfig) -> Vec<f32> {
    let pairs = config.head_dim / 2;
    (0..pairs)
        .map(|i| {
            let exponent = -2.0 * i as f64 / config.head_dim as f64;
            let plain = f64::from(config.rope_theta).powf(exponent) as f32;
            match &config.rope_scaling {
                RopeScaling::None => plain,
                RopeScaling::Linear { factor } => plain / factor,
                RopeScaling::Factors(factors) => plain / factors[i],
                RopeScaling::Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position_embeddings,
                } => {
                    let original = *original_max_position_embeddings as f32;
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
                }
            }
        })
        .collect()
}

/// f32 `[positions][pairs][cos, sin]`.
pub fn table(config: &ModelConfig, positions: usize) -> Vec<f32> {
    let frequencies = inverse_frequencies(config);
    (0..positions)
        .flat_map(|position| {
            frequencies.iter().flat_map(move |frequency| {
                let angle = f64::from(position as f32 * frequency);
                [angle.cos() as f32, angle.sin() as f32]
            })
        })
        .collect()
}

/// Bytes of [`table`].
pub fn table_bytes(config: &ModelConfig, positions: usize) -> u64 {
    8 * (positions * (config.head_dim / 2)) as u64
}
