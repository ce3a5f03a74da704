//! The `selftest` command: an engine serves narrow models on the device beside the reference, and every
//! dispatch is compared; then one prompt goes through steps of every size, and what came of it is
//! compared with itself. Owns what is compared and what that comes to.

pub mod args;
pub mod loads;
pub mod models;
pub mod perf;
pub mod report;

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use anyhow::{Context, bail};
use pollster::block_on;
use twoclock_core::runner::{ComputeDtype, NumericsClass, RunnerOptions};
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::recording::RecordingExecutor;
use twoclock_shaders::tuning::Tuning;
use twoclock_shaders::twin::{Agreement, TwinExecutor};

use crate::host_executor::{DeviceChoice, HostExecutor};
use crate::models::Models;
use crate::report::Reporter;
use crate::store::Store;
use crate::whole_file;
use args::SelftestArgs;
use loads::{Core, finish, limits, load, prompt, serve_all_kinds, serve_alone};
use models::Subject;
use report::Findings;

/// Tokens of the longest step: more than any body but the largest takes.
const TOKENS: usize = 72;
/// Tokens of the longest step of a whole model.
const WHOLE_TOKENS: usize = 512;

/// Steps of so many tokens that one prompt goes through: each body of a matrix product, and of attention.
const CHUNKS: [usize; 5] = [70, 24, 8, 3, 1];

/// What one prompt gave through steps of every size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regimes {
    /// Log-probabilities compared.
    pub values: usize,
    /// Of them, those that differ in a bit.
    pub unequal: usize,
    /// Largest difference.
    pub largest: f32,
}

/// Largest difference of a log-probability between steps of different sizes, where bits differ.
pub const REGIME_TOLERANCE: f32 = 1e-3;

