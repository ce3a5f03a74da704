//! The `tune` command: times the bodies of a matrix product and their shapes on this machine's adapter
//! and keeps which is fastest from where on. Knows them only by the choices that lead to them.

pub mod args;
mod choice;
mod product;
mod question;

use serde_json::json;
use thiserror::Error;
use twoclock_core::model::ComputeDtype;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::program::Command;
use twoclock_shaders::tuning::Tuning;

use crate::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use crate::keeping_executor::KeepingExecutor;
use crate::kept_tuning::{self, Choice, TuningError};
use crate::report::Reporter;
use crate::store::Store;
use args::TuneArgs;
use choice::Times;
use product::Product;
use question::{Answer, Question};

/// Why nothing was tuned.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The reference kernels have no variants.
    #[error("the reference kernels have nothing to tune: choose an adapter of `twoclock devices`")]
    NothingToTune,
    /// The device's.
    #[error(transparent)]
    Device(#[from] ExecutorError),
    /// There is no such class on it.
    #[error(transparent)]
    Class(#[from] twoclock_core::model::NoCoop),
    /// The file's.
    #[error(transparent)]
    File(#[from] TuningError),
}

/// What was found.
struct Found {
    what: &'static str,
    ways: Vec<(&'static str, Tuning)>,
    times: Vec<Times>,
}

/// Times bodies, chooses, and writes the choices. Gives what there is to print.
///
/// # Errors
/// [`TuneError`].
pub fn run(args: &TuneArgs, store: &Store, report: &Reporter) -> Result<String, TuneError> {
    let device = args.device.unwrap_or_default();
    if device == DeviceChoice::Cpu {
        return Err(TuneError::NothingToTune);
    }
    let caches = store.caches();
    let host = HostExecutor::open(device, &caches, Pipelines::Kept)?;
    let adapter = host.to_string();
    let key = host
        .adapter_key()
        .map(str::to_owned)
        .ok_or(TuneError::NothingToTune)?;
    let mut executor = KeepingExecutor::new(host);
    let caps = executor.caps().clone();
    let mut tuning = caps.usual_tuning();
    let mut all_found = Vec::new();
    for question in question::of(caps.kind) {
        let found = measure(&mut executor, question, tuning, report)?;
        tuning = choose(question, &found, tuning);
        all_found.push(found);
    }
    executor.inner().save_pipelines();
    let path = kept_tuning::path(&caches, &key);
    let measured = measured(question::of(caps.kind), tuning);
    if !args.dry_run {
        kept_tuning::write(&path, &adapter, &measured)?;
    }
    let mut text = match args.json {
        true => {
            let mut value = kept_tuning::as_json(&adapter, &measured);
            value["times"] = all_found.iter().flat_map(as_json).collect();
            return Ok(format!("{value:#}\n"));
        }
        false => table(&adapter, &all_found, &measured),
    };
    text += &match args.dry_run {
        true => "\nNothing was written (--dry-run).\n".to_owned(),
        false => format!("\nKept in {}\n", path.display()),
    };
    Ok(text)
}

/// How often each is timed: a processor has other things to do as well.
fn rounds(kind: DeviceKind) -> usize {
    match kind {
        DeviceKind::Cpu => 2,
        DeviceKind::Gpu => 1,
    }
}

fn measure<E: Executor>(
    executor: &mut KeepingExecutor<E>,
    question: &Question,
    so_far: Tuning,
    report: &Reporter,
) -> Result<Found, TuneError> {
    let caps = executor.caps().clone();
    let act = ComputeDtype::Auto.resolve(&caps)?.act_format();
    let ways = question.ways(&caps, so_far);
    let mut times: Vec<Times> = question
        .tokens
        .iter()
        .map(|&tokens| Times {
            tokens,
            seconds: vec![0.0; ways.len()],
        })
        .collect();
    let products = question.formats.len() * question.matrices.len();
    let bar = report.counter(question.what, products * times.len() * ways.len());
    let most = question.tokens.iter().copied().max().unwrap_or(1);
    for &format in question.formats {
        for &matrix in question.matrices {
            let product = Product::new(executor, format, act, matrix, most)?;
            for times in &mut times {
                // Ways take turns, so that what else the machine does meets them all.
                let mut shortest = vec![f64::INFINITY; ways.len()];
                for _ in 0..rounds(caps.kind) {
                    for (shortest, (_, tuning)) in shortest.iter_mut().zip(&ways) {
                        let caps = Caps {
                            tuning: *tuning,
                            ..caps.clone()
                        };
                        let dispatch = product.dispatch(&caps, times.tokens);
                        let seconds = executor.time(&[Command::from(dispatch)], product.y)?;
                        *shortest = shortest.min(seconds);
                    }
                }
                for (sum, shortest) in times.seconds.iter_mut().zip(shortest) {
                    *sum += shortest;
                }
                bar.inc(ways.len() as u64);
            }
            product.destroy(executor);
        }
    }
    bar.finish_and_clear();
    Ok(Found {
        what: question.what,
        ways,
        times,
    })
}

/// What was chosen before, and what these times say.
fn choose(question: &Question, found: &Found, so_far: Tuning) -> Tuning {
    match question.answer {
        Answer::Best => {
            let is_usual = |(name, _): &(&str, _)| question.kept(name, so_far) == so_far;
            let usual = found.ways.iter().position(is_usual);
            let best = choice::best(&found.times, usual).and_then(|best| found.ways.get(best));
            best.map_or(so_far, |(name, _)| question.kept(name, so_far))
        }
        Answer::Borders(fields) => {
            // Times end somewhere; beyond, more tokens want larger tiles.
            let most = found.times.last().map_or(0, |t| t.tokens);
            let borders = choice::borders(&found.times).into_iter();
            let all = fields.into_iter().zip(borders);
            all.fold(so_far, |tuning, (field, border)| {
                tuning.with(field, border.min(most)).unwrap_or(tuning)
            })
        }
    }
}

/// What was chosen of what these questions ask. The rest nobody measured, so it is not kept: what is usual for
/// the device may change with the program.
fn measured(questions: &[Question], tuning: Tuning) -> Vec<Choice> {
    let asked = |(field, _): &Choice| questions.iter().any(|question| question.asks(field));
    tuning.fields().into_iter().filter(asked).collect()
}

fn as_json(found: &Found) -> Vec<serde_json::Value> {
    let rows = found.times.iter().map(|times| {
        let seconds: serde_json::Map<_, _> = found
            .ways
            .iter()
            .zip(&times.seconds)
            .map(|((name, _), seconds)| ((*name).to_owned(), json!(seconds)))
            .collect();
        json!({"choice": found.what, "tokens": times.tokens, "seconds": seconds})
    });
    rows.collect()
}

/// Times a token, and the choices.
fn table(adapter: &str, all_found: &[Found], measured: &[Choice]) -> String {
    let mut text = format!("{adapter}\n\nµs of the products timed, a token\n");
    for found in all_found {
        text += &format!("\n{}:\n  tokens", found.what);
        for (name, _) in &found.ways {
            text += &format!("{name:>18}");
        }
        text += "\n";
        for times in &found.times {
            let least = times.seconds.iter().copied().fold(f64::INFINITY, f64::min);
            text += &format!("{:>8}", times.tokens);
            for &seconds in &times.seconds {
                let mark = if seconds <= least { '*' } else { ' ' };
                let each = 1e6 * seconds / f64::from(times.tokens);
                text += &format!("{each:>17.1}{mark}");
            }
            text += "\n";
        }
    }
    text += "\n";
    for (name, value) in measured {
        text += &format!("  {name:<20}{value}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_measured_is_not_kept() {
        let kept = |kind| {
            let choices = measured(question::of(kind), Tuning::default());
            choices
                .into_iter()
                .map(|(field, _)| field)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kept(DeviceKind::Cpu),
            [
                "row_tokens",
                "row_rows_alone",
                "row_rows_many",
                "row_rows_shared"
            ]
        );
        assert_eq!(
            kept(DeviceKind::Gpu),
            [
                "gemv_tokens",
                "gemv_lanes",
                "skinny_tokens",
                "skinny_rows",
                "tile_rows",
                "tile_tokens"
            ]
        );
    }
}
