//! The models a self-test is made with: narrow ones of random weights, which ask for the kernels of those
//! they stand for.

use anyhow::Context;
use serde_json::{Value, json};
use twoclock_core::config::ModelConfig;
use twoclock_core::runner::KvCacheDtype;
use twoclock_core::weights::{Checkpoint, DType, model_config_of_json};
use twoclock_shaders::kernels::kv::KvDtype;

use crate::model_shapes::{self, random};

/// What is tested as one.
#[derive(Clone, Debug)]
pub struct Subject {
    /// For people.
    pub name: String,
    /// What it stands for, whole.
    pub checkpoint: Checkpoint,
    /// Its keys and values; `None` is what the arguments say.
    pub kv: Option<KvCacheDtype>,
}

/// Weights as files of mixed types have them: most in the first, the head and some layers in the second.
fn mixed(config: ModelConfig, name: &str, most: DType, some: DType) -> anyhow::Result<Checkpoint> {
    let in_some = |tensor: &str| {
        tensor == "lm_head.weight"
            || tensor == "model.embed_tokens.weight"
            || tensor == "model.layers.0.mlp.down_proj.weight"
    };
    Ok(Checkpoint::dummy(config, name, |tensor| {
        match in_some(tensor) {
            true => some,
            false => most,
        }
    })?)
}

/// Where no model is named.
///
/// # Errors
/// None that a build that passes its tests meets.
pub fn defaults() -> anyhow::Result<Vec<Subject>> {
    let subject = |shape: &str, most, some| {
        anyhow::Ok(Subject {
            name: format!("{shape}, {most} and {some}"),
            checkpoint: mixed(model_shapes::find(shape)?, shape, most, some)?,
            kv: None,
        })
    };
    Ok(vec![
        subject("llama-3-8b", DType::Q4_0, DType::Q8_0)?,
        subject("qwen3-4b", DType::Q4K, DType::Q6K)?,
    ])
}

/// Shapes whose kernels differ from Llama's.
fn shapes() -> [(&'static str, Value); 5] {
    [
        (
            "norms around, windows, GELU, two rotary bases",
            json!({
                "model_type": "gemma3_text", "vocab_size": 2000, "hidden_size": 640,
                "intermediate_size": 2048, "num_hidden_layers": 7, "num_attention_heads": 4,
                "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
                "sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192, "rope_theta": 1_000_000.0,
            }),
        ),
        (
            "soft caps",
            json!({
                "model_type": "gemma2", "vocab_size": 2000, "hidden_size": 512,
                "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
                "num_key_value_heads": 4, "head_dim": 64, "sliding_window": 512,
                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                "query_pre_attn_scalar": 64, "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192,
            }),
        ),
        (
            "experts",
            json!({
                "model_type": "qwen3_moe", "vocab_size": 2000, "hidden_size": 512,
                "intermediate_size": 1024, "moe_intermediate_size": 256, "num_experts": 16,
                "num_experts_per_tok": 4, "num_hidden_layers": 1, "num_attention_heads": 8,
                "num_key_value_heads": 2, "head_dim": 64, "decoder_sparse_step": 1,
                "max_position_embeddings": 8192, "norm_topk_prob": true,
            }),
        ),
        (
            "biases",
            json!({
                "model_type": "qwen2", "vocab_size": 2000, "hidden_size": 512,
                "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
                "num_key_value_heads": 2, "max_position_embeddings": 8192,
            }),
        ),
        (
            "partial rotation, heads of 80",
            json!({
                "model_type": "phi3", "vocab_size": 2000, "hidden_size": 640,
                "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
                "num_key_value_heads": 8, "partial_rotary_factor": 0.5,
                "max_position_embeddings": 4096,
            }),
        ),
    ]
}

/// Every weight format, every type of keys and values, and what families differ in.
///
/// # Errors
/// None that a build that passes its tests meets.
pub fn all() -> anyhow::Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    let llama = model_shapes::find("llama-3-8b")?;
    for dtype in DType::ALL {
        subjects.push(Subject {
            name: format!("weights in {dtype}"),
            checkpoint: random(llama.clone(), "llama-3-8b", dtype)?,
            kv: None,
        });
    }
    for dtype in KvDtype::ALL {
        subjects.push(Subject {
            name: format!("keys and values in {}", dtype.name()),
            checkpoint: random(llama.clone(), "llama-3-8b", DType::Q4_0)?,
            kv: Some(KvCacheDtype::Of(dtype)),
        });
    }
    for (name, json) in shapes() {
        let config = model_config_of_json(&json).with_context(|| name.to_owned())?;
        subjects.push(Subject {
            name: name.to_owned(),
            checkpoint: random(config, name, DType::Q4_0)?,
            kv: None,
        });
    }
    Ok(subjects)
}
