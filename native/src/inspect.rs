//! The `inspect` command: what a checkpoint's files say of it, and what it would take on a device.
//! Opens no device; reads no weights.

use std::fmt;

use serde_json::{Value, json};
use twoclock_core::config::{ModelConfig, TextAssets, TokenizerAsset};
use twoclock_core::runner::{ComputeDtype, KvCacheDtype, MemoryPlan};
use twoclock_core::weights::repack::{tensor_bytes, tensor_format};
use twoclock_core::weights::{Checkpoint, DType};

use crate::engine::limits;
use crate::output::one_line;
use crate::store::human_bytes;

/// Types that a model is counted with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dtypes {
    /// How matmuls compute.
    pub compute: ComputeDtype,
    /// Of cached keys and values.
    pub kv_cache: KvCacheDtype,
}

/// Everything, for programs.
pub fn as_json(checkpoint: &Checkpoint, counted: Dtypes) -> Value {
    let (config, metadata) = (&checkpoint.config, &checkpoint.metadata);
    let dtypes: Vec<_> = shares(checkpoint)
        .iter()
        .map(|share| {
            json!({
                "dtype": share.dtype.name(),
                "tensors": share.tensors,
                "elements": share.elements,
                "bytes": share.bytes,
                "device_dtype": share.device,
                "device_bytes": share.device_bytes,
                "widened": share.widened(),
            })
        })
        .collect();
    let tensors: Vec<_> = checkpoint
        .tensors
        .values()
        .map(|tensor| {
            json!({
                "name": tensor.name,
                "dtype": tensor.dtype.name(),
                "shape": tensor.shape,
                "bytes": tensor.bytes,
                "device_dtype": tensor_format(tensor).name(),
                "device_bytes": tensor_bytes(tensor),
            })
        })
        .collect();
    json!({
        "format": metadata.format.to_string(),
        "architecture": metadata.architecture,
        "name": metadata.name,
        "license": metadata.license,
        "parameters": metadata.parameters,
        "file_bytes": metadata.file_bytes,
        "dtypes": dtypes,
        "memory": match plan(checkpoint, counted) {
            Ok(plan) => json!({
                "weights": plan.weights,
                "kv_cache": plan.kv_cache,
                "kv_tokens": plan.kv_tokens,
                "compute_dtype": plan.numerics.name(),
                "kv_cache_dtype": plan.kv_dtype.name(),
                "kv_token_bytes": plan.kv_token_bytes,
                "workspace": plan.workspace,
                "total": plan.total(),
            }),
            Err(error) => json!({"error": error.to_string()}),
        },
        "config": {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "max_position_embeddings": config.max_position_embeddings,
            "rms_norm_eps": config.rms_norm_eps,
            "rope_theta": config.rope.theta,
            "sliding_window": config.sliding_window,
            "sliding_layers": sliding_layers(config),
            "num_experts": config.moe.map(|moe| moe.num_experts),
            "num_experts_per_tok": config.moe.map(|moe| moe.num_experts_per_tok),
            "tie_word_embeddings": config.tie_word_embeddings,
            "bos_token_id": config.bos_token_id,
            "eos_token_ids": config.eos_token_ids,
        },
        "tokenizer": tokenizer(&checkpoint.text),
        "chat_template": checkpoint.text.chat_template,
        "tensors": tensors,
    })
}