/// Tests, and gives what to print; the second value says what is wrong.
///
/// # Errors
/// No such device or model, or the device's.
pub fn run(
    args: &SelftestArgs,
    models: &Models<'_>,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<(String, anyhow::Result<()>)> {
    if let Some(path) = &args.json_to {
        whole_file::check(path).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let device = args.device.unwrap_or_default();
    if device == DeviceChoice::Cpu {
        bail!("the reference kernels are what a device is compared with: name another --device");
    }
    let subjects = match &args.model {
        Some(model) => vec![Subject {
            name: model.clone(),
            checkpoint: models.find(model)?.open()?,
            kv: None,
        }],
        None if args.all => models::all()?,
        None => models::defaults()?,
    };
    let mut executor = HostExecutor::open(device, Some(&store.caches()))?;
    let mut findings = Findings::new(executor.to_string());
    let classes = match args.all {
        // Those the device has.
        true => {
            let all = NumericsClass::ALL.map(ComputeDtype::Of).into_iter();
            all.filter(|class| class.resolve(executor.caps()).is_ok())
                .collect()
        }
        false => vec![args.compute_dtype],
    };
    for class in classes {
        for subject in &subjects {
            let options = RunnerOptions {
                compute_dtype: class,
                kv_cache_dtype: subject.kv.unwrap_or(args.kv_cache_dtype),
                ..RunnerOptions::default()
            };
            let begin = Instant::now();
            let narrow = subject.checkpoint.narrowed()?;
            let compared = compare(&mut executor, &narrow, &options)
                .with_context(|| format!("{} cannot be tested", subject.name))?;
            let to_compare = begin.elapsed().as_secs_f64();
            let asked = variants(executor.caps(), &subject.checkpoint, &options)?;
            let to_ask = begin.elapsed().as_secs_f64() - to_compare;
            let regimes = regimes(&mut executor, &narrow, &options)?;
            report.detail(&format!(
                "{}: {to_compare:.1} s beside the reference, {to_ask:.1} s to see what is asked \
                 for, {:.1} s in all",
                subject.name,
                begin.elapsed().as_secs_f64()
            ));
            let class = class.resolve(executor.caps())?;
            findings.add(&subject.name, class, compared, asked, regimes);
        }
    }
    executor.save_pipelines();
    if args.perf {
        drop(executor);
        findings.perf = perf::measure(args, &subjects[0].checkpoint)?;
    }
    if let Some(path) = &args.json_to {
        let text = format!("{:#}\n", findings.as_json());
        whole_file::write(path, text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let text = match args.json {
        true => format!("{:#}\n", findings.as_json()),
        false => findings.as_text(),
    };
    Ok((text, findings.verdict()))
}

/// Every variant that serving a narrow model runs, on the device against the reference.
fn compare(
    executor: &mut HostExecutor,
    narrow: &Checkpoint,
    options: &RunnerOptions,
) -> anyhow::Result<BTreeMap<String, (KernelKey, Agreement)>> {
    let caps = executor.caps().clone();
    let mut all = beside(executor, caps.clone(), narrow, options, |core, tokens| {
        serve_all_kinds(core, tokens)
    })?;
    if caps.kind == DeviceKind::Cpu {
        // Its matrices have few rows: as if those were very many, as the whole model's may be.
        let tuning = Tuning {
            row_many: 0,
            ..caps.tuning
        };
        let many = Caps { tuning, ..caps };
        let of_many = beside(executor, many, narrow, options, |core, _| serve_alone(core))?;
        for (name, (key, found)) in of_many {
            let entry = all.entry(name).or_insert((key, Agreement::default()));
            entry.1.add(found);
        }
    }
    Ok(all)
}

type Twin<'a> = TwinExecutor<&'a mut HostExecutor>;

/// What serving these loads runs of programs for these capabilities, on the device against the reference.
fn beside(
    executor: &mut HostExecutor,
    caps: Caps,
    narrow: &Checkpoint,
    options: &RunnerOptions,
    serve: impl Fn(&mut Core<Twin<'_>>, usize) -> anyhow::Result<()>,
) -> anyhow::Result<BTreeMap<String, (KernelKey, Agreement)>> {
    let (twin, agreements) = TwinExecutor::beside(executor, CpuExecutor::new(caps));
    let config = limits(narrow, TOKENS);
    let mut core = load(twin, narrow, config, options.clone())?;
    serve(&mut core, TOKENS)?;
    let agreements = agreements.borrow();
    let by_name = agreements
        .iter()
        .map(|(key, agreement)| (key.to_string(), (key.clone(), agreement.clone())));
    Ok(by_name.collect())
}

/// The variants that an engine for a whole model asks a device with these capabilities for.
///
/// # Errors
/// A model that cannot be built.
pub fn variants(
    caps: &Caps,
    whole: &Checkpoint,
    options: &RunnerOptions,
) -> anyhow::Result<HashSet<KernelKey>> {
    let excerpt = whole.excerpt()?;
    let (recording, launches) = RecordingExecutor::new(caps.clone());
    let config = limits(&excerpt, WHOLE_TOKENS);
    let mut core = load(recording, &excerpt, config, options.clone())?;
    serve_all_kinds(&mut core, WHOLE_TOKENS)?;
    let launches = launches.borrow();
    Ok(launches.iter().map(|l| l.dispatch.key.clone()).collect())
}

/// One prompt through steps of every size, held against the first.
fn regimes(
    executor: &mut HostExecutor,
    narrow: &Checkpoint,
    options: &RunnerOptions,
) -> anyhow::Result<Regimes> {
    let mut found = Regimes {
        values: 0,
        unequal: 0,
        largest: 0.0,
    };
    let mut first: Option<Vec<f32>> = None;
    for chunk in CHUNKS {
        let logprobs = logprobs(executor, narrow, options, chunk)?;
        let Some(first) = &first else {
            first = Some(logprobs);
            continue;
        };
        found.values += logprobs.len();
        for (a, b) in first.iter().zip(&logprobs) {
            found.unequal += usize::from(a.to_bits() != b.to_bits());
            let apart = (a - b).abs();
            found.largest = match apart.is_nan() {
                true => f32::INFINITY,
                false => found.largest.max(apart),
            };
        }
        if first.len() != logprobs.len() {
            bail!("steps of {chunk} tokens gave {} values", logprobs.len());
        }
    }
    Ok(found)
}

/// Log-probabilities of a prompt's tokens and of the best in their place, through steps of `chunk`
/// tokens.
fn logprobs(
    executor: &mut HostExecutor,
    narrow: &Checkpoint,
    options: &RunnerOptions,
    chunk: usize,
) -> anyhow::Result<Vec<f32>> {
    let config = limits(narrow, chunk);
    let mut core = load(executor, narrow, config, options.clone())?;
    let params = SamplingParams {
        max_tokens: 1,
        ignore_eos: true,
        prompt_logprobs: Some(6),
        ..SamplingParams::default()
    };
    core.add_request(prompt(&core, CHUNKS[0], 1), params)?;
    let mut values = Vec::new();
    while core.has_unfinished_requests() {
        for output in block_on(core.step())? {
            if let Some(Err(error)) = output.finished {
                bail!("a request failed: {error}");
            }
            for place in output.prompt_logprobs {
                values.push(place.logprob);
                values.extend(place.top.iter().map(|(_, logprob)| logprob));
            }
        }
    }
    finish(&mut core)?;
    Ok(values)
}
