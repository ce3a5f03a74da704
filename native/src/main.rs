//! The `twoclock` program: takes the command line apart, does the one thing asked for, and says
//! what went wrong in one sentence. Owns nothing of the engine.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use serde_json::json;
use twoclock::catalogue;
use twoclock::cli::{Cli, Command};
use twoclock::devices;
use twoclock::files::ModelPath;
use twoclock::index::Index;
use twoclock::inspect;
use twoclock::pull::pull;
use twoclock::report::Reporter;
use twoclock::store::{Store, human_bytes};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("twoclock: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let report = Reporter::stderr(cli.verbose);
    let store = Store::from_env()?;
    match &cli.command {
        Command::Pull { model } => {
            let entry = catalogue::find(model).with_context(|| {
                let names: Vec<_> = catalogue::ENTRIES.iter().map(|e| e.name).collect();
                format!(
                    "the catalogue has no {model:?}, it has: {}",
                    names.join(", ")
                )
            })?;
            let model = pull(entry, &store, Index::from_env, &report)?;
            println!("{}", model.path.display());
        }
        Command::Devices { json } => {
            let found = devices::find();
            if *json {
                println!("{:#}", devices::as_json(&found));
            } else {
                print!("{}", devices::as_text(&found));
            }
        }
        Command::Inspect { model, json } => {
            let checkpoint = ModelPath::resolve(model, &store)?.open()?;
            if *json {
                println!("{:#}", inspect::as_json(&checkpoint));
            } else {
                print!("{}", inspect::as_text(&checkpoint));
            }
        }
        Command::List { json } => list(&store, *json)?,
        Command::Rm { model } => {
            let bytes = store.remove(model)?;
            report.note(&format!("{model} is deleted, {} freed", human_bytes(bytes)));
        }
    }
    Ok(())
}

fn list(store: &Store, as_json: bool) -> anyhow::Result<()> {
    let installed = store.list()?;
    let offered = catalogue::ENTRIES
        .iter()
        .filter(|entry| installed.iter().all(|model| model.name != entry.name));
    if as_json {
        let catalogue: Vec<_> = offered
            .map(|e| json!({"name": e.name, "title": e.title, "bytes": e.bytes, "licence": e.licence, "origin": e.origin}))
            .collect();
        println!(
            "{:#}",
            json!({"installed": installed, "catalogue": catalogue})
        );
        return Ok(());
    }
    for model in &installed {
        println!(
            "{:12} {:>9}  {}",
            model.name,
            human_bytes(model.bytes),
            model.path.display()
        );
    }
    for entry in offered {
        println!(
            "{:12} {:>9}  {} ({}; not here: `twoclock pull {}`)",
            entry.name,
            human_bytes(entry.bytes),
            entry.title,
            entry.licence,
            entry.name
        );
    }
    Ok(())
}
