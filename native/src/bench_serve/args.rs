//! What `bench-serve` takes. Knows nothing of what is done.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::lengths::Lengths;
use super::load::MAX_UNDER_WAY;
use crate::slo_args::positive;

/// Shown after the help.
pub const MORE_HELP: &str = "\
Examples:
  twoclock bench-serve --base-url http://127.0.0.1:8000 --concurrency 8 --requests 64 --ignore-eos
  twoclock bench-serve --base-url http://127.0.0.1:8000 --request-rate 4 --ttft-slo-ms 500
    --tpot-slo-ms 50 --json
  twoclock bench-serve --base-url http://127.0.0.1:8000 --shared-prefix 0.8 --prefix-groups 4
  twoclock bench-serve --base-url http://127.0.0.1:8000 --trace trace.jsonl --plot load.svg
  twoclock bench-serve --base-url http://127.0.0.1:8000 --request-rate 20 --concurrency 64

Lengths are N or fixed:N, uniform:A:B, lognormal:MEDIAN:SIGMA[:MAX] or choice:A,B,C; of prompts in \
words, or in tokens with --token-ids; of answers the most tokens they may have. A trace is as \
simulate takes it: sharegpt-like, alpaca-like, azure-like, orca-like, or a file with a JSON object \
a line, in the order of their times:
  {\"arrival_s\":0.5,\"prompt_tokens\":90,\"output_tokens\":30,\"prefix_group\":1,\"prefix_tokens\":40}
  arrival_s      when it comes, seconds; the first goes at once
  prompt_tokens, output_tokens
                 length of its prompt, and the most of its answer
  prefix_group, prefix_tokens
                 may be left out: prompts of one group begin alike for so many tokens

What the figures are (names of --json; all times in ms):
  ttft_ms   from when a request was due to its first token: with a rate or a trace that is its time,
            also where the machine that sends was late or --concurrency held it back
  tpot_ms   from the first token to the last, over the tokens after the first
  itl_ms    between two pieces of one answer
  e2e_ms    from when a request was due to its last token
  output_tok_s, total_tok_s, request_s
            tokens of answers, tokens of both, requests answered, a second, from the first request
            to the last token of all
  goodput_request_s, goodput_output_tok_s, slo_attainment
            of the requests that kept the times to keep, all of those that were answered where there
            are none; a request that failed kept none
A key is read from OPENAI_API_KEY or a file, never from the command line; of a file that serve takes \
it is the first. Proxies are not used. \
The exit status is not 0 where a request failed.";

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Endpoint {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// What is sent, how, and to whom.
#[derive(Clone, Debug, Args)]
pub struct BenchServeArgs {
    /// The server, such as `http://127.0.0.1:8000`; may end in /v1.
    #[arg(long, value_name = "URL")]
    pub base_url: String,
    /// Model to ask for [default: the first the server lists].
    #[arg(short, long, value_name = "NAME")]
    pub model: Option<String>,
    /// Where requests go.
    #[arg(long, value_enum, default_value_t = Endpoint::Completions, value_name = "completions|chat")]
    pub endpoint: Endpoint,
    /// Requests; of a trace file, at most so many.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = count)]
    pub requests: usize,
    /// Requests sent one by one first, and not counted.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub warmup: usize,
    /// Requests under way at any time: the next one goes when one is answered [default: 1]. Of a rate or a trace the
    /// most that may be, beyond which requests go late [default: 4096].
    #[arg(long, value_name = "N", value_parser = concurrency)]
    pub concurrency: Option<usize>,
    /// Requests a second, coming as a Poisson process; a trace is stretched to it.
    #[arg(long, value_name = "R", value_parser = positive)]
    pub request_rate: Option<f64>,
    /// Lengths and times of requests.
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["prompt_len", "output_len", "shared_prefix"])]
    pub trace: Option<String>,
    /// Length of prompts.
    #[arg(long, default_value = "fixed:64", value_name = "LENGTHS")]
    pub prompt_len: Lengths,
    /// Length of answers.
    #[arg(long, default_value = "fixed:64", value_name = "LENGTHS")]
    pub output_len: Lengths,
    /// Share of each prompt, from its beginning, that others begin with too.
    #[arg(long, default_value_t = 0.0, value_name = "0…1", value_parser = share)]
    pub shared_prefix: f64,
    /// Different such beginnings.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = count)]
    pub prefix_groups: usize,
    /// Send prompts as token ids drawn from these, so that their lengths are exact (completions only).
    #[arg(long, value_name = "FROM..TO", value_parser = id_range)]
    pub token_ids: Option<(u32, u32)>,
    /// Temperature of the answers.
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    pub temperature: f32,
    /// Ask for answers as long as they may be, past their ends.
    #[arg(long)]
    pub ignore_eos: bool,
    /// Time to the first token to keep, ms.
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub ttft_slo_ms: Option<f64>,
    /// Time per output token to keep, ms.
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub tpot_slo_ms: Option<f64>,
    /// Seeds lengths, prompts and times.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Longest that a request may take, seconds.
    #[arg(long, default_value_t = 600.0, value_name = "S", value_parser = positive)]
    pub timeout: f64,
    /// File whose first key is sent: one a line, as serve takes it.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Draw how the times are distributed and the tokens a second over time, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1_000_000) => Ok(count),
        _ => Err("it must be a whole number from 1 to 1000000".to_owned()),
    }
}

fn concurrency(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=MAX_UNDER_WAY) => Ok(count),
        _ => Err("it must be a whole number from 1 to 4096".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share @ 0.0..=1.0) => Ok(share),
        _ => Err("it must be a number from 0 to 1".to_owned()),
    }
}

fn id_range(text: &str) -> Result<(u32, u32), String> {
    let ends = text.split_once("..");
    let ends = ends.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match ends {
        Some((from, to)) if from < to => Ok((from, to)),
        _ => Err("it must be two ids such as 1000..30000, the second not taken".to_owned()),
    }
}
