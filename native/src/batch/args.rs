//! What `batch` takes. Knows nothing of what it means.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use twoclock_core::sched::PreemptionMode;

use crate::engine::ServingLimits;
use crate::engine_args::EngineArgs;
use crate::kv_cache_tokens::KvCacheTokens;

/// Shown below the arguments.
pub const EXAMPLES: &str = "\
Example:
  echo '{\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\":
    {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 20}}' | tr -d '\\n' > in.jsonl
  twoclock batch -m smollm2 in.jsonl out.jsonl

Each line of the input is a request as in OpenAI's batch files, for /v1/chat/completions or \
/v1/completions; \"arrival_s\" beside the body lets it wait so many seconds from the start, to \
replay real traffic. Read are OpenAI's fields of a body (n, stop, seed, logit_bias, logprobs, \
response_format …) and vLLM's beside them: priority, cache_salt, structured_outputs (json, \
json_object, regex, choice, grammar; also guided_…), top_k, min_p, repetition_penalty, min_tokens, \
stop_token_ids, bad_words, ignore_eos, prompt_logprobs and more. What would change the answer and \
is not served is refused by name; fields nobody knows are passed over. A body has at most 1024 \
answers, prompts times n. The model of -m answers whatever \"model\" a body names, so that a file \
made for another service can be used as it is; the answer says which model it came from.

A body that says no temperature is drawn at what the model recommends, else at 1, as OpenAI's are; \
`twoclock run` draws at 0 there.

Each line of the output is an answer, in the order they were ready. What is wrong with a request \
is its answer, with status 400, also where its line is no JSON behind the custom_id; a line \
without one that can be read, or with that of another line, refuses the file before anything is \
answered. Where this program or its device failed, the status is 500. Run again, the command goes \
on with the requests that have no answer yet, also after it was stopped in the middle, and tries \
those with a status of 500 or more another time: their lines are taken out of the file, so that it \
has one answer a custom_id. Answers with status 400 stay as they are. A request without a seed \
gets one from its custom_id. A summary with times, throughput and use of the cache goes to \
standard output.";

/// What `batch` takes.
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// Name of an installed model, a .gguf file, a folder, or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long)]
    pub model: String,
    /// File with the requests, one JSON object a line.
    #[arg(value_name = "IN.jsonl")]
    pub input: PathBuf,
    /// File for the answers; those it has are kept.
    #[arg(value_name = "OUT.jsonl")]
    pub output: PathBuf,
    /// File for the summary instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// How requests share the model.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How requests share the model.
#[derive(Debug, Args)]
#[command(next_help_heading = "How requests share the model")]
pub struct ServingArgs {
    /// Most sequences computed together. More answer more at once, each more slowly, and take more
    /// memory.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub max_num_seqs: usize,
    /// Most tokens in one step: a long prompt is computed in chunks of at most so many, beside the
    /// answers of others.
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    pub max_num_batched_tokens: usize,
    /// Tokens of all sequences together whose keys and values are kept; when they run out, the newest
    /// sequences wait. No sequence is longer than this. max is as many as --memory leaves [default: four of
    /// the longest sequences, or --max-num-seqs of them where that is less; fewer where they do not fit].
    #[arg(long, value_name = "TOKENS|max")]
    pub kv_cache_tokens: Option<KvCacheTokens>,
    /// Compute every prompt in full, also where an earlier one began alike.
    #[arg(long)]
    pub no_prefix_caching: bool,
    /// What becomes of the keys and values of a sequence that has to wait: they are computed again,
    /// kept in the host's memory, or, with auto, what is predicted to be cheaper each time.
    #[arg(long, value_enum, default_value_t = Preemption::Recompute, value_name = "recompute|swap|auto")]
    pub preemption_mode: Preemption,
    /// Memory of the host for the keys and values of waiting sequences, MiB (with
    /// --preemption-mode swap or auto).
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    pub swap_space: u64,
}

/// What becomes of a sequence that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preemption {
    /// Computed again.
    Recompute,
    /// Kept by the host.
    Swap,
    /// What is predicted to be cheaper.
    Auto,
}

impl ServingArgs {
    /// As the engine takes them.
    pub fn limits(&self) -> ServingLimits {
        ServingLimits {
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            kv_cache_tokens: self.kv_cache_tokens.unwrap_or_default(),
            enable_prefix_caching: !self.no_prefix_caching,
            preemption_mode: match self.preemption_mode {
                Preemption::Recompute => PreemptionMode::Recompute,
                Preemption::Swap => PreemptionMode::Swap,
                Preemption::Auto => PreemptionMode::Auto,
            },
            swap_space_bytes: self.swap_space.saturating_mul(1 << 20),
        }
    }
}