/// The same for people, without the single tensors.
pub fn as_text(checkpoint: &Checkpoint, counted: Dtypes) -> String {
    let (config, metadata) = (&checkpoint.config, &checkpoint.metadata);
    let said = |text: Option<&str>| one_line(text.unwrap_or("not said"));
    let weights: Vec<String> = shares(checkpoint).iter().map(Share::to_string).collect();
    let rows = [
        ("name", said(metadata.name.as_deref())),
        ("format", metadata.format.to_string()),
        ("architecture", one_line(&metadata.architecture)),
        (
            "size",
            format!(
                "{:.1} M parameters, {}",
                metadata.parameters as f64 / 1e6,
                human_bytes(metadata.file_bytes)
            ),
        ),
        ("weights", weights.join(&format!("\n{:14}", ""))),
        (
            "shape",
            format!(
                "{} layers, width {}, feed-forward {}, {} heads of {} ({} for keys and values)",
                config.num_hidden_layers,
                config.hidden_size,
                config.intermediate_size,
                config.num_attention_heads,
                config.head_dim,
                config.num_key_value_heads,
            ),
        ),
        ("experts", experts(config)),
        (
            "context",
            match config.sliding_window {
                None => format!("{} tokens", config.max_position_embeddings),
                Some(window) => format!(
                    "{} tokens, {window} in {} of {} layers",
                    config.max_position_embeddings,
                    sliding_layers(config),
                    config.num_hidden_layers
                ),
            },
        ),
        (
            "vocabulary",
            format!(
                "{} tokens, {}",
                config.vocab_size,
                if config.tie_word_embeddings {
                    "output tied to the embedding"
                } else {
                    "output of its own"
                }
            ),
        ),
        ("tokenizer", one_line(&tokenizer(&checkpoint.text))),
        (
            "template",
            match &checkpoint.text.chat_template {
                Some(template) => format!("{} characters", template.chars().count()),
                None => "none: this model takes raw text only".into(),
            },
        ),
        (
            "memory",
            match plan(checkpoint, counted) {
                Ok(plan) => plan.to_string(),
                Err(error) => error.to_string(),
            },
        ),
        ("licence", said(metadata.license.as_deref())),
    ];
    rows.iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:13} {value}\n"))
        .collect()
}

/// Tensors of one type in the file and one on a device.
struct Share {
    dtype: DType,
    device: &'static str,
    tensors: usize,
    elements: u64,
    bytes: u64,
    device_bytes: u64,
}

impl Share {
    /// Bytes on a device over those in the file.
    fn widened(&self) -> f64 {
        self.device_bytes as f64 / self.bytes.max(1) as f64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dtype,
            device,
            tensors,
            ..
        } = self;
        write!(
            f,
            "{dtype:6} {tensors:4} tensor{}, {}",
            if *tensors == 1 { "" } else { "s" },
            human_bytes(self.bytes)
        )?;
        match (dtype.name() == *device, self.device_bytes == self.bytes) {
            (true, true) => f.write_str(", the same on a device"),
            (true, false) => write!(
                f,
                ", on a device {} ({:.3} ×)",
                human_bytes(self.device_bytes),
                self.widened()
            ),
            (false, _) => write!(
                f,
                ", on a device {} as {device} ({:.3} ×)",
                human_bytes(self.device_bytes),
                self.widened()
            ),
        }
    }
}

/// Most bytes first.
fn shares(checkpoint: &Checkpoint) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for tensor in checkpoint.tensors.values() {
        let (dtype, device) = (tensor.dtype, tensor_format(tensor).name());
        let of_type = |share: &Share| (share.dtype, share.device) == (dtype, device);
        let at = shares.iter().position(of_type).unwrap_or_else(|| {
            shares.push(Share {
                dtype,
                device,
                tensors: 0,
                elements: 0,
                bytes: 0,
                device_bytes: 0,
            });
            shares.len() - 1
        });
        let share = &mut shares[at];
        share.tensors += 1;
        share.elements += tensor.elements();
        share.bytes += tensor.bytes;
        share.device_bytes += tensor_bytes(tensor);
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

/// What `run` would take on a GPU that offers no more than every one of its class does.
fn plan(checkpoint: &Checkpoint, counted: Dtypes) -> twoclock_core::error::Result<MemoryPlan> {
    let limits = limits(&checkpoint.config, None);
    MemoryPlan::new(
        &counted.compute.portable_gpu(),
        checkpoint,
        &limits,
        counted.compute,
        counted.kv_cache,
    )
}

/// Layers that see a window only.
fn sliding_layers(config: &ModelConfig) -> usize {
    config.layers.iter().filter(|layer| layer.sliding).count()
}

/// The mixture of experts, if there is one.
fn experts(config: &ModelConfig) -> String {
    let Some(moe) = config.moe else {
        return String::new();
    };
    format!(
        "{} of width {}, {} for each token, in {} of {} layers",
        moe.num_experts,
        moe.moe_intermediate_size,
        moe.num_experts_per_tok,
        config.layers.iter().filter(|layer| layer.moe).count(),
        config.num_hidden_layers
    )
}

/// What kind of tokenizer comes with the model.
fn tokenizer(text: &TextAssets) -> String {
    match &text.tokenizer {
        Some(TokenizerAsset::Json(_)) => "tokenizer.json".into(),
        Some(TokenizerAsset::Vocabulary(vocabulary)) => match &vocabulary.pre {
            Some(pre) => format!("{} ({pre})", vocabulary.model),
            None => vocabulary.model.clone(),
        },
        None => "none".into(),
    }
}
