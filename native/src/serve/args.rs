//! What `serve` takes. Knows nothing of what it means.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::batch::args::ServingArgs;
use crate::engine_args::EngineArgs;
use crate::logs::LogFormat;
use crate::slo_args::positive;

/// Shown below the arguments.
pub const EXAMPLES: &str = "\
Examples:
  twoclock serve -m smollm2
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"model\": \"smollm2\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}],
         \"temperature\": 0}'
  twoclock serve -m small=smollm2 -m big=hf:ORG/REPO --idle-unload 600
                                   two models, loaded when first asked for
  twoclock serve -m small,default=smollm2
                                   one model, asked for by either name

/openapi.json says what there is: besides OpenAI's and Anthropic's paths /metrics for Prometheus, /health, and at / a \
page to chat and to look at it. A client gives as base URL http://HOST:PORT/v1. A lone model is \
loaded before anybody is heard; of several each is loaded when first asked for. SIGTERM (or \
Ctrl-C) lets what runs end and takes nothing new; a second one stops at once. Who has gone costs \
nothing more: the request is given up.

The exit status is 0 where a signal ended it, also if requests were cut as the time to drain was over or by a second \
signal, which the log says; 1 where it could not start, and 2 where the command line is wrong.

A request that says no temperature is drawn at what the model recommends, else at 1, as OpenAI's \
are; `twoclock run` draws at 0 there. Give \"temperature\": 0 for the likeliest token each time.

Keys are read from --api-key-file, anew at SIGHUP, or TWOCLOCK_API_KEY; without either everybody is served who \
reaches the port, so leave --host as it is, or put a proxy before it.";

/// What `serve` takes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Name of an installed model, a .gguf file, a folder, or `hf:ORG/REPO[:FILE]`; before it, if wished,
    /// the name it is served by, which else is the installed one, the file's without .gguf, the folder's, or ORG/REPO.
    /// With several names, as a,b=MODEL, it is asked for by any of them and loaded once; answers say the first.
    /// May be repeated.
    #[arg(short, long, required = true, num_args = 1.., visible_alias = "models", value_name = "[NAME,…=]MODEL")]
    pub model: Vec<String>,
    /// Where it is heard.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What clients may take.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// What it tells.
    #[command(flatten)]
    pub telling: TellingArgs,
    /// How requests share a model.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// How models are run.
    #[command(flatten)]
    pub engine: EngineArgs,
    // Under the heading of what is above, which goes on.
    /// File with a Jinja template for chats in place of the model's own.
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Do not run the kernels that most requests run once before a model is asked: the first ones then wait for what the
    /// driver compiles.
    #[arg(long)]
    pub no_warmup: bool,
}

/// Where the server is heard, and by whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where it is heard, and by whom")]
pub struct PlaceArgs {
    /// Address or name to listen at; 0.0.0.0 is every IPv4 address of this machine.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen at; 0 is any that is free, which is said.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// File with the keys that are let in, one a line; behind a key # OWNER may stand, whom the log names.
    /// # begins a comment. Read at the start and at each SIGHUP.
    /// Without it the key is that in `TWOCLOCK_API_KEY`, if it is set.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Answer to this name too, such as `example.org`. Without keys, a server that is heard on this machine
    /// alone answers to localhost, its address and these, so that no web page reaches it under a name of the
    /// page's own; with keys, or heard further, to these where some are given and else to any. * is any. May
    /// be repeated.
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Let pages of this origin, such as `https://example.org`, ask from browsers; * is all. May be
    /// repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,
}

/// In what order requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchedulingPolicy {
    /// As they come.
    Fcfs,
    /// By priority, and those of one as they come.
    Priority,
}

/// What clients may take.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What clients may take")]
pub struct LimitArgs {
    /// In what order requests are served: as they come, or by their `priority` (lower comes first), which any client may
    /// then give. A priority other than 0 is refused where it is not heeded.
    #[arg(long, value_enum, default_value_t = SchedulingPolicy::Fcfs, value_name = "fcfs|priority")]
    pub scheduling_policy: SchedulingPolicy,
    /// Requests that may wait for each model beside those that are computed; more get status 429.
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub max_queue: usize,
    /// Longest body of a request, MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub max_body: u64,
    /// Connections at once; more wait to be taken. Fewer where no more files may be open.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// Seconds for the head of a request, and that a connection may lie idle.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub header_timeout: Duration,
    /// Seconds for the body of a request.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub body_timeout: Duration,
    /// Seconds a client may leave what it is sent unread.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub write_timeout: Duration,
    /// Seconds for a whole request; an answer that is streamed ends then with an error.
    #[arg(long, default_value = "600", value_name = "SECONDS", value_parser = seconds)]
    pub request_timeout: Duration,
    /// Seconds between comments in a stream while there is nothing to say.
    #[arg(long, default_value = "15", value_name = "SECONDS", value_parser = seconds)]
    pub ping_interval: Duration,
    /// Seconds that what runs gets to end after SIGTERM.
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub drain_timeout: Duration,
    /// Unload a model that nobody asked for so many seconds; it is loaded again when somebody does.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub idle_unload: Option<Duration>,
    /// Models that are loaded at once. For one more, that makes room which was not used for longest; where all
    /// are in use, a request waits 10 seconds for one that is not, and then gets status 503.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_loaded_models: u32,
}

/// What the server tells.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What it tells")]
pub struct TellingArgs {
    /// Send a span for each request for an answer or embeddings to the OpenTelemetry collector at this address, such as
    /// `http://localhost:4318`, by OTLP over HTTP; without it to the one that `OTEL_EXPORTER_OTLP_ENDPOINT` names.
    /// `traceparent` of a request is heeded, and OTEL_* variables give names, headers and sampling. Prompts and answers
    /// are not in it.
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// How the log on standard error looks: lines for people, or a JSON object a line. `RUST_LOG` says which lines
    /// there are (info by default, `-v` is debug), such as `warn` or `info,access=off`.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = positive(text)?;
    // More than a year is no limit anybody means, and clocks have an end.
    match seconds <= 32e6 {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("it must be at most a year".to_owned()),
    }
}

/// The names a model is to be served by, if any are given, and what it is: `NAME=MODEL`, `NAME,OTHER=MODEL`.
pub fn named(model: &str) -> (Vec<&str>, &str) {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        !name.is_empty() && letters.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match model.split_once('=') {
        Some((names, model)) if names.split(',').all(is_name) => {
            (names.split(',').collect(), model)
        }
        _ => (Vec::new(), model),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_runs_with_stands_under_one_heading() {
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        let heading = |id: &str| {
            let found = command.get_arguments().find(|arg| arg.get_id() == id);
            found.unwrap().get_help_heading().unwrap()
        };
        for id in ["chat_template", "no_warmup"] {
            assert_eq!(heading(id), heading("compute_dtype"), "{id}");
        }
    }

    #[test]
    fn a_name_is_letters_before_the_model() {
        assert_eq!(named("smollm2"), (vec![], "smollm2"));
        assert_eq!(named("a.b-1=hf:X/Y"), (vec!["a.b-1"], "hf:X/Y"));
        assert_eq!(named("a,b=c"), (vec!["a", "b"], "c"));
        assert_eq!(named("a,=c"), (vec![], "a,=c"));
        assert_eq!(named("./x=y.gguf"), (vec![], "./x=y.gguf"));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "1e9", "nan", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
