//! Tensor names: from GGUF's to Hugging Face's, which the engine uses throughout, and the list of
//! tensors a configuration asks for. Knows no bytes.

use crate::config::ModelConfig;

/// GGUF's per-layer names of llama-shaped models (after `blk.N.`, before `.weight` or `.bias`),
/// and Hugging Face's (after `model.layers.N.`).
const LAYER: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The divisors of the rotary frequencies, which are configuration rather than weights.
pub const ROPE_FREQS: &str = "rope_freqs.weight";

/// The Hugging Face name of a GGUF llama tensor, or `None` where llama has no such tensor.
///
/// ```
/// use twoclock_core::weights::names::hf_name;
/// assert_eq!(
///     hf_name("blk.3.attn_q.weight").as_deref(),
///     Some("model.layers.3.self_attn.q_proj.weight")
/// );
/// assert_eq!(hf_name("blk.3.ffn_gate_exps.weight"), None);
/// ```
pub fn hf_name(gguf: &str) -> Option<String> {
    match gguf {
        "token_embd.weight" => return Some("model.embed_tokens.weight".into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some("lm_head.weight".into()),
        _ => {}
    }
    let (layer, rest) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let (part, kind) = rest.split_once('.')?;
    // Parsed and printed again, so that "blk.+1" or "blk.01" is no second name of a layer.
    let number: u32 = layer.parse().ok()?;
    if number.to_string() != layer || !matches!(kind, "weight" | "bias") {
        return None;
    }
    let (_, hf) = LAYER.iter().find(|(name, _)| *name == part)?;
    Some(format!("model.layers.{number}.{hf}.{kind}"))
}

/// Whether a Hugging Face tensor holds nothing the configuration does not already say: old
/// checkpoints store the rotary frequencies.
pub fn is_derived(hf: &str) -> bool {
    hf.ends_with(".rotary_emb.inv_freq")
}

/// Which norms stand around a block's feed-forward network, and behind its attention. The same
/// name means another place where every sublayer's output is normed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormNames {
    /// Of attention's output.
    pub post_attention: Option<&'static str>,
    /// Before the feed-forward network.
    pub before: &'static str,
    /// Of its output.
    pub after: Option<&'static str>,
}

impl NormNames {
    /// Those of a model.
    pub fn of(config: &ModelConfig) -> Self {
        if config.post_norms {
            Self {
                post_attention: Some("post_attention_layernorm"),
                before: "pre_feedforward_layernorm",
                after: Some("post_feedforward_layernorm"),
            }
        } else {
            Self {
                post_attention: None,
                before: "post_attention_layernorm",
                after: None,
            }
        }
    }
}

/// Every tensor a model of this configuration has, with its shape (rows first).
pub fn expected_tensors(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let hidden = config.hidden_size;
    let mut out = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            vec![config.vocab_size, hidden],
        ),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        out.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for layer in 0..config.num_hidden_layers {
        layer_tensors(config, layer, &mut out);
    }
    out
}

fn layer_tensors(config: &ModelConfig, layer: usize, out: &mut Vec<(String, Vec<usize>)>) {
    let hidden = config.hidden_size;
    let q = config.num_attention_heads * config.head_dim;
    let kv = config.num_key_value_heads * config.head_dim;
    let mut norm = |part: &str, dim: usize| {
        out.push((format!("model.layers.{layer}.{part}.weight"), vec![dim]));
    };
    let names = NormNames::of(config);
    norm("input_layernorm", hidden);
    norm(names.before, hidden);
    for part in names.post_attention.iter().chain(&names.after) {
        norm(part, hidden);
    }
    if config.qk_norm {
        norm("self_attn.q_norm", config.head_dim);
        norm("self_attn.k_norm", config.head_dim);
    }
    let mut linear = |part: &str, rows: usize, cols: usize, bias: bool| {
        let name = format!("model.layers.{layer}.{part}");
        if bias {
            out.push((format!("{name}.bias"), vec![rows]));
        }
        out.push((format!("{name}.weight"), vec![rows, cols]));
    };
    linear("self_attn.q_proj", q, hidden, config.qkv_bias);
    linear("self_attn.k_proj", kv, hidden, config.qkv_bias);
    linear("self_attn.v_proj", kv, hidden, config.qkv_bias);
    linear("self_attn.o_proj", hidden, q, config.o_bias);
    match config.experts(layer) {
        None => {
            let ffn = config.intermediate_size;
            linear("mlp.gate_proj", ffn, hidden, config.mlp_bias);
            linear("mlp.up_proj", ffn, hidden, config.mlp_bias);
            linear("mlp.down_proj", hidden, ffn, config.mlp_bias);
        }
        Some(moe) => {
            let ffn = moe.moe_intermediate_size;
            linear("mlp.gate", moe.num_experts, hidden, false);
            for expert in 0..moe.num_experts {
                let expert = |part| format!("mlp.experts.{expert}.{part}");
                linear(&expert("gate_proj"), ffn, hidden, false);
                linear(&expert("up_proj"), ffn, hidden, false);
                linear(&expert("down_proj"), hidden, ffn, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_one_spelling() {
        assert!(hf_name("blk.1.ffn_up.bias").is_some());
        for wrong in [
            "blk.01.ffn_up.bias",
            "blk.+1.ffn_up.bias",
            "blk.1.ffn_up.x",
            "blk.1",
            "",
        ] {
            assert_eq!(hf_name(wrong), None, "{wrong}");
        }
    }
}
