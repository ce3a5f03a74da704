//! What distinguishes the families' files: their ends of generation, and what they may not ask for.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use support::{MemoryFiles, memory, message, patched, source};
use twoclock_core::config::{RopeParameters, RopeScaling};
use twoclock_core::weights::{Checkpoint, WeightsError};

/// A GGUF file ends generations by its ids of every kind, and by texts known to end them.
#[test]
fn every_end_of_a_file_is_known() {
    for family in [
        "llama",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "smollm3",
    ] {
        let path = format!("gguf_archs/{family}.gguf");
        let config = Checkpoint::from_gguf(source(&path)).unwrap().config;
        assert_eq!(config.eos_token_ids, [285, 287], "{family}");
        for kind in [b"eos", b"eot", b"eom"] {
            // Another id under a key of each kind; the texts stay known.
            let entry = |kind: &[u8; 3], id: u32| {
                let key = [b"tokenizer.ggml.", &kind[..], b"_token_id\x04\0\0\0"].concat();
                [key, id.to_le_bytes().to_vec()].concat()
            };
            let bytes = patched(&path, &entry(b"eos", 287), &entry(kind, 7));
            let config = Checkpoint::from_gguf(memory("file.gguf", bytes))
                .unwrap()
                .config;
            assert_eq!(config.eos_token_ids, [7, 285, 287], "{family} {kind:?}");
        }
        let ends = |from: &[u8], to: &[u8]| {
            let bytes = patched(&path, from, to);
            let checkpoint = Checkpoint::from_gguf(memory("file.gguf", bytes)).unwrap();
            checkpoint.config.eos_token_ids
        };
        let entry = |name: &str, id: u8| {
            let key = [b"tokenizer.ggml.", name.as_bytes(), b"_token_id"].concat();
            [&key[..], b"\x04\0\0\0", &[id, 1, 0, 0]].concat()
        };
        // 285 stays an end by its text.
        assert_eq!(
            ends(&entry("padding", 29), &entry("fim_pad", 5)),
            [261, 285, 287]
        );
        assert_eq!(ends(b"<|im_start|>", b"<|file_sep|>"), [285, 286, 287]);
        // An ordinary token of this text is markup.
        assert_eq!(
            ends(b"\x04\0\0\0\0\0\0\0hell", b"\x04\0\0\0\0\0\0\0</s>"),
            [285, 287]
        );
    }
}

/// Fields that would change what is computed are refused where they are not implemented.
#[test]
fn what_a_family_does_not_do_is_refused() {
    for (model, field, value, words) in [
        (
            "gemma3_text",
            "use_bidirectional_attention",
            true.into(),
            "true",
        ),
        (
            "gemma2",
            "layer_types",
            serde_json::json!(["x", "x", "x", "x"]),
            "\"x\"",
        ),
        (
            "gemma2",
            "layer_types",
            serde_json::json!(["full_attention"]),
            "1 long",
        ),
        (
            "gemma2",
            "hidden_activation",
            "gelu".into(),
            "gelu_pytorch_tanh",
        ),
        ("qwen2", "partial_rotary_factor", 0.5.into(), "whole heads"),
        ("phi3", "partial_rotary_factor", 1.5.into(), "at most 1"),
        (
            "phi3",
            "rope_scaling",
            serde_json::json!({"type": "linear", "factor": 2.0}),
            "longrope",
        ),
        (
            "phi3_longrope_short",
            "rope_scaling",
            serde_json::json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "8 short and long factors",
        ),
        (
            "mixtral",
            "num_local_experts",
            1_000_000.into(),
            "num_experts",
        ),
        ("mixtral", "num_experts_per_tok", 5.into(), "from 1 to 4"),
        ("qwen3_moe", "moe_intermediate_size", 48.into(), "[48, 64]"),
        ("qwen3_moe", "num_experts", 9.into(), "[9, 64]"),
        (
            "smollm3",
            "no_rope_layers",
            serde_json::json!([1]),
            "4 layers",
        ),
        ("mistral", "sliding_window", 0.into(), "sliding_window is 0"),
        (
            "qwen2",
            "rope_scaling",
            serde_json::json!({"rope_type": "dynamic"}),
            "yarn",
        ),
    ] {
        let mut files = MemoryFiles::of(&format!("models/{model}"));
        let mut config: serde_json::Value =
            serde_json::from_slice(&files.0["config.json"]).unwrap();
        config[field] = value;
        files
            .0
            .insert("config.json".into(), config.to_string().into_bytes());
        let message = message(Checkpoint::from_hf(&files));
        assert!(
            message.contains(words),
            "{model} {field}: {message:?} lacks {words:?}"
        );
    }
}

/// Early releases called by other names what they had.
#[test]
fn older_names_mean_the_same() {
    for (model, field, value) in [
        ("gemma", "hidden_act", serde_json::json!("gelu")),
        ("phi3_longrope_short", "type", serde_json::json!("su")),
        ("phi3_longrope_short", "type", serde_json::json!("yarn")),
    ] {
        let mut files = MemoryFiles::of(&format!("models/{model}"));
        let config = Checkpoint::from_hf(&files).unwrap().config;
        let mut older: serde_json::Value = serde_json::from_slice(&files.0["config.json"]).unwrap();
        let place = match field {
            "type" => &mut older["rope_scaling"],
            _ => &mut older,
        };
        assert!(place[field].is_string(), "{model} {field}");
        place[field] = value;
        files
            .0
            .insert("config.json".into(), older.to_string().into_bytes());
        let older = Checkpoint::from_hf(&files).unwrap().config;
        assert_eq!(older, config, "{model} {field}");
    }
}

