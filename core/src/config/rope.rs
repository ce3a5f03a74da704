//! The numbers of a rotary embedding: base, long-context correction, and how pairs lie in a head.
//! The angles themselves are made in `model/rope`.

use super::ConfigError;
use super::model::fail;

/// Long-context corrections of the rotary embedding.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Inverse frequencies as they are.
    #[default]
    None,
    /// Positions divided by `factor`.
    Linear {
        /// Context extension, > 0.
        factor: f32,
    },
    /// Llama 3.1's smooth blend between full and divided frequencies.
    Llama3 {
        /// Division of the low frequencies.
        factor: f32,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` stay.
        high_freq_factor: f32,
        /// Context the model was first trained with.
        original_max_position_embeddings: u32,
    },
    /// `YaRN` (Peng et al. 2023, arXiv:2309.00071): pairs that turn often stay, pairs that turn
    /// rarely are divided, with a ramp between.
    Yarn {
        /// Division of the low frequencies.
        factor: f32,
        /// Turns over the original context above which a pair stays.
        beta_fast: f32,
        /// Turns below which a pair is divided.
        beta_slow: f32,
        /// Context the model was first trained with.
        original_max_position_embeddings: u32,
        /// The ramp's ends are rounded outwards to whole pairs.
        truncate: bool,
        /// cos and sin are multiplied by this.
        attention_factor: f32,
    },
    /// `LongRoPE` (Ding et al. 2024, arXiv:2402.13753): divisors of their own for sequences within
    /// the original context and beyond it. A model served for longer sequences than the original
    /// context uses the long ones throughout.
    LongRope {
        /// Divisors within the original context, one a rotary pair.
        short_factor: Vec<f32>,
        /// Divisors beyond.
        long_factor: Vec<f32>,
        /// Context the model was first trained with.
        original_max_position_embeddings: u32,
        /// cos and sin are multiplied by this.
        attention_factor: f32,
    },
    /// Divisors given by the file, one a rotary pair (`rope_freqs.weight` of GGUF).
    Factors(Vec<f32>),
}

/// How rotary pairs lie in a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopePairing {
    /// Dimension `i` turns with `i + rotary_dim / 2` (Hugging Face).
    #[default]
    Halves,
    /// Dimension `2 i` turns with `2 i + 1` (GGUF's llama files, whose q and k rows are permuted).
    Interleaved,
}

/// A rotary embedding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RopeParameters {
    /// Base of the frequencies, ≥ 1.
    pub theta: f32,
    /// Long-context correction.
    pub scaling: RopeScaling,
}

impl RopeParameters {
    /// Checks the numbers for heads with so many rotary pairs.
    pub(super) fn check(&self, pairs: usize, field: &'static str) -> Result<(), ConfigError> {
        if !(self.theta >= 1.0 && self.theta.is_finite()) {
            let expected = "at least 1 and finite".to_owned();
            return fail("rope_theta", self.theta, expected);
        }
        let positive = |x: f32| x > 0.0 && x.is_finite();
        let divisors = |f: &[f32]| f.len() == pairs && f.iter().all(|&f| positive(f));
        let (ok, expected) = match &self.scaling {
            RopeScaling::None => (true, String::new()),
            RopeScaling::Linear { factor } => (positive(*factor), "of a factor above 0".into()),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => (
                positive(*factor)
                    && positive(*low_freq_factor)
                    && positive(*high_freq_factor)
                    && low_freq_factor < high_freq_factor
                    && *original_max_position_embeddings > 0,
                "of positive numbers with low_freq_factor below high_freq_factor".into(),
            ),
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings,
                attention_factor,
                ..
            } => (
                positive(*factor)
                    && positive(*beta_slow)
                    && positive(*beta_fast)
                    && beta_slow < beta_fast
                    && *original_max_position_embeddings > 0
                    && positive(*attention_factor)
                    && self.theta > 1.0,
                "of positive numbers with beta_slow below beta_fast and rope_theta above 1".into(),
            ),
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                original_max_position_embeddings,
                attention_factor,
            } => (
                divisors(short_factor)
                    && divisors(long_factor)
                    && *original_max_position_embeddings > 0
                    && positive(*attention_factor),
                format!("of {pairs} short and long factors above 0, one a rotary pair"),
            ),
            RopeScaling::Factors(factors) => (
                divisors(factors),
                format!("{pairs} numbers above 0, one a rotary pair"),
            ),
        };
        if ok {
            return Ok(());
        }
        let found: String = format!("{:?}", self.scaling).chars().take(200).collect();
        fail(field, found, expected)
    }
}
