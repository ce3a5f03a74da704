//! What the command line takes of times that a service is to keep. Knows nothing of how.

use std::str::FromStr;

use clap::Args;
use twoclock_core::sched::ServiceLevel;

/// Times to keep.
#[derive(Clone, Copy, Debug, Args)]
pub struct SloArgs {
    /// Time to the first token to keep, ms. Without this and --tpot-slo-ms prompts take all the room
    /// that a step has.
    #[arg(long, value_parser = positive, value_name = "MS")]
    pub ttft_slo_ms: Option<f64>,
    /// Time per output token to keep, ms: prompts take as many tokens of a step as it leaves them. With
    /// auto no prompt stretches the steps of answers under way to three times their usual.
    #[arg(long, value_name = "MS|auto")]
    pub tpot_slo_ms: Option<TpotSlo>,
}

/// What time per output token is to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TpotSlo {
    /// One near what is usual on the device.
    Auto,
    /// Milliseconds.
    Ms(f64),
}

impl FromStr for TpotSlo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => positive(text)
                .map(Self::Ms)
                .map_err(|must| format!("{must}, or auto")),
        }
    }
}

impl SloArgs {
    /// In seconds; `None` where nothing is to be kept.
    pub fn level(&self) -> Option<ServiceLevel> {
        let asked = self.tpot_slo_ms.is_some() || self.ttft_slo_ms.is_some();
        let tpot = match self.tpot_slo_ms {
            Some(TpotSlo::Ms(ms)) => Some(ms / 1e3),
            // The default of who shares out steps.
            Some(TpotSlo::Auto) | None => None,
        };
        asked.then_some(ServiceLevel {
            tpot,
            ttft: self.ttft_slo_ms.map(|ms| ms / 1e3),
        })
    }
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value < 1e12 => Ok(value),
        _ => Err("it must be a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_a_level_and_nothing_is_none() {
        let level = |text: Option<&str>| {
            let tpot_slo_ms = text.map(|text| text.parse().unwrap());
            let slo = SloArgs {
                ttft_slo_ms: None,
                tpot_slo_ms,
            };
            slo.level()
        };
        assert_eq!(level(None), None);
        assert_eq!(level(Some("auto")), Some(ServiceLevel::default()));
        assert_eq!(level(Some("20")).unwrap().tpot, Some(0.02));
        for bad in ["0", "Auto", ""] {
            assert!(bad.parse::<TpotSlo>().unwrap_err().contains("auto"));
        }
    }
}
