//! What the command line takes for `embed`. Knows nothing of what is done with it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::engine_args::EngineArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  twoclock embed -m smollm2 -p 'It rains.' -p 'The sun shines.' --json
  twoclock embed -m hf:ORG/REPO -f sentences.txt --json > vectors.jsonl
  twoclock embed -m smollm2 -f - --pooling mean --dimensions 256 < sentences.txt

A vector a line, in the order of the texts: numbers with spaces between, or with --json an object \
of OpenAI's list of embeddings. Vectors have length 1, so that the sum of the products of two is \
their cosine: 1 for the same direction. What is pooled is what the model's files say \
(sentence-transformers' 1_Pooling, a GGUF file's pooling_type), else the last token. Models \
trained for it compare best, and many want an instruction at the beginning of a text; see what \
their authors write.";

/// What `embed` takes.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("texts").required(true))]
pub struct EmbedArgs {
    /// Name of an installed model, a .gguf file, a folder with config.json and .safetensors files,
    /// or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long)]
    pub model: String,
    /// A text. May be repeated.
    #[arg(short = 'p', long, value_name = "TEXT", group = "texts")]
    pub text: Vec<String>,
    /// File with a text a line, UTF-8; - is standard input.
    #[arg(short, long, value_name = "FILE", group = "texts")]
    pub file: Option<PathBuf>,
    /// Which tokens a vector comes from: the mean of all, or the last, which alone has seen the others
    /// [default: the model's, else last].
    #[arg(long, value_enum, value_name = "mean|last")]
    pub pooling: Option<Pooling>,
    /// Keep so many of the first numbers: for models trained to be cut.
    #[arg(long, value_name = "N")]
    pub dimensions: Option<usize>,
    /// Leave vectors as long as they come.
    #[arg(long)]
    pub no_normalize: bool,
    /// Print one JSON object a text.
    #[arg(long)]
    pub json: bool,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Which tokens an embedding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pooling {
    /// All.
    Mean,
    /// The last.
    Last,
}
