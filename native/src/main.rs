//! The `twoclock` program: takes the command line apart, does the one thing asked for, and says
//! what went wrong in one sentence. Owns nothing of the engine.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic when nobody reads; `output` does not"
)]

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use twoclock::batch;
use twoclock::bench;
use twoclock::bench_serve;
use twoclock::catalogue;
use twoclock::cli::{
    self, Cli, Command, Comparison, EmbedArgs, GenerationConfig, RunArgs, SamplingArgs,
    SimulateArgs,
};
use twoclock::devices;
use twoclock::dump_shaders;
use twoclock::embed;
use twoclock::engine::{self, EngineOptions};
use twoclock::engine_args::EngineArgs;
use twoclock::eval;
use twoclock::flags;
use twoclock::inspect;
use twoclock::interrupt;
use twoclock::logs::{self, LogFormat};
use twoclock::models::Models;
use twoclock::output::{self, OutputError};
use twoclock::render;
use twoclock::report::Reporter;
use twoclock::run::{self, Ask, RunOptions};
use twoclock::selftest;
use twoclock::serve;
use twoclock::simulate::{self, papers};
use twoclock::store::{Store, human_bytes};
use twoclock::text_input::{MAX_IDS, MAX_TEXT, read_stdin, read_text};
use twoclock::tokenize;
use twoclock::tune;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::GenerationDefaults;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // As clap does itself: who does not read it is not told.
            let _ = error.print();
            if let Some(hint) = cli::hint(&error) {
                output::note(&format!("\n{hint}"));
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let server = match &cli.command {
        Command::Serve(args) => Some(args.telling.log_format),
        _ => None,
    };
    if let Err(error) = logs::start(cli.verbose, server) {
        output::note(&format!("twoclock: {}", flags::sentence(&error)));
        return ExitCode::FAILURE;
    }
    let status = match run(&cli, &logs::reporter(cli.verbose, server)) {
        Ok(()) if interrupt::was_heeded() => ExitCode::from(interrupt::STATUS),
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if matches!(e.downcast_ref(), Some(OutputError::Closed)) => ExitCode::SUCCESS,
        Err(e) => {
            let said = flags::sentence(&e);
            match server {
                Some(LogFormat::Json) => tracing::error!(target: logs::ALWAYS, "{said}"),
                _ => logs::say(&format!("twoclock: {said}")),
            }
            ExitCode::FAILURE
        }
    };
    logs::end();
    status
}