/// Kinds of layers that are rotated differently have an embedding each, and are never given another's.
#[test]
fn one_rotation_for_all_layers_of_gemma3_is_refused() {
    let mut files = MemoryFiles::of("models/gemma3_text");
    let mut config: serde_json::Value = serde_json::from_slice(&files.0["config_v5.json"]).unwrap();
    config["rope_parameters"] = serde_json::json!({"rope_type": "linear", "factor": 8.0});
    files
        .0
        .insert("config.json".into(), config.to_string().into_bytes());
    let message = message(Checkpoint::from_hf(&files));
    assert!(message.contains("sliding_attention"), "{message}");
}

/// One place in a model may have several names in files, but no second tensor.
#[test]
fn a_tensor_under_two_names_is_refused() {
    let mut files = MemoryFiles::of("models/mixtral");
    let old = b"\"model.layers.0.block_sparse_moe.experts.1.w1.weight\"";
    let mut new = b"\"model.layers.0.mlp.experts.0.gate_proj.weight\"".to_vec();
    new.resize(old.len(), b' ');
    let path = "models/mixtral/model.safetensors";
    files
        .0
        .insert("model.safetensors".into(), patched(path, old, &new));
    let message = message(Checkpoint::from_hf(&files));
    assert!(message.contains("experts.0.gate_proj"), "{message}");
    assert!(message.contains("twice"), "{message}");
}

/// A golden GGUF file with further keys in front, each with its type and its value's bytes.
fn with_keys(path: &str, keys: &[(&str, u32, Vec<u8>)]) -> Result<Checkpoint, WeightsError> {
    let mut bytes = support::read(path);
    let mut pairs = Vec::new();
    let mut push = |key: &str, kind: u32, value: &[u8]| {
        pairs.extend((key.len() as u64).to_le_bytes());
        pairs.extend(key.as_bytes());
        pairs.extend(kind.to_le_bytes());
        pairs.extend(value);
        pairs.len()
    };
    let mut len = 0;
    for (key, kind, value) in keys {
        len = push(key, *kind, value);
    }
    // A text that keeps the tensors where alignment puts them.
    let rest = (8 + 1 + 4 + 8 + len).next_multiple_of(32) - (8 + 1 + 4 + 8 + len);
    push("x", 8, &text(&" ".repeat(rest)));
    let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + keys.len() as u64 + 1;
    bytes[16..24].copy_from_slice(&count.to_le_bytes());
    bytes.splice(24..24, pairs);
    Checkpoint::from_gguf(memory("file.gguf", bytes))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn float(value: f32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// The keys say what `config.json` does, and the factor of attention multiplies its scale.
#[test]
fn yarn_of_a_gguf_file_is_that_of_a_configuration() {
    let hf = Checkpoint::from_hf(&MemoryFiles::of("models/qwen2_yarn")).unwrap();
    let path = "gguf_archs/qwen2.gguf";
    let mut keys = vec![
        ("qwen2.rope.scaling.type", 8, text("yarn")),
        ("qwen2.rope.scaling.factor", 6, float(4.0)),
        (
            "qwen2.rope.scaling.original_context_length",
            4,
            32u32.to_le_bytes().to_vec(),
        ),
    ];
    assert_eq!(with_keys(path, &keys).unwrap().config.rope, hf.config.rope);
    keys.push(("qwen2.rope.scaling.attn_factor", 6, float(0.5)));
    let RopeParameters {
        scaling: RopeScaling::Yarn {
            attention_factor, ..
        },
        ..
    } = with_keys(path, &keys).unwrap().config.rope
    else {
        panic!("not yarn");
    };
    assert_eq!(attention_factor, 0.5 * (0.1 * 4f32.ln() + 1.0));
}

/// What a rotation asks for and does not bring, or brings and nothing would use.
#[test]
fn half_a_rotation_is_refused() {
    for (family, keys, words) in [
        (
            "phi3",
            vec![("phi3.rope.scaling.type", 8, text("longrope"))],
            "rope_factors_long",
        ),
        (
            "phi3",
            vec![("phi3.rope.scaling.attn_factor", 6, float(1.2))],
            "attn_factor is 1.2",
        ),
        (
            "llama",
            vec![
                ("llama.rope.scaling.type", 8, text("linear")),
                ("llama.rope.scaling.factor", 6, float(8.0)),
            ],
            "rotary divisors",
        ),
        (
            "llama",
            vec![("llama.rope.scaling.type", 8, text("dynamic"))],
            "dynamic",
        ),
        (
            "llama",
            vec![("llama.residual_scale", 6, float(0.2))],
            "residual_scale",
        ),
    ] {
        let path = format!("gguf_archs/{family}.gguf");
        let message = message(with_keys(&path, &keys));
        assert!(message.contains(words), "{message:?} lacks {words:?}");
    }
}
