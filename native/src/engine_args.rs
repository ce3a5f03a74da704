//! What the command line takes of how a model is run. Knows nothing of what is done with it.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use twoclock_core::runner::{ComputeDtype, KvCacheDtype};
use twoclock_core::sched::MAX_RUN_AHEAD;
use twoclock_core::weights::Quantization;

use crate::host_executor::DeviceChoice;
use crate::slo_args::SloArgs;

/// How a model is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "How the model is run")]
pub struct EngineArgs {
    /// Number of a device in `twoclock devices`, or cpu for the reference kernels; the best one
    /// where absent.
    #[arg(long, value_name = "N|cpu")]
    pub device: Option<DeviceChoice>,
    /// What matrices are multiplied with: activations as f32, which is exact, rounded to f16, or to
    /// int8 with a scale for each 32; coop has f16 multiplied by cooperative matrices, where a device has
    /// them. auto is int8 on a processor and f16 on a GPU.
    #[arg(long, default_value = "auto", value_name = ComputeDtype::NAMES)]
    pub compute_dtype: ComputeDtype,
    /// Type of cached keys and values: f16 takes half the memory of f32, int8 a bit over a quarter.
    /// auto is f32 where --compute-dtype is, else f16.
    #[arg(long, default_value = "auto", value_name = "auto|f16|f32|int8")]
    pub kv_cache_dtype: KvCacheDtype,
    /// Longest sequence, prompt and answer together; the model's own, at most 4096, where absent.
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,
    /// Memory the model may take, in MiB. Unknown on a GPU unless given; what is free on a
    /// processor.
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u64>,
    /// Quantize the matrices of a model in F32, F16 or BF16 as they are loaded.
    #[arg(long, value_name = "q8_0|q4_0")]
    pub quantize: Option<Quantization>,
    /// Steps that are given to the device before the tokens of the step before are back: 0 to 3, 1
    /// where absent. 1 keeps the device busy while this machine looks at the last token; more helps
    /// where that takes uneven times. 0 gives a step only once the one before it is seen. The tokens
    /// are the same.
    #[arg(long, value_name = "N", value_parser = run_ahead())]
    pub run_ahead: Option<usize>,
    /// Times to keep.
    #[command(flatten)]
    pub slo: SloArgs,
}

fn run_ahead() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=MAX_RUN_AHEAD as u64)
}
