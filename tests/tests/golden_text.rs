//! SmolLM2's own file: its ids and its chat template against llama.cpp, to the last id and byte.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use twoclock_core::chat::ChatPrompt;
use twoclock_core::text::{ChatTemplate, Detokenizer, Tokenizer};
use twoclock_core::types::TokenId;
use twoclock_core::weights::Checkpoint;

/// The model's file, whole. Tests share one reading.
fn checkpoint() -> &'static Checkpoint {
    static CHECKPOINT: OnceLock<Checkpoint> = OnceLock::new();
    CHECKPOINT.get_or_init(|| {
        let path: PathBuf = std::env::var_os("TWOCLOCK_SMOLLM2")
            .expect(
                "set TWOCLOCK_SMOLLM2 to the path of SmolLM2-135M-Instruct.Q4_1.gguf; tests/run.sh does",
            )
            .into();
        let bytes =
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Checkpoint::from_gguf(Arc::new((name, bytes))).unwrap()
    })
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn the_configuration_is_the_files() {
    let checkpoint = checkpoint();
    let config = &checkpoint.config;
    assert_eq!(
        (
            config.vocab_size,
            config.hidden_size,
            config.intermediate_size,
            config.num_hidden_layers
        ),
        (49_152, 576, 1536, 30)
    );
    assert_eq!(
        (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim
        ),
        (9, 3, 64)
    );
    assert_eq!(config.rope.theta, 100_000.0);
    assert!(config.tie_word_embeddings);
    assert_eq!(config.eos_token_ids, [0, 2]);
    assert_eq!(checkpoint.metadata.parameters, 134_515_008);
    assert_eq!(checkpoint.metadata.license.as_deref(), Some("apache-2.0"));
    assert_eq!(checkpoint.tensors.len(), 272);
}

#[test]
fn every_prompt_has_llama_cpps_ids() {
    let tokenizer = Tokenizer::from_assets(&checkpoint().text).unwrap();
    let golden = golden();
    let prompts = golden["prompts"].as_array().unwrap();
    assert!(!prompts.is_empty());
    for prompt in prompts {
        let text = prompt["text"].as_str().unwrap();
        for (key, add_special, parse_special) in [
            ("ids", true, true),
            ("ids_no_special_no_parse", false, false),
            ("ids_add_special_no_parse", true, false),
        ] {
            let encoded = tokenizer.encode(text, add_special, parse_special).unwrap();
            assert_eq!(encoded, ids(&prompt[key]), "{key} of {}", prompt["name"]);
        }
        let plain = ids(&prompt["ids_no_special_no_parse"]);
        assert_eq!(tokenizer.decode(&plain, false).unwrap(), text);
    }
    let text = golden["perplexity"]["text"].as_str().unwrap();
    let encoded = tokenizer.encode(text, false, false).unwrap();
    assert_eq!(tokenizer.decode(&encoded, false).unwrap(), text);
}

#[test]
fn every_answer_is_detokenized_as_llama_cpp_does() {
    let tokenizer = Tokenizer::from_assets(&checkpoint().text).unwrap();
    let golden = golden();
    let mut answers = 0;
    for prompt in golden["prompts"].as_array().unwrap() {
        for run in prompt["greedy"].as_object().unwrap().values() {
            let (Some(text), ids) = (run["text"].as_str(), ids(&run["ids"])) else {
                continue;
            };
            let mut stream = Detokenizer::continuing(true);
            let mut streamed = String::new();
            for &id in &ids {
                streamed += &stream.push(&tokenizer, id);
            }
            streamed += &stream.finish();
            assert_eq!(streamed, tokenizer.decode(&ids, true).unwrap());
            // An answer cut off inside a character ends in llama.cpp's own way.
            let whole = streamed.trim_end_matches(char::REPLACEMENT_CHARACTER);
            assert!(
                text.starts_with(whole),
                "{}: {streamed:?} {text:?}",
                prompt["name"]
            );
            answers += 1;
        }
    }
    assert!(answers > 0);
}

#[test]
fn every_conversation_is_rendered_to_the_byte() {
    let template = ChatTemplate::from_assets(&checkpoint().text, None).unwrap();
    let tokenizer = Tokenizer::from_assets(&checkpoint().text).unwrap();
    let golden = golden();
    let cases = golden["chat_renderings"].as_object().unwrap();
    assert!(!cases.is_empty());
    for (name, case) in cases {
        let messages = &case["request"]["messages"];
        let none = serde_json::Map::new();
        let last = messages.as_array().and_then(|m| m.last()).unwrap();
        let text = if last["role"] == "assistant" {
            let messages = messages.as_array().unwrap();
            let continued = ChatPrompt::continuing(&template, messages, &none, &tokenizer);
            continued.unwrap().prompt.text
        } else {
            let add = &case["request"]["add_generation_prompt"];
            let rendered = template.render(messages, add.as_bool().unwrap_or(true), &none);
            rendered.unwrap()
        };
        assert_eq!(text, case["prompt"].as_str().unwrap(), "{name}");
    }
}
