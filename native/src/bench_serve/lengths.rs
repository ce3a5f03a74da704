//! Lengths as a command line names them, and the noise they are drawn by. Knows no requests.

use std::str::FromStr;

/// Longest prompt or answer drawn, tokens.
const MAX: usize = 1 << 20;

/// How long something is.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// Always so.
    Fixed(usize),
    /// From the first to the last, each as likely.
    Uniform(usize, usize),
    /// Logarithms are normal, cut at the most.
    LogNormal {
        /// Half are shorter.
        median: f64,
        /// Standard deviation of the logarithms.
        sigma: f64,
        /// The longest.
        most: usize,
    },
    /// One of these, each as likely.
    Choice(Vec<usize>),
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = |text: &str| text.parse().ok().filter(|n| (1..=MAX).contains(n));
        // A number alone is what everybody tries first.
        if let Some(n) = length(text) {
            return Ok(Self::Fixed(n));
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let parts: Vec<&str> = rest.split(':').collect();
        let lengths = match (kind, &parts[..]) {
            ("fixed", [n]) => length(n).map(Self::Fixed),
            ("uniform", [a, b]) => {
                let ends = length(a).zip(length(b)).filter(|(a, b)| a <= b);
                ends.map(|(a, b)| Self::Uniform(a, b))
            }
            ("lognormal", [median, sigma, most @ ..]) if most.len() < 2 => {
                let number = |text: &str| text.parse().ok().filter(|n| (0.0..1e6).contains(n));
                let most = most.first().map_or(Some(MAX), |n| length(n));
                let both = number(median).filter(|n| *n > 0.0).zip(number(sigma));
                both.zip(most)
                    .map(|((median, sigma), most)| Self::LogNormal {
                        median,
                        sigma,
                        most,
                    })
            }
            ("choice", [list]) => list
                .split(',')
                .map(length)
                .collect::<Option<_>>()
                .map(Self::Choice),
            _ => None,
        };
        lengths.ok_or_else(|| {
            format!(
                "it must be N, fixed:N, uniform:A:B, lognormal:MEDIAN:SIGMA[:MAX] or choice:A,B,C, with \
                 lengths from 1 to {MAX}"
            )
        })
    }
}

impl Lengths {
    /// One of them.
    pub fn draw(&self, noise: &mut Noise) -> usize {
        match self {
            Self::Fixed(n) => *n,
            Self::Uniform(a, b) => a + noise.below(b - a + 1),
            Self::LogNormal {
                median,
                sigma,
                most,
            } => {
                let drawn = (median.ln() + sigma * noise.normal()).exp().round();
                (drawn as usize).clamp(1, *most)
            }
            Self::Choice(all) => all[noise.below(all.len())],
        }
    }
}

/// `SplitMix64` (G. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// One of its own for a seed and a purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut noise = Self(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        noise.next();
        noise
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 to below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// By Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_they_are_named() {
        let mut noise = Noise::new(1, 0);
        let mut draw = |text: &str| -> Vec<usize> {
            let lengths: Lengths = text.parse().unwrap();
            let mut drawn: Vec<usize> = (0..2001).map(|_| lengths.draw(&mut noise)).collect();
            drawn.sort_unstable();
            drawn
        };
        assert_eq!(draw("fixed:7")[0], 7);
        assert_eq!(draw("8"), draw("fixed:8"));
        let uniform = draw("uniform:3:9");
        assert_eq!((uniform[0], uniform[1000], uniform[2000]), (3, 6, 9));
        let normal = draw("lognormal:100:0.5:300");
        assert!((90..110).contains(&normal[1000]), "{}", normal[1000]);
        assert_eq!(normal[2000], 300);
        assert_eq!(draw("choice:2,5")[2000], 5);
        for bad in [
            "",
            "0",
            "fixed",
            "fixed:0",
            "fixed:x",
            "uniform:9:3",
            "lognormal:0:1",
            "lognormal:5",
            "lognormal:5:1:2:3",
            "choice:",
            "normal:1:2",
            "fixed:99999999",
        ] {
            assert!(bad.parse::<Lengths>().is_err(), "{bad}");
        }
    }
}
