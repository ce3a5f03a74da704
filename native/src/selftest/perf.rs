//! Every variant by itself: how fast it runs at a model's widths, and what it costs to compile. Figures,
//! not a check.

use twoclock_core::runner::RunnerOptions;
use twoclock_core::weights::Checkpoint;

use super::args::SelftestArgs;
use crate::device_rates::Rates;
use crate::host_executor::{HostExecutor, Pipelines};
use crate::keeping_executor::KeepingExecutor;
use crate::loads::{limits, load, serve_all_kinds};
use crate::store::Store;

/// A variant at the largest of its grids.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The variant.
    pub variant: String,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Seconds of the first run, compiling included, less those of a later one.
    pub compile: f64,
    /// Seconds of a run.
    pub seconds: f64,
    /// Bytes a second, as the kernel counts them.
    pub bandwidth: f64,
    /// Operations a second, as the kernel counts them.
    pub flops: f64,
    /// Share of the device's own rate in whichever of the two it is nearer to.
    pub of_roof: f64,
}

/// Variants by themselves, and the roof over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Perf {
    /// Of the device alone.
    pub rates: Rates,
    /// By time, longest first.
    pub timed: Vec<Timed>,
}

/// Tokens of the longest step.
const TOKENS: usize = 512;

/// Times the variants that serving a model of these widths runs.
///
/// # Errors
/// The device's.
pub(super) fn measure(
    args: &SelftestArgs,
    whole: &Checkpoint,
    store: &Store,
) -> anyhow::Result<Perf> {
    let excerpt = whole.excerpt()?;
    // So that first runs compile.
    let device = args.device.unwrap_or_default();
    let executor = HostExecutor::open(device, &store.caches(), Pipelines::Fresh)?;
    let mut executor = KeepingExecutor::new(executor);
    let rates = Rates::measure(&mut executor)?;
    executor.time_singly();
    let options = RunnerOptions {
        compute_dtype: args.compute_dtype,
        kv_cache_dtype: args.kv_cache_dtype,
        ..RunnerOptions::default()
    };
    let mut core = load(executor, &excerpt, limits(&excerpt, TOKENS), options)?;
    serve_all_kinds(&mut core, TOKENS)?;
    let timed = core.runner().executor().singles().map(|(key, single)| {
        let groups: f64 = single.launched.grid.iter().map(|&n| f64::from(n)).product();
        let (cost, seconds) = (single.launched.dispatch.cost, single.seconds);
        let bandwidth = groups * cost.bytes / seconds;
        let flops = groups * cost.flops / seconds;
        Timed {
            variant: key.to_string(),
            grid: single.launched.grid,
            compile: (single.first - seconds).max(0.0),
            seconds,
            bandwidth,
            flops,
            of_roof: rates.share(bandwidth, flops),
        }
    });
    let mut timed: Vec<Timed> = timed.collect();
    timed.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(Perf { rates, timed })
}
