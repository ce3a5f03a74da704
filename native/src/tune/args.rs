//! What the `tune` command takes. Owns its help; knows nothing of what is done.

use clap::Args;

use crate::host_executor::DeviceChoice;

/// Shown after the help.
pub const MORE_HELP: &str = "\
Examples:
  twoclock tune
  twoclock tune --device 1 --dry-run --json

Which variant of a matrix product is fastest for a number of tokens differs from device to device: \
which body, on how many lanes, in which tiles. `tune` times them on matrices of usual shapes and \
keeps what it finds beside the adapter's compiled pipelines; later runs on that adapter and driver \
read it from there. No choice changes a bit of any answer. Without it defaults hold that suit the \
device by its limits. Takes about a minute; let nothing else use the device meanwhile.";

/// What is tuned.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Device to tune: a number of `twoclock devices`; the best one by default.
    #[arg(long, value_name = "N")]
    pub device: Option<DeviceChoice>,
    /// Only tell, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Write JSON instead of a table: times in seconds by choice, tokens and variant, and what was chosen.
    #[arg(long)]
    pub json: bool,
}
