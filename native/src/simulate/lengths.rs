//! Lengths of requests as papers publish them, and arrivals, drawn by a seed. Knows no file.

use super::trace::{MAX_REQUESTS, TraceRequest};

/// Names of traces.
pub const NAMES: [&str; 4] = ["sharegpt-like", "alpaca-like", "azure-like", "orca-like"];

/// Requests a second where nobody says otherwise.
pub(super) const DEFAULT_RATE: f64 = 10.0;

/// How lengths are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    prompt: Distribution,
    output: Distribution,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    /// Logarithms are normal; `mean` is that after lengths were cut to what a model can serve.
    LogNormal { mean: f64, sigma: f64 },
    /// Every length from the first to the last.
    Uniform(usize, usize),
}

/// The spread of a log-normal distribution with this mean and median.
fn spread(mean: f64, median: f64) -> f64 {
    (2.0 * (mean / median).ln()).sqrt()
}

impl Lengths {
    /// Those of a trace by name.
    pub fn published(name: &str) -> Option<Self> {
        use Distribution::{LogNormal, Uniform};
        let (prompt, output) = match name {
            // W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with
            // PagedAttention", SOSP 2023, figure 11: the means. The spreads are assumed.
            "sharegpt-like" => (
                LogNormal {
                    mean: 161.31,
                    sigma: 1.1,
                },
                LogNormal {
                    mean: 337.99,
                    sigma: 0.9,
                },
            ),
            "alpaca-like" => (
                LogNormal {
                    mean: 19.31,
                    sigma: 0.5,
                },
                LogNormal {
                    mean: 58.45,
                    sigma: 0.9,
                },
            ),
            // P. Patel et al., "Splitwise", ISCA 2024, and the Azure LLM inference trace (conversation):
            // means 1155 and 211, medians 1020 and 129, which fix a log-normal's spread.
            "azure-like" => (
                LogNormal {
                    mean: 1155.0,
                    sigma: spread(1155.0, 1020.0),
                },
                LogNormal {
                    mean: 211.0,
                    sigma: spread(211.0, 129.0),
                },
            ),
            // G. Yu et al., "Orca", OSDI 2022, section 6.2.
            "orca-like" => (Uniform(32, 512), Uniform(1, 128)),
            _ => return None,
        };
        Some(Self { prompt, output })
    }

    /// `n` requests at `rate` a second as a Poisson process, prompt and answer each of at most half of
    /// `max_model_len`.
    pub fn draw(&self, n: usize, rate: f64, max_model_len: usize, seed: u64) -> Vec<TraceRequest> {
        // Whatever the rate, the same requests in the same order.
        let (mut lengths, mut gaps) = (Noise::new(seed), Noise::new(!seed));
        let most = max_model_len / 2;
        let (prompt, output) = (self.prompt.fitted(most), self.output.fitted(most));
        let mut arrival_s = 0.0;
        (0..n.min(MAX_REQUESTS))
            .map(|_| {
                arrival_s += -(1.0 - gaps.uniform()).ln() / rate;
                TraceRequest {
                    arrival_s,
                    prompt_tokens: prompt.draw(&mut lengths),
                    output_tokens: output.draw(&mut lengths),
                    prefix_group: None,
                    prefix_tokens: 0,
                }
            })
            .collect()
    }
}

/// A distribution made to fit a model's context.
#[derive(Clone, Copy, Debug)]
struct Fitted {
    distribution: Distribution,
    /// Mean of the logarithms.
    mu: f64,
    most: usize,
}

impl Distribution {
    fn fitted(self, most: usize) -> Fitted {
        let mut fitted = Fitted {
            distribution: self,
            mu: 0.0,
            most,
        };
        if let Self::LogNormal { mean, sigma } = self {
            // Cutting takes from the mean what the location gives back. The mean is a sum over a normal density.
            let normals = || (-600..=600).map(|i| f64::from(i) / 100.0);
            let density = |z: f64| (-z * z / 2.0).exp();
            let mass: f64 = normals().map(density).sum();
            let (mut low, mut high) = (0.0, (most as f64).ln());
            for _ in 0..40 {
                let mu = (low + high) / 2.0;
                let cut = normals().map(|z| density(z) * cut((mu + sigma * z).exp(), most) as f64);
                match cut.sum::<f64>() / mass > mean {
                    true => high = mu,
                    false => low = mu,
                }
            }
            fitted.mu = low;
        }
        fitted
    }
}

fn cut(length: f64, most: usize) -> usize {
    (length.round() as usize).clamp(1, most.max(1))
}

impl Fitted {
    fn draw(&self, noise: &mut Noise) -> usize {
        match self.distribution {
            Distribution::LogNormal { sigma, .. } => {
                cut((self.mu + sigma * noise.normal()).exp(), self.most)
            }
            Distribution::Uniform(first, last) => {
                let width = (last - first + 1) as f64;
                cut(first as f64 + (noise.uniform() * width).floor(), self.most)
            }
        }
    }
}

/// Noise by a seed: `SplitMix64` (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
struct Noise(u64);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to below 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// By Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
