//! What the `selftest` command takes. Owns its help; knows nothing of what is done.

use std::path::PathBuf;

use clap::Args;
use twoclock_core::runner::{ComputeDtype, KvCacheDtype};

use crate::host_executor::DeviceChoice;

/// Shown after the help.
pub const MORE_HELP: &str = "\
Examples:
  twoclock selftest                  what common models ask for
  twoclock selftest -m smollm2       what this one does
  twoclock selftest --all            every format of weights, keys and values, every kind of layer
  twoclock selftest -m smollm2 --perf

An engine serves narrow models of random weights, of the same kinds of layers and types of \
tensors, beside the reference kernels: every dispatch runs on both from equal inputs, and what it \
wrote is compared: whole numbers exactly, others within 2e-5 of what they spread by (1e-3 where a \
rounded norm or noise for drawing comes in), halves and bytes within a rounding besides. Then a \
prompt goes through steps of several sizes, so through every body of a matrix product that the \
device's tuning gives steps of up to 512 tokens, and of attention. Where all its log-probabilities \
have the same bits, a request's tokens depend on nothing else that is served, to the bit; else up \
to the first step where two tokens are nearly as likely, which is all that a device without Vulkan \
promises (`twoclock devices`).

The exit status is 1 where anything differs (with Vulkan, a bit between steps of different sizes \
too), or where a variant that the model asks for was not compared.

--perf runs every variant by itself, at the widths of the model, or of the first of the common \
ones: GB/s and GFLOP/s as its kernel counts them, and what it cost to compile on first use. A \
driver keeps what it compiled: MESA_SHADER_CACHE_DISABLE=true (Mesa) or __GL_SHADER_DISK_CACHE=0 \
(NVIDIA) shows that cold.";

/// What is tested.
#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// Test what this model asks for: a name, a file, a folder, or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long)]
    pub model: Option<String>,
    /// Test everything there is.
    #[arg(long, conflicts_with_all = ["model", "perf"])]
    pub all: bool,
    /// Time every variant too.
    #[arg(long)]
    pub perf: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Write that object into a file, whatever is printed.
    #[arg(long, value_name = "FILE")]
    pub json_to: Option<PathBuf>,
    /// Number of a device in `twoclock devices`; the best one where absent.
    #[arg(long, value_name = "N")]
    pub device: Option<DeviceChoice>,
    /// Precision of the arithmetic; --all takes every one.
    #[arg(
        long,
        default_value = "auto",
        value_name = ComputeDtype::NAMES,
        conflicts_with = "all"
    )]
    pub compute_dtype: ComputeDtype,
    /// Type of keys and values.
    #[arg(long, default_value = "auto", value_name = "auto|f16|f32|int8")]
    pub kv_cache_dtype: KvCacheDtype,
}
