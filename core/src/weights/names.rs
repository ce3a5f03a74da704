//! Tensor names: from GGUF's to Hugging Face's, which the engine uses throughout, and the list of
//! tensors a configuration asks for. Knows no bytes.

use crate::config::{Architecture, ModelConfig};

/// GGUF's per-layer names (after `blk.N.`, before `.weight` or `.bias`), and Hugging Face's (after
/// `model.layers.N.`).
const LAYER: [(&str, &str); 18] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
];

/// The divisors of the rotary frequencies, which are configuration rather than weights.
pub const ROPE_FREQS: &str = "rope_freqs.weight";

/// Divisors beyond and within the original context.
pub const ROPE_FACTORS: [&str; 2] = ["rope_factors_long.weight", "rope_factors_short.weight"];

/// The Hugging Face name of a GGUF tensor, or `None` where no family has such a tensor.
///
/// ```
/// use twoclock_core::config::ModelConfig;
/// use twoclock_core::weights::names::hf_name;
/// let config = ModelConfig::default();
/// assert_eq!(
///     hf_name("blk.3.attn_q.weight", &config).as_deref(),
///     Some("model.layers.3.self_attn.q_proj.weight")
/// );
/// assert_eq!(hf_name("blk.3.ssm_in.weight", &config), None);
/// ```
pub fn hf_name(gguf: &str, config: &ModelConfig) -> Option<String> {
    match gguf {
        "token_embd.weight" => return Some("model.embed_tokens.weight".into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some("lm_head.weight".into()),
        _ => {}
    }
    let (layer, rest) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let number = plain_number(layer)?;
    if !matches!(kind, "weight" | "bias") {
        return None;
    }
    let hf = |part: &str| {
        LAYER
            .iter()
            .find(|(name, _)| *name == part)
            .map(|&(_, hf)| hf)
    };
    let hf = match part {
        "ffn_norm" => NormNames::of(config).before.to_owned(),
        // Phi-3's holds the gate too.
        "ffn_up" if config.architecture == Architecture::Phi3 => "mlp.gate_up_proj".to_owned(),
        // Older files have a tensor for each expert.
        _ => match part.split_once('.') {
            None => hf(part)?.to_owned(),
            Some((part @ ("ffn_gate" | "ffn_up" | "ffn_down"), expert)) => {
                let projection = hf(part)?.strip_prefix("mlp.")?;
                format!("mlp.experts.{}.{projection}", plain_number(expert)?)
            }
            Some(_) => return None,
        },
    };
    Some(format!("model.layers.{number}.{hf}.{kind}"))
}

/// A number in its one spelling, so that `blk.+1` or `blk.01` is no second name of a layer.
fn plain_number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A Hugging Face name as the engine has it: Mixtral's experts have names of their own, and models of
/// embeddings, which have no head, leave out what tells the rest from it.
pub fn canonical(hf: &str) -> String {
    const BODY: [&str; 3] = ["layers.", "embed_tokens.", "norm."];
    if BODY.iter().any(|part| hf.starts_with(part)) {
        return canonical(&format!("model.{hf}"));
    }
    let Some((layer, rest)) = hf.split_once(".block_sparse_moe.") else {
        return hf.to_owned();
    };
    let rest = rest
        .replace(".w1.", ".gate_proj.")
        .replace(".w2.", ".down_proj.")
        .replace(".w3.", ".up_proj.");
    format!("{layer}.mlp.{rest}")
}

/// The tensors that a fused one holds, with their rows; `None` for one that stands for itself.
pub fn fused(name: &str, config: &ModelConfig) -> Option<Vec<(String, usize)>> {
    let (base, part) = name
        .rsplit_once(".self_attn.")
        .or(name.rsplit_once(".mlp."))?;
    let ffn = config.intermediate_size;
    let q = config.num_attention_heads * config.head_dim;
    let kv = config.num_key_value_heads * config.head_dim;
    match part {
        "qkv_proj.weight" => Some(
            [("q", q), ("k", kv), ("v", kv)]
                .map(|(x, rows)| (format!("{base}.self_attn.{x}_proj.weight"), rows))
                .into(),
        ),
        "gate_up_proj.weight" => Some(
            ["gate", "up"]
                .map(|x| (format!("{base}.mlp.{x}_proj.weight"), ffn))
                .into(),
        ),
        _ => {
            let moe = config.moe?;
            let (hidden, ffn) = (config.hidden_size, moe.moe_intermediate_size);
            let projections: &[(&str, usize)] = match part.strip_prefix("experts.")? {
                "gate_proj.weight" => &[("gate", ffn)],
                "up_proj.weight" => &[("up", ffn)],
                "down_proj.weight" | "down_proj" => &[("down", hidden)],
                "gate_up_proj" => &[("gate", ffn), ("up", ffn)],
                _ => return None,
            };
            let of = |expert| {
                projections.iter().map(move |(x, rows)| {
                    (
                        format!("{base}.mlp.experts.{expert}.{x}_proj.weight"),
                        *rows,
                    )
                })
            };
            Some((0..moe.num_experts).flat_map(of).collect())
        }
    }
}

/// Whether a Hugging Face tensor holds nothing the configuration does not already say: old
/// checkpoints store the rotary frequencies.
pub fn is_derived(hf: &str) -> bool {
    hf.ends_with(".rotary_emb.inv_freq")
}

/// Whether a Hugging Face tensor chooses among experts.
pub fn is_router(hf: &str) -> bool {
    hf.ends_with(".mlp.gate.weight")
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

/// Every tensor a model of this configuration has, with its shape (rows first), layer by layer: a
/// configuration may ask for more than would fit in memory.
pub fn expected_tensors(config: &ModelConfig) -> impl Iterator<Item = (String, Vec<usize>)> {
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
    let layers = 0..config.num_hidden_layers;
    out.into_iter()
        .chain(layers.flat_map(|layer| layer_tensors(config, layer)))
}

/// How many those are, without listing them.
pub fn num_expected_tensors(config: &ModelConfig) -> usize {
    // Layers differ in nothing but whether they have experts.
    let of = |experts: bool| {
        let mut layers = (0..config.num_hidden_layers)
            .filter(|&layer| config.experts(layer).is_some() == experts);
        let one = layers.next().map_or(0, |l| layer_tensors(config, l).len());
        one * (1 + layers.count())
    };
    let around = 2 + usize::from(!config.tie_word_embeddings);
    around + of(false) + of(true)
}

fn layer_tensors(config: &ModelConfig, layer: usize) -> Vec<(String, Vec<usize>)> {
    let mut out = Vec::new();
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
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_one_spelling() {
        let config = ModelConfig::default();
        assert!(hf_name("blk.1.ffn_up.bias", &config).is_some());
        for wrong in [
            "blk.01.ffn_up.bias",
            "blk.+1.ffn_up.bias",
            "blk.1.ffn_up.x",
            "blk.1.ffn_up.01.weight",
            "blk.1.attn_q.1.weight",
            "blk.1",
            "",
        ] {
            assert_eq!(hf_name(wrong, &config), None, "{wrong}");
        }
    }

    #[test]
    fn tensors_are_counted_as_they_are_listed() {
        let dense = ModelConfig {
            num_hidden_layers: 3,
            layers: vec![crate::config::LayerConfig::default(); 3],
            qk_norm: true,
            ..ModelConfig::default()
        };
        let mut mixed = ModelConfig {
            moe: Some(crate::config::MoeConfig {
                num_experts: 5,
                num_experts_per_tok: 2,
                moe_intermediate_size: 8,
                norm_topk_prob: true,
            }),
            tie_word_embeddings: true,
            ..dense.clone()
        };
        mixed.layers[1].moe = true;
        for config in [dense, mixed] {
            let listed = expected_tensors(&config).count();
            assert_eq!(num_expected_tensors(&config), listed);
        }
    }

    #[test]
    fn experts_have_one_name() {
        let mut config = ModelConfig::default();
        let old = hf_name("blk.2.ffn_down.7.weight", &config);
        assert_eq!(
            old.as_deref(),
            Some("model.layers.2.mlp.experts.7.down_proj.weight")
        );
        assert_eq!(
            canonical("model.layers.2.block_sparse_moe.experts.7.w2.weight"),
            "model.layers.2.mlp.experts.7.down_proj.weight"
        );
        config.moe = Some(crate::config::MoeConfig {
            num_experts: 2,
            num_experts_per_tok: 1,
            moe_intermediate_size: 5,
            norm_topk_prob: true,
        });
        let stacked = hf_name("blk.2.ffn_up_exps.weight", &config).unwrap_or_default();
        let parts = fused(&stacked, &config);
        let name = |e| format!("model.layers.2.mlp.experts.{e}.up_proj.weight");
        assert_eq!(parts, Some(vec![(name(0), 5), (name(1), 5)]));
        assert_eq!(fused(&name(0), &config), None);
    }
}