fn run(cli: &Cli, report: &Reporter) -> anyhow::Result<()> {
    let store = Store::from_env()?;
    let models = Models {
        store: &store,
        offline: cli.offline,
        report,
    };
    match &cli.command {
        Command::Pull { model } => {
            let model = models.pull(model)?;
            output::print(&format!("{}\n", model.path().display()))?;
        }
        Command::Run(args) => run_model(args, &models)?,
        Command::Batch(args) => {
            let checkpoint = models.find(&args.model)?.open()?;
            let options = EngineOptions {
                serving: Some(args.serving.limits()),
                ..engine_options(&args.engine)
            };
            batch::run(&checkpoint, args, &options, &store, report)?;
        }
        Command::Serve(args) => {
            let options = EngineOptions {
                serving: Some(args.serving.limits()),
                ..engine_options(&args.engine)
            };
            serve::run(args, &options, &models)?;
        }
        Command::Tune(args) => output::print(&tune::run(args, &store, report)?)?,
        Command::Bench(args) => output::print(&bench::run(args, &models, &store, report)?)?,
        Command::BenchServe(args) => {
            let (text, verdict) = bench_serve::run(args, report)?;
            output::print(&text)?;
            verdict?;
        }
        Command::Selftest(args) => {
            let (text, verdict) = selftest::run(args, &models, &store, report)?;
            output::print(&text)?;
            verdict?;
        }
        Command::DumpShaders(args) => output::print(&dump_shaders::run(args, &models, &store)?)?,
        Command::Eval {
            model,
            text,
            json,
            logprobs,
            engine,
        } => {
            let text = read_text(text)?;
            let checkpoint = models.find(model)?.open()?;
            let tokenizer = Tokenizer::from_assets(&checkpoint.text)?;
            let mut engine = engine::load(
                &checkpoint,
                tokenizer,
                &engine_options(engine),
                &store,
                report,
            )?;
            let bar = report.counter("scoring", 0);
            let progress = |done: usize, total: usize| {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            };
            let evaluation = eval::evaluate(&mut engine, &text, progress);
            bar.finish_and_clear();
            engine.core().runner().executor().save_pipelines();
            let evaluation = evaluation?;
            if *json {
                output::print(&format!("{}\n", evaluation.as_json(*logprobs)))?;
            } else {
                output::print(&format!(
                    "{} tokens, {:.5} nats each, perplexity {:.4}\n",
                    evaluation.tokens,
                    evaluation.nll,
                    evaluation.ppl()
                ))?;
            }
        }
        Command::Embed(args) => embed_texts(args, &models)?,
        Command::Devices { json } => {
            let found = devices::find();
            if *json {
                output::print(&format!("{:#}\n", devices::as_json(&found)))?;
            } else {
                output::print(&devices::as_text(&found))?;
            }
        }
        Command::Inspect {
            model,
            json,
            quantize,
            compute_dtype,
            kv_cache_dtype,
        } => {
            let mut checkpoint = models.find(model)?.open()?;
            if let Some(quantization) = *quantize {
                checkpoint.quantize(quantization)?;
            }
            let dtypes = inspect::Dtypes {
                compute: *compute_dtype,
                kv_cache: *kv_cache_dtype,
            };
            if *json {
                output::print(&format!("{:#}\n", inspect::as_json(&checkpoint, dtypes)))?;
            } else {
                output::print(&inspect::as_text(&checkpoint, dtypes))?;
            }
        }
        Command::Tokenize {
            model,
            no_bos,
            no_special,
            json,
        } => {
            let assets = models.text(model)?;
            let tokens = tokenize::tokenize(&assets, &read_stdin(MAX_TEXT)?, !no_bos, !no_special)?;
            if *json {
                output::print(&format!("{}\n", tokens.as_json()))?;
            } else {
                output::print(&format!("{}\n", tokens.as_text()))?;
            }
        }
        Command::Detokenize { model, json } => {
            let assets = models.text(model)?;
            let text = tokenize::detokenize(&assets, &read_stdin(MAX_IDS)?)?;
            if *json {
                output::print(&format!("{}\n", json!({"text": text})))?;
            } else {
                output::print(&text)?;
            }
        }
        Command::Render { template, model } => {
            let assets = match (template, model) {
                (Some(file), _) => render::template_file(file)?,
                (None, model) => models.text(model.as_deref().unwrap_or_default())?,
            };
            output::print(&render::render(&assets, &read_stdin(MAX_TEXT)?)?)?;
        }
        Command::Simulate(args) => simulate_trace(args, &models)?,
        Command::List { json } => list(&store, *json)?,
        Command::Rm { model } => {
            let bytes = store.remove(model)?;
            report.note(&format!("{model} is deleted, {} freed", human_bytes(bytes)));
        }
    }
    Ok(())
}

fn engine_options(args: &EngineArgs) -> EngineOptions {
    EngineOptions {
        device: args.device.unwrap_or_default(),
        max_num_seqs: None,
        max_model_len: args.max_model_len,
        memory_mib: args.memory,
        quantize: args.quantize,
        warm_up: false,
        serving: None,
        compute_dtype: args.compute_dtype,
        kv_cache_dtype: args.kv_cache_dtype,
        run_ahead: args.run_ahead,
        slo: args.slo.level(),
    }
}

/// What was typed; where it was not, what the model recommends.
fn sampling_params(
    args: &SamplingArgs,
    model: &GenerationDefaults,
    logprobs: Option<usize>,
) -> SamplingParams {
    let mut params = SamplingParams {
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        logit_bias: args.logit_bias.clone(),
        seed: args.seed,
        max_tokens: args.max_tokens,
        min_tokens: args.min_tokens,
        stop_token_ids: args.stop_token_id.clone(),
        stop: args.stop.clone(),
        include_stop_str_in_output: args.include_stop,
        ignore_eos: args.ignore_eos,
        logprobs,
        ..SamplingParams::default()
    };
    if args.generation_config == GenerationConfig::Auto {
        model.apply(&mut params);
    }
    let typed = GenerationDefaults {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
    };
    typed.apply(&mut params);
    params
}

