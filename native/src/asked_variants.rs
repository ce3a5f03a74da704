//! The variants of kernels that a model asks a device for: an engine serves an excerpt of it on an executor
//! that only records. Opens no device.

use std::collections::HashSet;

use twoclock_core::runner::RunnerOptions;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::recording::RecordingExecutor;

use crate::loads::{limits, load, serve_all_kinds};

/// Tokens of the longest step that is asked about.
pub const MOST_TOKENS: usize = 512;

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
    let config = limits(&excerpt, MOST_TOKENS);
    let mut core = load(recording, &excerpt, config, options.clone())?;
    serve_all_kinds(&mut core, MOST_TOKENS)?;
    let launches = launches.borrow();
    Ok(launches.iter().map(|l| l.dispatch.key.clone()).collect())
}
