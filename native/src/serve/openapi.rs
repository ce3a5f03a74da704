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
    use crate::serve::app::PATHS;
    use std::collections::BTreeSet;
    use twoclock_core::types::SamplingParams;

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
