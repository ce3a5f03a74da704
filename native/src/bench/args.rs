//! What the `bench` command takes. Owns its help; knows nothing of what is done.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

use super::first_token::Caches;
use crate::engine_args::EngineArgs;

/// Shown after the help.
pub const MORE_HELP: &str = "\
Examples:
  twoclock bench -m smollm2
  twoclock bench -m smollm2 --json --prompt 128 --tokens 32 --no-first-token
  twoclock bench --load-format dummy --model-config llama-3-8b --parallel 64
  twoclock bench -m smollm2 --plot roof.svg

What the figures are (names of --json):
  prefill_tok_s        prompt tokens a second, of one prompt of --prompt tokens, to its first token
  decode_tok_s         tokens a second of one request behind a prompt of 16, from its first token on
  parallel_tok_s       the same of --parallel requests together, all their tokens
  load_s               seconds to open the device and load the model, pipelines from the cache
  first_token_cold_s   seconds from opening the device to the first token of a prompt of 16 in a
                       fresh process without any compiled shader: no pipeline cache, the driver's
                       own turned off (Mesa, NVIDIA; others' by their own means). Files may lie in
                       memory already
  first_token_warm_s   the same with both caches as the runs before left them
  gpu_bytes            bytes of all buffers on the device: weights, keys and values, workspace
  weight_bytes         of them, weights; file_bytes: what the model's files take
  peak_rss_bytes       most memory the process held, up to the end of serving (Linux)
  dispatches_per_layer dispatches a layer adds to a decode step: counted by the executor, less those
                       of the same model of one layer, over the others (of one layer: of its whole
                       step)
  submits_per_token, readback_bytes_per_token
                       counted by the executor while decoding, prefill taken off
  bandwidth_fraction   bytes a decode step must move (weights once, keys and values of its context)
                       times decode_tok_s, of the bytes a second a copy on the device moves, read
                       and written
  flops_fraction       operations a prompt needs times prefill_tok_s over its tokens, of the most
                       that was seen: of multiply-adds on registers in f32, or of a product of the
                       model alone
  best_gemv_fraction   time of a decode step's matrix products, were each as fast a byte as the
                       fastest of its variant (body, format) is by itself, of the time a token takes
Figures that cannot be had here are null. Of several prompts and numbers of requests, all are in \
prefill and in parallel.";

/// What is measured.
#[allow(
    clippy::doc_markdown,
    reason = "help shows these words as they are written"
)]
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Name of an installed model, a .gguf file, a folder with config.json and .safetensors files,
    /// or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long, required_unless_present = "model_config")]
    pub model: Option<String>,
    /// Where weights come from: the model's files, or random ones of the shape that --model-config
    /// names, a chunk repeated on its way to the device.
    #[arg(long, value_enum, default_value_t = LoadFormat::Auto)]
    pub load_format: LoadFormat,
    /// Shape of a model of random weights: a name, or a config.json.
    #[arg(
        long,
        value_name = "llama-3-8b|qwen3-4b|FILE",
        conflicts_with = "model"
    )]
    pub model_config: Option<String>,
    /// Type of random weights, as GGUF names it; rows that are no whole blocks of it are Q8_0, or else F16.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "q4_0",
        conflicts_with = "model"
    )]
    pub weight_format: String,
    /// Requests served together for parallel_tok_s, of several numbers the first; 1 leaves it out.
    #[arg(long, value_name = "P,Q,…", value_delimiter = ',', default_value = "8", value_parser = count(1, 4096))]
    pub parallel: Vec<usize>,
    /// Tokens of the prompt for prefill_tok_s, of several numbers the first.
    #[arg(long, value_name = "N,M,…", value_delimiter = ',', default_value = "512", value_parser = count(1, 1 << 20))]
    pub prompt: Vec<usize>,
    /// Tokens drawn of each request for decode_tok_s and parallel_tok_s.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count(2, 1 << 20))]
    pub tokens: usize,
    /// Most tokens in a step.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count(1, 65535))]
    pub max_num_batched_tokens: usize,
    /// Measured runs, of which the median counts; one unmeasured goes before.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1, 1000))]
    pub repeat: usize,
    /// Time the matrix products of steps of 8 and 32 tokens too.
    #[arg(long)]
    pub regimes: bool,
    /// Leave out the first tokens of fresh processes.
    #[arg(long)]
    pub no_first_token: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Write that object into a file, whatever is printed.
    #[arg(long, value_name = "FILE")]
    pub json_to: Option<PathBuf>,
    /// Draw where prefill, decode and the products alone stand under the roof, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// How the program asks itself for a first token.
    #[arg(long, hide = true, value_enum)]
    pub first_token_of: Option<Caches>,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Where weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// The model's files; dummy where --model-config stands for a model.
    Auto,
    /// Random weights.
    Dummy,
}

fn count(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}
