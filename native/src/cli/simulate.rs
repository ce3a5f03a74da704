//! What was typed after `simulate`. Knows nothing of what it means.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::simulate::policy::{self, Policy};
use crate::simulate::shape::{self, Bits};
use crate::simulate::{DEFAULT_REQUESTS, SimulateOptions, device_file, trace};
use crate::slo_args::{SloArgs, positive};

/// Shown after the help of `simulate`.
pub(super) fn more_help() -> String {
    format!(
        "\
Policies:
{}

Rates (served, tokens/s, goodput) are counted while the middle half of all answers ended, so that \
neither the beginning nor the drain counts.

Files:
  a device file is one JSON object, all as reached, not as promised. flops may be one number, for
  steps of any size; bandwidths are bytes/s, overheads seconds, memory bytes:
  {}
  a model file is a config.json; this much at least:
  {}
  a trace file has one JSON object a line, in order of arrival; where prompts begin alike, also
  \"prefix_group\": 1 and \"prefix_tokens\": 64:
  {}

Examples:
  twoclock simulate                                 Llama 3 8B on an H100, chat-like requests
  twoclock simulate --rate 30 --tpot-slo-ms 20 --policy ridge,fixed:512,fixed:2048,vllm-2023
  twoclock simulate --hardware a100-40gb --model opt-13b --sweep-rates 0.5,1,2,4
    --policy orca-max,orca-pow2,orca-oracle,vllm-2023 --plot rates.svg
  twoclock simulate --compare papers                what Orca, PagedAttention and Sarathi gain

The scheduler and the block pool are the engine's own; time is what the cost model predicts.",
        policy::DESCRIPTIONS,
        device_file::EXAMPLE,
        shape::EXAMPLE,
        trace::EXAMPLE,
    )
}

/// What is simulated.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// h200, h100, a100, a100-40gb, rtx4090, m3max, or a file.
    #[arg(long, default_value = "h100", value_name = "NAME|FILE")]
    pub hardware: String,
    /// llama-3-8b, llama-3-70b, opt-13b, a config.json, or a model as for `run` (its weights are not
    /// read).
    #[arg(short, long, default_value = "llama-3-8b", value_name = "NAME|FILE")]
    pub model: String,
    /// sharegpt-like, alpaca-like, azure-like, orca-like, or a file.
    #[arg(long, default_value = "sharegpt-like", value_name = "NAME|FILE")]
    pub trace: String,
    /// ridge, fixed, fixed:TOKENS, vllm-2023, orca-max, orca-pow2, orca-oracle, static, static-oracle;
    /// what each does is said below.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ridge,fixed,vllm-2023",
        value_name = "P,Q,…"
    )]
    pub policy: Vec<Policy>,
    /// Repeat what papers compare, and print their figures beside those that come out.
    #[arg(long, value_enum, conflicts_with_all = ["hardware", "model", "trace", "policy", "rate", "sweep_rates", "plot", "json"])]
    pub compare: Option<Comparison>,
    /// Requests a second, on average [default: 10, or as a trace file has them].
    #[arg(long, value_parser = positive, value_name = "R")]
    pub rate: Option<f64>,
    /// Try these rates, one after the other.
    #[arg(long, value_delimiter = ',', value_parser = positive, conflicts_with = "rate", value_name = "R,S,…")]
    pub sweep_rates: Vec<f64>,
    /// Requests; of a trace file, at most so many [default: 500].
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// Seed of a drawn trace: the same seed, the same figures.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Times to keep.
    #[command(flatten)]
    pub slo: SloArgs,
    /// Longest sequence [default: the model's own, at most 4096].
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,
    /// Most sequences in a step.
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub max_num_seqs: usize,
    /// Most tokens in a step where prompts are chunked.
    #[arg(long, default_value_t = 2048, value_name = "N")]
    pub max_num_batched_tokens: usize,
    /// Tokens a key/value block: 16 or 32.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub block_size: usize,
    /// Compute equal beginnings again.
    #[arg(long)]
    pub no_prefix_caching: bool,
    /// Bits a weight takes [default: 16, or as the model's files have it].
    #[arg(long, value_parser = positive, value_name = "BITS")]
    pub weight_bits: Option<f64>,
    /// Bits a number of keys and values takes.
    #[arg(long, value_parser = positive, default_value_t = 16.0, value_name = "BITS")]
    pub kv_bits: f64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Draw latency by rate (where rates are swept), steps under the roof and the cache over time, as
    /// .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Comparison {
    /// Orca, `PagedAttention` and Sarathi-Serve.
    Papers,
}

impl SimulateArgs {
    /// What to simulate, where it is no comparison.
    pub fn options(&self) -> SimulateOptions {
        SimulateOptions {
            hardware: self.hardware.clone(),
            model: self.model.clone(),
            trace: self.trace.clone(),
            policies: self.policy.clone(),
            rate: self.rate,
            sweep_rates: self.sweep_rates.clone(),
            requests: self.requests.unwrap_or(DEFAULT_REQUESTS),
            seed: self.seed,
            slo: self.slo.level().unwrap_or_default(),
            max_model_len: self.max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            block_size: self.block_size,
            prefix_caching: !self.no_prefix_caching,
            bits: Bits {
                weight: self.weight_bits,
                kv: self.kv_bits,
            },
            json: self.json,
            plot: self.plot.clone(),
        }
    }
}
