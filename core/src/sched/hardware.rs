//! A device as the cost model sees it: how fast it moves bytes, how fast it multiplies, and what a
//! step costs besides. Plain numbers; knows no device's name and no vendor.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which body computes a matrix product of so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// Up to 8 tokens: a row of the matrix is a lane's, arithmetic runs on the vector units.
    Gemv,
    /// 9 to 64 tokens.
    Skinny,
    /// More: tiles in both directions.
    Gemm,
}

impl Regime {
    /// All of them, by rising number of tokens.
    pub const ALL: [Self; 3] = [Self::Gemv, Self::Skinny, Self::Gemm];

    /// That of a number of tokens.
    pub fn of(num_tokens: usize) -> Self {
        match num_tokens {
            0..=8 => Self::Gemv,
            9..=64 => Self::Skinny,
            _ => Self::Gemm,
        }
    }
}

/// A number for each regime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerRegime {
    /// [`Regime::Gemv`].
    pub gemv: f64,
    /// [`Regime::Skinny`].
    pub skinny: f64,
    /// [`Regime::Gemm`].
    pub gemm: f64,
}

impl PerRegime {
    /// The number of one.
    pub fn get(&self, regime: Regime) -> f64 {
        match regime {
            Regime::Gemv => self.gemv,
            Regime::Skinny => self.skinny,
            Regime::Gemm => self.gemm,
        }
    }

    pub(super) fn get_mut(&mut self, regime: Regime) -> &mut f64 {
        match regime {
            Regime::Gemv => &mut self.gemv,
            Regime::Skinny => &mut self.skinny,
            Regime::Gemm => &mut self.gemm,
        }
    }
}

/// What a device achieves, not what its data sheet promises.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Bytes a second from device memory.
    pub bandwidth: f64,
    /// Floating-point operations a second in matrix products; a multiply-add is two.
    pub flops: PerRegime,
    /// Seconds a step costs whatever it computes.
    pub step_overhead: f64,
    /// Seconds a dispatch costs whatever it computes.
    pub dispatch_overhead: f64,
    /// Device memory, bytes.
    pub memory: u64,
    /// Bytes a second between device and host, one way.
    pub host_bandwidth: f64,
}

/// A number no device has.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{field} is {found}, but it must be {must}")]
pub struct HardwareError {
    /// Field of [`Hardware`].
    pub field: &'static str,
    /// Its value.
    pub found: f64,
    /// What would do.
    pub must: &'static str,
}

impl Hardware {
    /// A guess at a device of which only the memory is known, to be replaced by what steps take.
    pub fn unmeasured(memory: u64) -> Self {
        Self {
            bandwidth: 5e10,
            flops: PerRegime {
                gemv: 1e11,
                skinny: 2e11,
                gemm: 4e11,
            },
            step_overhead: 1e-4,
            dispatch_overhead: 2e-6,
            memory,
            host_bandwidth: 5e9,
        }
    }

    /// Checks that every number is possible, so that predictions are finite and positive.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), HardwareError> {
        let rates = [
            ("bandwidth", self.bandwidth),
            ("flops.gemv", self.flops.gemv),
            ("flops.skinny", self.flops.skinny),
            ("flops.gemm", self.flops.gemm),
            ("host_bandwidth", self.host_bandwidth),
            ("memory", self.memory as f64),
        ];
        for (field, found) in rates {
            if !(1.0..=1e24).contains(&found) {
                let must = "from 1 to 1e24 a second (memory: bytes)";
                return Err(HardwareError { field, found, must });
            }
        }
        let overheads = [
            ("step_overhead", self.step_overhead),
            ("dispatch_overhead", self.dispatch_overhead),
        ];
        for (field, found) in overheads {
            if !(0.0..=10.0).contains(&found) {
                let must = "from 0 to 10 seconds";
                return Err(HardwareError { field, found, must });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        let ok = Hardware {
            bandwidth: 1e12,
            flops: PerRegime {
                gemv: 1e13,
                skinny: 1e14,
                gemm: 5e14,
            },
            step_overhead: 0.0,
            dispatch_overhead: 1e-6,
            memory: 1 << 36,
            host_bandwidth: 1e10,
        };
        ok.check().unwrap();
        let field = |h: Hardware| h.check().unwrap_err().field;
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(field(Hardware { bandwidth, ..ok }), "bandwidth");
        }
        let step_overhead = f64::NAN;
        assert_eq!(
            field(Hardware {
                step_overhead,
                ..ok
            }),
            "step_overhead"
        );
        assert_eq!(field(Hardware { memory: 0, ..ok }), "memory");
    }

    #[test]
    fn regimes_begin_where_they_say() {
        let of = [0, 1, 8, 9, 64, 65].map(Regime::of);
        assert!(of.is_sorted());
        assert_eq!(
            of.map(|r| r == Regime::Skinny),
            [false, false, false, true, true, false]
        );
    }
}
