//! The golden checkpoints, read from both formats: configurations, shapes, bytes, and errors that
//! name what is wrong.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use support::{MemoryFiles, memory, message, patched, read, source};
use twoclock_core::config::{RopePairing, RopeScaling, TokenizerAsset};
use twoclock_core::weights::checkpoint::Format;
use twoclock_core::weights::{Checkpoint, DType};

#[test]
fn gguf_files_of_every_type_are_read() {
    for dtype in DType::ALL {
        let checkpoint = Checkpoint::from_gguf(source(&format!("gguf/{dtype}.gguf"))).unwrap();
        let config = &checkpoint.config;
        assert_eq!(
            (
                config.vocab_size,
                config.hidden_size,
                config.intermediate_size,
                config.num_hidden_layers,
                config.num_attention_heads,
                config.num_key_value_heads,
                config.head_dim,
                config.max_position_embeddings,
            ),
            (288, 256, 256, 1, 8, 2, 32, 512)
        );
        assert_eq!(config.rms_norm_eps, 1e-5);
        assert_eq!(config.rope.theta, 10_000.0);
        assert_eq!(config.rope.scaling, RopeScaling::None);
        assert_eq!(config.rope_pairing, RopePairing::Interleaved);
        assert!(
            config.tie_word_embeddings && !config.qkv_bias && !config.o_bias && !config.mlp_bias
        );
        // The file names <|endoftext|> only; <|im_end|> is known by its text.
        assert_eq!(config.eos_token_ids, [285, 287]);
        assert_eq!(
            checkpoint.metadata.format,
            Format::Gguf {
                version: 3,
                parts: 1
            }
        );
        assert_eq!(checkpoint.metadata.name, Some(format!("tiny-{dtype}")));

        let k = checkpoint
            .tensor("model.layers.0.self_attn.k_proj.weight")
            .unwrap();
        assert_eq!((k.dtype, k.shape.as_slice()), (dtype, &[64, 256][..]));
        assert_eq!((k.rows(), k.cols()), (64, 256));
        let all = k.read_rows(0..64).unwrap();
        assert_eq!(all.len(), 64 * dtype.row_bytes(256).unwrap());
        assert_eq!(
            k.read_rows(3..5).unwrap(),
            all[all.len() / 64 * 3..all.len() / 64 * 5]
        );
        let past = k.read_rows(60..65).unwrap_err().to_string();
        assert!(past.contains("60..65") && past.contains("k_proj"), "{past}");
        let norm = checkpoint.tensor("model.norm.weight").unwrap();
        assert_eq!(norm.read_f32().unwrap().len(), 256);
        assert!(
            matches!(&checkpoint.text.tokenizer, Some(TokenizerAsset::Vocabulary(v)) if v.tokens.len() == 288)
        );
    }
}

/// The same weights by two routes: the converter permutes q and k only, and turns Llama 3's rope
/// scaling into divisors.
#[test]
fn gguf_and_safetensors_of_one_model_agree() {
    let gguf = Checkpoint::from_gguf(source("gguf_archs/llama.gguf")).unwrap();
    let hf = Checkpoint::from_hf(&MemoryFiles::of("models/llama")).unwrap();
    assert_eq!(hf.metadata.format, Format::Safetensors { shards: 2 });
    assert_eq!(hf.metadata.parameters, 188_992);
    assert_eq!(gguf.metadata.parameters, hf.metadata.parameters);
    assert!(gguf.tensors.keys().eq(hf.tensors.keys()));
    for (name, a) in &gguf.tensors {
        let b = hf.tensor(name).unwrap();
        assert_eq!(a.shape, b.shape, "{name}");
        let (mut a, mut b) = (a.read_f32().unwrap(), b.read_f32().unwrap());
        if name.contains("q_proj") || name.contains("k_proj") {
            a.sort_by(f32::total_cmp);
            b.sort_by(f32::total_cmp);
        }
        assert!(a == b, "{name}");
    }
    let RopeScaling::Factors(factors) = &gguf.config.rope.scaling else {
        panic!("{:?}", gguf.config.rope.scaling);
    };
    let RopeScaling::Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings,
    } = hf.config.rope.scaling
    else {
        panic!("{:?}", hf.config.rope.scaling);
    };
    for (i, found) in factors.iter().enumerate() {
        let wavelength = 2.0 * std::f32::consts::PI * hf.config.rope.theta.powf(i as f32 / 8.0);
        let smooth = (original_max_position_embeddings as f32 / wavelength - low_freq_factor)
            / (high_freq_factor - low_freq_factor);
        let expected = 1.0 / ((1.0 - smooth.clamp(0.0, 1.0)) / factor + smooth.clamp(0.0, 1.0));
        assert!(
            (found - expected).abs() < 1e-5 * expected,
            "{i}: {found} {expected}"
        );
    }
    let mut config = hf.config.clone();
    config.rope.scaling = gguf.config.rope.scaling.clone();
    config.rope_pairing = RopePairing::Interleaved;
    // The GGUF file carries another tokenizer, and its ends.
    config.eos_token_ids.clone_from(&gguf.config.eos_token_ids);
    assert_eq!(config, gguf.config);
}

