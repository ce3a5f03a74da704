//! `/openapi.json`: what the server takes and gives, for programs.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::{Value, json};

use super::whole;

/// The description, without the version.
const TEXT: &str = include_str!("openapi.json");

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let mut description: Value =
        serde_json::from_str(TEXT).expect("a test reads the description that is built in");
    description["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    description
});

/// `/openapi.json`.
pub async fn openapi() -> Response {
    whole::json(&DESCRIPTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::as_chat;
    use crate::openai::embeddings::AskedEmbeddings;
    use crate::openai::fields::asked_for;
    use crate::openai::tokens::{Detokenized, Tokenized};
    use crate::openai::{Asked, Echoed, Endpoint, Serving, responses};
    use crate::serve::paths::PATHS;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use twoclock_core::text::{ChatTemplate, Tokenizer};
    use twoclock_core::types::{PoolingParams, SamplingParams};
    use twoclock_core::weights::GenerationDefaults;

    /// Every `$ref` in a value.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn defaults_are_those_of_the_engine() {
        let engine = SamplingParams::default();
        for name in ["ChatRequest", "CompletionRequest"] {
            let default = |field: &str| {
                let fields = &DESCRIPTION["components"]["schemas"][name]["properties"];
                fields[field]["default"].as_f64().unwrap()
            };
            // OpenAI's: the engine's own is to draw nothing.
            assert_eq!(default("temperature"), 1.0);
            for (field, own) in [
                ("top_p", engine.top_p),
                ("top_k", engine.top_k as f32),
                ("min_p", engine.min_p),
                ("repetition_penalty", engine.repetition_penalty),
                ("presence_penalty", engine.presence_penalty),
                ("frequency_penalty", engine.frequency_penalty),
                ("n", engine.n as f32),
                ("min_tokens", engine.min_tokens as f32),
            ] {
                assert_eq!(default(field), f64::from(own), "{name}: {field}");
            }
        }
    }

    #[test]
    fn bounds_are_those_of_the_engine() {
        let bounds = |schema: &str, field: &str| {
            let field = &DESCRIPTION["components"]["schemas"][schema]["properties"][field];
            (field["minimum"].clone(), field["maximum"].clone())
        };
        for name in ["ChatRequest", "CompletionRequest"] {
            let answers = (json!(1), json!(SamplingParams::MAX_ANSWERS));
            assert_eq!(bounds(name, "n"), answers, "{name}");
        }
        let most = SamplingParams::MAX_PRIORITY;
        for name in ["ChatRequest", "CompletionRequest", "EmbeddingRequest"] {
            assert_eq!(
                bounds(name, "priority"),
                (json!(-most), json!(most)),
                "{name}"
            );
        }
    }

    /// What `read` asks a body for stands among the properties of the schema of this name.
    fn holds(schema: &str, read: impl FnOnce()) {
        let known = &DESCRIPTION["components"]["schemas"][schema]["properties"];
        let asked = asked_for::by(read);
        assert!(!asked.is_empty(), "{schema}");
        let left_out: Vec<_> = asked
            .iter()
            .filter(|name| known.get(name).is_none())
            .collect();
        assert!(left_out.is_empty(), "{schema}: {left_out:?}");
    }

    #[test]
    fn every_field_that_is_read_is_described() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer/tokenizer.json");
        let tokenizer = Tokenizer::from_json(&fs::read(file).unwrap(), None, None).unwrap();
        let template = ChatTemplate::new("{{ messages[0].content }}", None, None, None).unwrap();
        let serving = Serving {
            tokenizer: &tokenizer,
            template: Some(&template),
            defaults: &GenerationDefaults::default(),
            max_model_len: 64,
            max_prompt_bytes: None,
            heeds_priority: false,
        };
        let messages = json!([{"role": "user", "content": "a"}]);
        let chat = json!({"messages": messages, "max_tokens": 1});
        let text = json!({"prompt": "a", "return_token_strs": true});
        holds("ChatRequest", || {
            Asked::read(Endpoint::Chat, &chat, &serving, 0).unwrap();
        });
        holds("CompletionRequest", || {
            Asked::read(Endpoint::Completions, &text, &serving, 0).unwrap();
        });
        holds("EmbeddingRequest", || {
            AskedEmbeddings::read(&json!({"input": "a"}), PoolingParams::default(), false).unwrap();
        });
        holds("TokenizeRequest", || {
            Tokenized::read(&text, &serving).unwrap();
            Tokenized::read(&chat, &serving).unwrap();
        });
        holds("DetokenizeRequest", || {
            Detokenized::read(&json!({"tokens": [1]}), &serving).unwrap();
        });
        holds("ResponseRequest", || {
            let body = json!({"input": "a"});
            responses::as_chat(&body).unwrap();
            Echoed::of(&body).unwrap();
        });
        holds("MessageRequest", || {
            as_chat(&chat, false).unwrap();
        });
        holds("CountRequest", || {
            as_chat(&chat, true).unwrap();
        });
    }

    #[test]
    fn every_path_is_described_and_every_reference_leads_somewhere() {
        let paths = DESCRIPTION["paths"].as_object().unwrap();
        let paths: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        assert_eq!(paths, PATHS.into_iter().collect());
        let mut found = BTreeSet::new();
        references(&DESCRIPTION, &mut found);
        assert!(found.len() > 10);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(DESCRIPTION.pointer(pointer).is_some(), "{reference}");
        }
    }
}
