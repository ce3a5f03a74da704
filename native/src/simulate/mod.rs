//! The `simulate` command: the engine's own scheduler and block pool serve a trace on a device that is
//! only computed. Owns what is put together; loads no weights and opens no device.

pub mod device_file;
pub mod hardware;
pub mod lengths;
pub mod papers;
pub mod plot;
pub mod policy;
pub mod report;
pub mod run;
pub mod shape;
pub mod summary;
pub mod trace;

use std::path::PathBuf;

use anyhow::bail;
use serde_json::json;
use twoclock_core::sched::{
    CostModel, Hardware, KvGroupSpec, ModelShape, SchedulerConfig, ServiceLevel,
};

use crate::models::Models;
use crate::report::Reporter;
use crate::store::human_bytes;
use lengths::DEFAULT_RATE;
use plot::Plot;
use policy::{Limits, Policy};
use run::Setup;
use summary::Summary;
use trace::Trace;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimulateOptions {
    /// Device: a name or a file.
    pub hardware: String,
    /// Model: a name or files.
    pub model: String,
    /// Trace: a name or a file.
    pub trace: String,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Requests a second; `None` is 10, or a file's own times.
    pub rate: Option<f64>,
    /// Rates to try one after the other instead.
    pub sweep_rates: Vec<f64>,
    /// Requests.
    pub requests: usize,
    /// Of drawn traces.
    pub seed: u64,
    /// What to keep.
    pub slo: ServiceLevel,
    /// Longest sequence; `None` is the model's own, at most 4096.
    pub max_model_len: Option<usize>,
    /// Most sequences in a step.
    pub max_num_seqs: usize,
    /// Most tokens in a step of chunked prompts.
    pub max_num_batched_tokens: usize,
    /// Tokens a block.
    pub block_size: usize,
    /// Requests share equal beginnings.
    pub prefix_caching: bool,
    /// Sizes of numbers.
    pub bits: shape::Bits,
    /// For programs.
    pub json: bool,
    /// Where to draw it.
    pub plot: Option<PathBuf>,
}

/// Requests where nobody says otherwise.
pub const DEFAULT_REQUESTS: usize = 500;
/// Share of a device's memory that weights and cache may take, as in vLLM.
const MEMORY_SHARE: f64 = 0.9;
/// Longest sequence where nobody says otherwise.
const DEFAULT_CONTEXT: usize = 4096;
/// Most blocks of a cache, so that a tiny model does not fill a large device with their books.
const MOST_BLOCKS: usize = 1 << 22;

/// What came of a simulation.
#[derive(Debug)]
pub struct Simulated {
    /// What to print.
    pub text: String,
    /// Whether what was to be drawn is: runs may take long, and are not lost with a file.
    pub drawn: anyhow::Result<()>,
}

/// Simulates, and gives what to print.
///
/// # Errors
/// A plot's file that cannot be written, before all else; a name or file that is none, a model that
/// does not fit the device, a request that fits no sequence.
pub fn simulate(
    options: &SimulateOptions,
    models: &Models<'_>,
    report: &Reporter,
) -> anyhow::Result<Simulated> {
    if let Some(path) = &options.plot {
        crate::picture::check(path)?;
    }
    let hardware = hardware::find(&options.hardware)?;
    let model = shape::find(&options.model, options.bits, models)?;
    let trace = trace::find(&options.trace)?;
    let limits = Limits {
        max_model_len: options
            .max_model_len
            .unwrap_or(model.max_model_len.min(DEFAULT_CONTEXT)),
        max_num_seqs: options.max_num_seqs,
        block_size: options.block_size,
        num_blocks: 0,
        max_num_batched_tokens: options.max_num_batched_tokens,
        prefix_caching: options.prefix_caching,
    };
    let setup = setup(model.shape, hardware, limits, options.slo)?;
    let rates: Vec<Option<f64>> = match options.sweep_rates.as_slice() {
        [] => vec![options.rate],
        rates => rates.iter().copied().map(Some).collect(),
    };
    // Steps and cache are drawn of the rate in the middle.
    let middle = rates.len() / 2;
    let mut outcomes = Vec::new();
    let mut sweeps: Vec<(String, Vec<Summary>)> = Vec::new();
    let bar = report.counter("simulating", rates.len() * options.policies.len());
    for &policy in &options.policies {
        let mut summaries = Vec::new();
        for (index, rate) in rates.iter().enumerate() {
            let max_model_len = setup.limits.max_model_len;
            let requests = trace.requests(options.requests, *rate, max_model_len, options.seed)?;
            let outcome = run::run(&setup, policy, &requests)?;
            summaries.push(Summary::of(&outcome, setup.slo));
            if index == middle {
                outcomes.push(outcome);
            }
            bar.inc(1);
        }
        sweeps.push((policy.to_string(), summaries));
    }
    bar.finish_and_clear();
    let title = format!("{}, {}, {}", options.model, options.hardware, options.trace);
    let times = match (rates[middle], &trace) {
        (None, Trace::Listed(_)) => "at the trace's own times".to_owned(),
        (rate, _) => format!("{} requests a second", rate.unwrap_or(DEFAULT_RATE)),
    };
    let plot = Plot {
        title: &title,
        times: &times,
        hardware: setup.cost.hardware(),
        outcomes: &outcomes,
        sweeps: if rates.len() > 1 { &sweeps } else { &[] },
    };
    let drawn = options
        .plot
        .as_ref()
        .map_or(Ok(()), |path| plot.write(path));
    let summaries = || sweeps.iter().flat_map(|(_, summaries)| summaries);
    if options.json {
        let json = json!({
            "hardware": setup.cost.hardware(),
            "weight_bytes": setup.cost.shape().weight_bytes(),
            "kv_slots": setup.limits.num_blocks.saturating_sub(1) * setup.limits.block_size,
            "ridge_tokens": setup.cost.ridge_tokens(),
            "runs": summaries().collect::<Vec<_>>(),
        });
        let text = format!("{json:#}\n");
        return Ok(Simulated { text, drawn });
    }
    let all: Vec<_> = summaries().cloned().collect();
    let text = format!(
        "{title}: {}, {}\n\n{}\n{}",
        describe(&setup),
        slo_text(setup.slo),
        report::table(&all),
        report::LEGEND
    );
    Ok(Simulated { text, drawn })
}