#[test]
fn both_forms_of_a_configuration_are_one() {
    for (name, biases, tied) in [
        ("llama", false, false),
        ("llama_bias", true, false),
        ("llama_tied_linear", false, true),
    ] {
        let mut files = MemoryFiles::of(&format!("models/{name}"));
        let hub = Checkpoint::from_hf(&files).unwrap();
        assert_eq!([hub.config.qkv_bias, hub.config.o_bias], [biases; 2]);
        assert_eq!(hub.config.mlp_bias, biases);
        assert_eq!(hub.config.tie_word_embeddings, tied);
        assert_eq!(hub.config.eos_token_ids, [2]);
        assert_eq!(hub.config.bos_token_id, Some(1));
        let v5 = files.0["config_v5.json"].clone();
        files.0.insert("config.json".into(), v5);
        files.0.insert(
            "generation_config.json".into(),
            br#"{"eos_token_id":[2,7]}"#.to_vec(),
        );
        let mut v5 = Checkpoint::from_hf(&files).unwrap().config;
        files.0.insert(
            "generation_config.json".into(),
            br#"{"eos_token_id":[2,999999]}"#.to_vec(),
        );
        let said = message(Checkpoint::from_hf(&files));
        assert!(
            said.contains("generation_config.json: eos_token_id is 999999"),
            "{said}"
        );
        assert_eq!(v5.eos_token_ids, [2, 7]);
        v5.eos_token_ids = vec![2];
        assert_eq!(hub.config, v5);
    }
    let linear = Checkpoint::from_hf(&MemoryFiles::of("models/llama_tied_linear")).unwrap();
    assert_eq!(
        linear.config.rope.scaling,
        RopeScaling::Linear { factor: 2.0 }
    );
    assert_eq!(linear.config.head_dim, 16);
}

#[test]
fn a_configuration_that_cannot_be_run_says_why() {
    let files = MemoryFiles::of("models/llama");
    let with = |field: &str, value: serde_json::Value| {
        let mut files = files.clone();
        let mut config: serde_json::Value =
            serde_json::from_slice(&files.0["config.json"]).unwrap();
        config[field] = value;
        files
            .0
            .insert("config.json".into(), config.to_string().into_bytes());
        message(Checkpoint::from_hf(&files))
    };
    for (field, value, words) in [
        (
            "model_type",
            "mamba".into(),
            ["model_type", "\"mamba\"", "llama"],
        ),
        (
            "num_hidden_layers",
            0.into(),
            ["num_hidden_layers", "0", "1 to"],
        ),
        (
            "num_key_value_heads",
            3.into(),
            ["num_key_value_heads", "3", "divisor"],
        ),
        ("hidden_size", (-4).into(), ["hidden_size", "-4", "count"]),
        // Who wrote the file can add it, and who took it finds it where the model is.
        (
            "hidden_size",
            serde_json::Value::Null,
            ["hidden_size is missing", "add it", "published"],
        ),
        (
            "vocab_size",
            (u64::MAX).into(),
            ["vocab_size", "18446744073709551615", "1 to"],
        ),
        ("head_dim", 32.into(), ["q_proj", "[64, 64]", "[128, 64]"]),
        (
            "attention_bias",
            true.into(),
            ["q_proj.bias", "missing", "incomplete"],
        ),
        (
            "hidden_act",
            "gelu".into(),
            ["hidden_act", "\"gelu\"", "silu"],
        ),
        ("eos_token_id", 320.into(), ["token id", "320", "320"]),
        ("rms_norm_eps", 0.into(), ["rms_norm_eps", "0", "above"]),
        (
            "rope_scaling",
            serde_json::json!({"rope_type": "dynamic", "factor": 2.0}),
            ["rope_scaling.rope_type", "\"dynamic\"", "llama3"],
        ),
        (
            "quantization_config",
            serde_json::json!({"quant_method": "gptq"}),
            ["quantization_config", "gptq", "GGUF"],
        ),
    ] {
        let message = with(field, value);
        for word in words {
            assert!(
                message.contains(word),
                "{field}: {message:?} lacks {word:?}"
            );
        }
    }
    let mut files = files.clone();
    files.0.remove("model-00002-of-00002.safetensors");
    let message = message(Checkpoint::from_hf(&files));
    assert!(
        message.contains("model-00002-of-00002.safetensors"),
        "{message}"
    );
}