fn run_model(args: &RunArgs, models: &Models<'_>) -> anyhow::Result<()> {
    let ask = match (&args.prompt, &args.file, &args.prompt_ids) {
        (Some(text), _, _) => Ask::Text(text.clone()),
        (_, Some(file), _) if file.as_os_str() == "-" => Ask::Text(read_stdin(MAX_TEXT)?),
        (_, Some(file), _) => Ask::Text(read_text(file)?),
        (_, _, Some(ids)) => Ask::Ids(ids.clone()),
        _ => Ask::Conversation,
    };
    let mut options = RunOptions {
        ask,
        system: args.system.clone(),
        raw: args.raw,
        json: args.json,
        sampling: SamplingParams::default(),
        bad_words: args.sampling.bad_word.clone(),
        engine: engine_options(&args.engine),
    };
    let form = args.form.form()?;
    let checkpoint = models.find(&args.model)?.open()?;
    options.sampling = SamplingParams {
        structured_output: form,
        prompt_logprobs: args.prompt_logprobs,
        ..sampling_params(&args.sampling, &checkpoint.generation, args.logprobs)
    };
    run::run(&checkpoint, options, models.store, models.report)
}

fn embed_texts(args: &EmbedArgs, models: &Models<'_>) -> anyhow::Result<()> {
    let texts = embed::texts(args)?;
    let checkpoint = models.find(&args.model)?.open()?;
    let params = embed::pooling_params(args, &checkpoint)?;
    let tokenizer = Tokenizer::from_assets(&checkpoint.text)?;
    let options = EngineOptions {
        max_num_seqs: Some(embed::TOGETHER),
        ..engine_options(&args.engine)
    };
    let (store, report) = (models.store, models.report);
    let mut engine = engine::load(&checkpoint, tokenizer, &options, store, report)?;
    let shown = embed::embed(&mut engine, &texts, &params, |index, embedding| {
        let line = match args.json {
            true => embed::as_json(index, embedding).to_string(),
            false => embed::as_text(embedding),
        };
        Ok(output::print(&format!("{line}\n"))?)
    });
    engine.core().runner().executor().save_pipelines();
    shown
}

fn simulate_trace(args: &SimulateArgs, models: &Models<'_>) -> anyhow::Result<()> {
    match args.compare {
        Some(Comparison::Papers) => {
            let text = papers::compare(models, models.report, args.seed, args.requests)?;
            Ok(output::print(&text)?)
        }
        None => {
            let simulated = simulate::simulate(&args.options(), models, models.report)?;
            output::print(&simulated.text)?;
            simulated.drawn
        }
    }
}

fn list(store: &Store, as_json: bool) -> anyhow::Result<()> {
    let installed = store.list()?;
    let offered = catalogue::ENTRIES
        .iter()
        .filter(|entry| installed.iter().all(|model| model.name != entry.name));
    if as_json {
        let catalogue: Vec<_> = offered
            .map(|e| json!({"name": e.name, "title": e.title, "bytes": e.bytes, "base_model": e.is_base, "licence": e.licence, "origin": e.origin}))
            .collect();
        let all = json!({"installed": installed, "catalogue": catalogue});
        return Ok(output::print(&format!("{all:#}\n"))?);
    }
    let mut text = String::new();
    for model in &installed {
        text += &format!(
            "{:12} {:>9}  {}\n",
            model.name,
            human_bytes(model.bytes),
            model.path.display()
        );
    }
    for entry in offered {
        text += &format!(
            "{:12} {:>9}  {} ({}; not here: `twoclock pull {}`)\n",
            entry.name,
            human_bytes(entry.bytes),
            entry.title,
            entry.licence,
            entry.name
        );
    }
    Ok(output::print(&text)?)
}
