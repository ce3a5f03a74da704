//! The `selftest` command: an engine serves narrow models on the device beside the reference, and every
//! dispatch is compared; then one prompt goes through steps of every size, and what came of it is
//! compared with itself. Owns what is compared and what that comes to.

pub mod args;
pub mod findings;
pub mod models;
pub mod perf;
pub mod report;
pub mod steps;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use anyhow::{Context, bail};
use pollster::block_on;
use twoclock_core::runner::{ComputeDtype, NumericsClass, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::{Checkpoint, Layers};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::twin::{Agreement, TwinExecutor};

use crate::asked_variants::variants;
use crate::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use crate::loads::{Core, limits, load, prompt};
use crate::models::Models;
use crate::report::Reporter;
use crate::store::Store;
use crate::whole_file;
use args::SelftestArgs;
use findings::Findings;
use models::Subject;
use steps::{Pass, Steps};

/// What one prompt gave through steps of every size.
#[derive(Clone, Debug, PartialEq)]
pub struct Regimes {
    /// Tokens of the steps; the first are all of them, against which the others are held.
    pub sizes: Vec<usize>,
    /// Log-probabilities compared.
    pub values: usize,
    /// Of them, those that differ in a bit.
    pub unequal: usize,
    /// Largest difference.
    pub largest: f32,
}

/// What was found of one model in one class.
#[derive(Debug)]
pub struct Tested {
    /// Variants that ran beside the reference.
    pub compared: HashMap<KernelKey, Agreement>,
    /// Those that the whole model asks for.
    pub asked: HashSet<KernelKey>,
    /// Whether it asks for others in steps of more tokens than were asked about.
    pub others_beyond: bool,
    /// Steps beside each other.
    pub regimes: Regimes,
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
    let mut executor = HostExecutor::open(device, &store.caches(), Pipelines::Kept)?;
    let mut findings = Findings::new(executor.to_string(), executor.same_bits());
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
            let numerics = class.resolve(executor.caps())?;
            let steps = Steps::of(&numerics.caps(executor.caps()));
            let narrow = subject.checkpoint.narrowed(Layers::Kinds)?;
            let compared = compare(&mut executor, &steps, &subject.checkpoint, &options)
                .with_context(|| format!("{} cannot be tested", subject.name))?;
            let to_compare = begin.elapsed().as_secs_f64();
            let asked = variants(executor.caps(), &subject.checkpoint, &options)?;
            let to_ask = begin.elapsed().as_secs_f64() - to_compare;
            let regimes = regimes(&mut executor, &steps, &narrow, &options)?;
            report.detail(&format!(
                "{}: {to_compare:.1} s beside the reference, {to_ask:.1} s to see what is asked \
                 for, {:.1} s in all",
                subject.name,
                begin.elapsed().as_secs_f64()
            ));
            let tested = Tested {
                compared,
                asked,
                others_beyond: steps.others_beyond(),
                regimes,
            };
            findings.add(&subject.name, numerics, tested);
        }
    }
    executor.save_pipelines();
    if args.perf {
        drop(executor);
        findings.perf = Some(perf::measure(args, &subjects[0].checkpoint, store)?);
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

/// Every variant that serving narrow models runs, on the device against the reference.
fn compare(
    executor: &mut HostExecutor,
    steps: &Steps,
    whole: &Checkpoint,
    options: &RunnerOptions,
) -> anyhow::Result<HashMap<KernelKey, Agreement>> {
    let mut all: HashMap<KernelKey, Agreement> = HashMap::new();
    for pass in Pass::all(executor.caps()) {
        let reference = CpuExecutor::new(pass.caps.clone());
        let (twin, agreements) = TwinExecutor::beside(&mut *executor, reference);
        let narrow = whole.narrowed(pass.layers())?;
        let config = limits(&narrow, steps.longest());
        let mut core = load(twin, &narrow, config, options.clone())?;
        pass.serve(&mut core, steps)?;
        for (key, agreement) in agreements.take() {
            all.entry(key).or_default().add(agreement);
        }
    }
    Ok(all)
}

/// One prompt through steps of every size, held against the longest.
fn regimes(
    executor: &mut HostExecutor,
    steps: &Steps,
    narrow: &Checkpoint,
    options: &RunnerOptions,
) -> anyhow::Result<Regimes> {
    let config = limits(narrow, steps.longest());
    let tokens = steps.longest().min(config.max_model_len - 1);
    let mut found = Regimes {
        sizes: steps.sizes(tokens).collect(),
        values: 0,
        unequal: 0,
        largest: 0.0,
    };
    let mut first: Option<Vec<f32>> = None;
    for &size in &found.sizes {
        let config = SchedulerConfig {
            max_num_batched_tokens: size,
            max_num_seqs: 1,
            ..config.clone()
        };
        let core = load(&mut *executor, narrow, config, options.clone())?;
        let logprobs = logprobs(core, tokens)?;
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
            bail!("steps of {size} tokens gave {} values", logprobs.len());
        }
    }
    Ok(found)
}

/// Log-probabilities of a prompt's tokens and of the best in their place.
fn logprobs(mut core: Core<impl Executor>, tokens: usize) -> anyhow::Result<Vec<f32>> {
    let params = SamplingParams {
        max_tokens: 1,
        ignore_eos: true,
        prompt_logprobs: Some(6),
        ..SamplingParams::default()
    };
    core.add_request(prompt(&core, tokens, 1), params)?;
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
    Ok(values)
}
