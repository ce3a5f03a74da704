//! What the command line takes of times that a service is to keep. Knows nothing of how.

use clap::Args;
use twoclock_core::sched::ServiceLevel;

/// Times to keep.
#[derive(Clone, Copy, Debug, Args)]
pub struct SloArgs {
    /// Time to the first token to keep, ms. Without this and --tpot-slo-ms prompts take all the room
    /// that a step has.
    #[arg(long, value_parser = positive, value_name = "MS")]
    pub ttft_slo_ms: Option<f64>,
    /// Time per output token to keep, ms: prompts take as many tokens of a step as it leaves them.
    #[arg(long, value_parser = positive, value_name = "MS")]
    pub tpot_slo_ms: Option<f64>,
}

impl SloArgs {
    /// In seconds; `None` where nothing is to be kept.
    pub fn level(&self) -> Option<ServiceLevel> {
        let seconds = |ms: Option<f64>| ms.map(|ms| ms / 1e3);
        let level = ServiceLevel {
            tpot: seconds(self.tpot_slo_ms),
            ttft: seconds(self.ttft_slo_ms),
        };
        (level != ServiceLevel::default()).then_some(level)
    }
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value < 1e12 => Ok(value),
        _ => Err("it must be a number above 0".to_owned()),
    }
}