fn describe(setup: &Setup) -> String {
    let shape = setup.cost.shape();
    format!(
        "weights {}, cache of {} tokens, ridge at {} tokens",
        human_bytes(shape.weight_bytes() as u64),
        setup.limits.num_blocks.saturating_sub(1) * setup.limits.block_size,
        setup.cost.ridge_tokens()
    )
}

fn slo_text(slo: ServiceLevel) -> String {
    let part = |name: &str, seconds: Option<f64>| match seconds {
        Some(seconds) => format!("{name} {:.0} ms", seconds * 1e3),
        None => format!("any {name}"),
    };
    format!(
        "to keep: {}, {}",
        part("TTFT", slo.ttft),
        part("TPOT", slo.tpot)
    )
}

/// Fits a cache into what a device's memory leaves beside a model.
///
/// # Errors
/// The model does not fit, or leaves no room for one sequence; with the arithmetic.
pub fn setup(
    shape: ModelShape,
    hardware: Hardware,
    mut limits: Limits,
    slo: ServiceLevel,
) -> anyhow::Result<Setup> {
    let mut first = 0;
    let groups = shape.groups.iter().map(|group| {
        first += group.num_layers;
        KvGroupSpec {
            layers: (first - group.num_layers..first).collect(),
            window: group.window,
        }
    });
    let groups: Vec<_> = groups.collect();
    let usable = hardware.memory as f64 * MEMORY_SHARE;
    let bytes = |num_blocks| {
        let config = SchedulerConfig {
            num_blocks,
            ..Policy::Fixed(None).config(&limits)
        };
        let blocks = groups.iter().map(|group| {
            let slots = group.num_blocks(&config) * limits.block_size;
            (slots * group.layers.len()) as f64 * shape.kv_bytes_per_layer
        });
        shape.weight_bytes() + blocks.sum::<f64>()
    };
    let needed = limits.max_model_len.div_ceil(limits.block_size.max(1));
    let needed = needed.saturating_add(1);
    // Sizes are only computed of limits that are possible.
    Policy::Fixed(None)
        .config(&Limits {
            num_blocks: needed.max(2),
            ..limits
        })
        .validate()?;
    if bytes(needed) > usable {
        bail!(
            "weights of {} and keys and values of one sequence of {} tokens are {}, but of this \
             device's memory {} are usable: give fewer --weight-bits, a shorter --max-model-len or \
             another device",
            human_bytes(shape.weight_bytes() as u64),
            limits.max_model_len,
            human_bytes(bytes(needed) as u64),
            human_bytes(usable as u64)
        );
    }
    let (mut low, mut high) = (needed, MOST_BLOCKS.max(needed));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match bytes(middle) <= usable {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    limits.num_blocks = low;
    Ok(Setup {
        cost: CostModel::new(shape, hardware),
        groups,
        limits,
        slo,
    })
}
