//! The `dump-shaders` command: the text of every variant that a model asks a device for, or of all there
//! are, as files with a list of what they are. Computes nothing and needs no device.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use naga::back::spv;
use naga::valid::{Capabilities, SubgroupOperationSet, ValidationFlags, Validator};
use serde_json::json;
use twoclock_core::runner::{ComputeDtype, KvCacheDtype, RunnerOptions};
use twoclock_shaders::caps::{Caps, Dialect};
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::kernels;
use twoclock_shaders::link::link;

use crate::asked_variants::variants;
use crate::devices;
use crate::host_executor::DeviceChoice;
use crate::kept_tuning;
use crate::models::Models;
use crate::store::Store;
use crate::whole_file;

/// Shown after the help.
pub const MORE_HELP: &str = "\
Examples:
  twoclock dump-shaders shaders/                   every variant of every kernel
  twoclock dump-shaders -m smollm2 shaders/        those that this model asks the best device for
  twoclock dump-shaders -m smollm2 --for gpu shaders/   ... or any GPU with WebGPU's default limits

manifest.json lists the files with each variant's kernel, body, modules, constants and bindings. \
With --spirv there is what naga makes of each for Vulkan too, as the engine has it compiled \
(without bounds checks).";

/// What is written.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Only what this model asks for: a name, a file, a folder, or `hf:ORG/REPO[:FILE]`.
    #[arg(short, long)]
    pub model: Option<String>,
    /// Number of the device that a model would ask; the best one where absent.
    #[arg(long, value_name = "N", requires = "model")]
    pub device: Option<DeviceChoice>,
    /// A device that need not be here, instead.
    #[arg(
        long = "for",
        value_enum,
        requires = "model",
        conflicts_with = "device"
    )]
    pub profile: Option<Profile>,
    /// Precision of the arithmetic.
    #[arg(long, default_value = "auto", value_name = ComputeDtype::NAMES)]
    pub compute_dtype: ComputeDtype,
    /// Type of keys and values.
    #[arg(long, default_value = "auto", value_name = "auto|f16|f32|int8")]
    pub kv_cache_dtype: KvCacheDtype,
    /// Write SPIR-V too.
    #[arg(long)]
    pub spirv: bool,
    /// Write what a browser is given.
    #[arg(long, conflicts_with = "spirv")]
    pub browser: bool,
    /// Folder; made where it is not there. What it holds under the same names is replaced.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Devices by what they offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// A GPU with WebGPU's default limits; with cooperative matrices where the class is theirs.
    Gpu,
    /// A processor without subgroups.
    Cpu,
}

impl Profile {
    fn caps(self, class: ComputeDtype) -> Caps {
        match self {
            Self::Gpu => class.portable_gpu(),
            Self::Cpu => Caps::reference(),
        }
    }
}

/// Writes the files; gives what to print.
///
/// # Errors
/// No such model or device, or a folder that cannot be written.
pub fn run(args: &DumpArgs, models: &Models<'_>, store: &Store) -> anyhow::Result<String> {
    let keys: HashSet<KernelKey> = match &args.model {
        None => kernels::ALL.iter().flat_map(|k| (k.variants)()).collect(),
        Some(model) => {
            let checkpoint = models.find(model)?.open()?;
            let options = RunnerOptions {
                compute_dtype: args.compute_dtype,
                kv_cache_dtype: args.kv_cache_dtype,
                ..RunnerOptions::default()
            };
            variants(&caps(args, store)?, &checkpoint, &options)?
        }
    };
    let by_name: BTreeMap<String, KernelKey> =
        keys.into_iter().map(|key| (key.to_string(), key)).collect();
    let unwritten = |path: &Path| format!("{} cannot be written", path.display());
    fs::create_dir_all(&args.folder).with_context(|| unwritten(&args.folder))?;
    let write = |name: &str, bytes: &[u8]| {
        let path = args.folder.join(name);
        whole_file::write(&path, bytes).with_context(|| unwritten(&path))
    };
    let mut manifest = Vec::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, key) in &by_name {
        let kernel =
            kernels::find(key.kernel).with_context(|| format!("{name}: no such kernel"))?;
        let dialect = match args.browser {
            true => Dialect::Browser,
            false => Dialect::Native,
        };
        let text = link(kernel, key, dialect)?;
        let number = numbers.entry(key.body).or_default();
        let file = format!("{}.{number}.wgsl", key.body);
        *number += 1;
        write(&file, text.as_bytes())?;
        let spirv = match args.spirv {
            false => None,
            true => {
                let file = file.replace(".wgsl", ".spv");
                let words = spirv(&text).with_context(|| name.clone())?;
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                write(&file, &bytes)?;
                Some(file)
            }
        };
        let modules: BTreeMap<_, _> = key.modules.iter().copied().collect();
        let consts: BTreeMap<_, _> = key.consts.iter().copied().collect();
        let bindings: Vec<_> = kernel.bindings.iter().map(|b| b.name).collect();
        manifest.push(json!({
            "variant": name, "kernel": key.kernel, "body": key.body, "modules": modules,
            "constants": consts, "bindings": bindings, "wgsl": file, "spirv": spirv,
        }));
    }
    let list = serde_json::to_vec_pretty(&manifest)?;
    write("manifest.json", &list)?;
    let folder = args.folder.display();
    Ok(format!(
        "{} variants in {folder}, listed in manifest.json\n",
        manifest.len()
    ))
}

/// Of the device that is asked, tuned as it is when a model runs on it.
fn caps(args: &DumpArgs, store: &Store) -> anyhow::Result<Caps> {
    if let Some(profile) = args.profile {
        return Ok(profile.caps(args.compute_dtype));
    }
    let number = match args.device.unwrap_or_default() {
        DeviceChoice::Cpu => return Ok(Caps::reference()),
        DeviceChoice::Best => 0,
        DeviceChoice::Adapter(number) => number,
    };
    match devices::find().get(number) {
        Some(adapter) => Ok(Caps {
            tuning: kept_tuning::of(&store.caches(), adapter),
            ..adapter.caps.clone()
        }),
        None => bail!("there is no device {number} here (twoclock devices); --for gpu needs none"),
    }
}

/// SPIR-V of a variant, without bounds checks, as drivers get it.
fn spirv(text: &str) -> anyhow::Result<Vec<u32>> {
    let module = naga::front::wgsl::parse_str(text)
        .map_err(|e| anyhow::anyhow!("naga does not parse it: {}", e.emit_to_string(text)))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_operations(SubgroupOperationSet::all());
    validator.subgroup_stages(naga::valid::ShaderStages::all());
    let info = validator
        .validate(&module)
        .map_err(|e| anyhow::anyhow!("naga does not validate it: {}", e.emit_to_string(text)))?;
    let mut options = spv::Options {
        lang_version: (1, 6),
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..spv::Options::default()
    };
    options.bounds_check_policies = naga::proc::BoundsCheckPolicies::default();
    Ok(spv::write_vec(&module, &info, &options, None)?)
}
