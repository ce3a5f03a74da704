//! The `inspect` command: what a checkpoint's files say of it. Knows no device; reads no weights.

use serde_json::{Value, json};
use twoclock_core::config::{TextAssets, TokenizerAsset};
use twoclock_core::weights::Checkpoint;

use crate::store::human_bytes;

/// Everything, for programs.
pub fn as_json(checkpoint: &Checkpoint) -> Value {
    let (config, metadata) = (&checkpoint.config, &checkpoint.metadata);
    let dtypes: Vec<_> = metadata
        .dtypes
        .iter()
        .map(|share| {
            json!({
                "dtype": share.dtype.name(),
                "tensors": share.tensors,
                "elements": share.elements,
                "bytes": share.bytes,
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
pub fn as_text(checkpoint: &Checkpoint) -> String {
    let (config, metadata) = (&checkpoint.config, &checkpoint.metadata);
    let unsaid = || "not said".to_owned();
    let rows = [
        ("name", metadata.name.clone().unwrap_or_else(unsaid)),
        ("format", metadata.format.to_string()),
        ("architecture", metadata.architecture.clone()),
        (
            "size",
            format!(
                "{:.1} M parameters, {}",
                metadata.parameters as f64 / 1e6,
                human_bytes(metadata.file_bytes)
            ),
        ),
        ("quantization", metadata.quantization()),
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
        (
            "context",
            format!("{} tokens", config.max_position_embeddings),
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
        ("tokenizer", tokenizer(&checkpoint.text)),
        (
            "template",
            match &checkpoint.text.chat_template {
                Some(template) => format!("{} characters", template.chars().count()),
                None => "none: this model takes raw text only".into(),
            },
        ),
        ("licence", metadata.license.clone().unwrap_or_else(unsaid)),
    ];
    rows.iter()
        .map(|(name, value)| format!("{name:13} {value}\n"))
        .collect()
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