#[test]
fn an_index_does_not_leave_its_directory() {
    let mut files = MemoryFiles::of("models/llama");
    let index = String::from_utf8(files.0["model.safetensors.index.json"].clone()).unwrap();
    for outside in ["../model", "/etc/model", "a\\\\model", "..", ""] {
        let index = index.replace("model-00002-of-00002.safetensors", outside);
        files
            .0
            .insert("model.safetensors.index.json".into(), index.into_bytes());
        let message = message(Checkpoint::from_hf(&files));
        assert!(message.contains("plain file name"), "{message}");
    }
}

#[test]
fn a_gguf_file_that_cannot_be_run_says_why() {
    let q4 = "gguf/Q4_0.gguf";
    let of = |bytes| message(Checkpoint::from_gguf(memory("file.gguf", bytes)));

    let message = of(b"GG".to_vec());
    let short = "the magic is 4 bytes long, but only 2 bytes follow";
    assert!(message.contains(short), "{message}");
    let message = of(patched(q4, b"GGUF", b"GGML"));
    assert!(
        message.contains("file.gguf") && message.contains("magic"),
        "{message}"
    );
    let message = of(patched(q4, b"GGUF\x03\0\0\0", b"GGUF\x01\0\0\0"));
    assert!(message.contains("version is 1"), "{message}");
    let message = of(patched(q4, b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03"));
    assert!(message.contains("big-endian"), "{message}");
    let message = of(patched(
        q4,
        b"\x05\0\0\0\0\0\0\0llama",
        b"\x05\0\0\0\0\0\0\0llamb",
    ));
    assert!(
        message.contains("general.architecture") && message.contains("llamb"),
        "{message}"
    );
    let message = of(patched(q4, b"ffn_gate.weight", b"ffn_gatf.weight"));
    assert!(message.contains("blk.0.ffn_gatf.weight"), "{message}");
    let message = of(patched(q4, b"blk.0.ffn_up.weight", b"blk.1.ffn_up.weight"));
    assert!(
        message.contains("model.layers.0.mlp.up_proj.weight"),
        "{message}"
    );
    // Two dimensions, 256 and 256, then the type: Q4_0 is 2; the smaller IQ2_XXS is 16.
    let entry = |ty: u8| {
        let mut entry = b"blk.0.attn_q.weight\x02\0\0\0".to_vec();
        entry.extend(256_u64.to_le_bytes());
        entry.extend(256_u64.to_le_bytes());
        entry.push(ty);
        entry
    };
    let message = of(patched(q4, &entry(2), &entry(16)));
    assert!(
        message.contains("blk.0.attn_q.weight") && message.contains("IQ2_XXS"),
        "{message}"
    );
    let mut cut = read(q4);
    cut.truncate(cut.len() - 64);
    let message = of(cut);
    assert!(message.contains("download it again"), "{message}");
}
