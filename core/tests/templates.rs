//! Real models' chat templates against what transformers renders, to the last byte.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use support::{json, read};
use twoclock_core::chat::{ReasoningStyle, ToolStyle};
use twoclock_core::text::strftime::CivilTime;
use twoclock_core::text::{ChatTemplate, TextError};

/// 2025-01-15 12:30:45, when the reference was made.
const NOW: i64 = 1_736_944_245;

#[test]
fn every_conversation_is_rendered_as_transformers_does() {
    let golden = json("templates.json");
    let text = |key: &str| golden[key].as_str().map(str::to_owned);
    let mut templates = BTreeMap::new();
    let mut wrong = Vec::new();
    let (mut rendered, mut refused) = (0, 0);
    for result in golden["results"].as_array().unwrap() {
        let [name, case] = ["template", "case"].map(|key| result[key].as_str().unwrap());
        let template = templates.entry(name.to_owned()).or_insert_with(|| {
            let source = String::from_utf8(read(&format!("templates/{name}"))).unwrap();
            let now = CivilTime::from_seconds(NOW);
            let now: Arc<dyn Fn(&str) -> String + Send + Sync> =
                Arc::new(move |format| now.format(format));
            ChatTemplate::new(&source, text("bos_token"), text("eos_token"), Some(now))
                .unwrap_or_else(|e| panic!("{name}: {e}"))
        });
        let inputs = &golden["cases"][case];
        let mut extra: Map<String, Value> = inputs["extra"].as_object().unwrap().clone();
        if !inputs["tools"].is_null() {
            extra.insert("tools".to_owned(), inputs["tools"].clone());
        }
        let add = result["add_generation_prompt"].as_bool().unwrap();
        let got = template.render(&inputs["messages"], add, &extra);
        let error = &result["error"];
        let right = match (&got, result["output"].as_str()) {
            (Ok(got), Some(expected)) => got == expected,
            (Err(TextError::TemplateRefused(message)), None) => {
                error["raised_by_template"] == false || error["message"] == **message
            }
            // Where the reference itself fails, an answer and other words will do.
            (_, None) => error["raised_by_template"] == false,
            _ => false,
        };
        if !right {
            let expected = result["output"].as_str().unwrap_or_default();
            let got = got.unwrap_or_else(|e| format!("({e})"));
            let [got, expected] = from_where_they_part(&got, expected);
            wrong.push(format!(
                "{name} {case} {add}: {got:?}, not {expected:?} {error}"
            ));
        }
        rendered += usize::from(result["output"].is_string());
        refused += usize::from(error["raised_by_template"] == true);
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    assert_eq!((templates.len(), rendered, refused), (51, 1820, 28));
}

#[test]
fn a_long_conversation_is_rendered_by_every_template() {
    let golden = json("templates.json");
    let content = "It was a dark and stormy night; ".repeat(30);
    let messages: Vec<Value> = (0..300)
        .map(|n| {
            let role = if n % 2 == 0 { "user" } else { "assistant" };
            serde_json::json!({"role": role, "content": content})
        })
        .collect();
    for name in golden["template_sha256"].as_object().unwrap().keys() {
        let source = String::from_utf8(read(&format!("templates/{name}"))).unwrap();
        let now: Arc<dyn Fn(&str) -> String + Send + Sync> = Arc::new(str::to_owned);
        let token = || Some("<s>".to_owned());
        let template = ChatTemplate::new(&source, token(), token(), Some(now)).unwrap();
        match template.render(&messages, true, &Map::new()) {
            Ok(text) => assert!(text.len() > 100 * content.len(), "{name}: {}", text.len()),
            // Some want variables that are not there.
            Err(e) => assert!(!e.to_string().contains("fuel"), "{name}: {e}"),
        }
    }
}

/// Some characters of each from the first that differs on.
fn from_where_they_part(a: &str, b: &str) -> [String; 2] {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    [a, b].map(|text| {
        text.chars()
            .skip(same.saturating_sub(20))
            .take(80)
            .collect()
    })
}

/// Which calls and thoughts a template teaches.
#[test]
fn templates_tell_how_tools_are_called() {
    let golden = json("templates.json");
    let mut found = BTreeMap::new();
    for name in golden["template_sha256"].as_object().unwrap().keys() {
        let source = String::from_utf8(read(&format!("templates/{name}"))).unwrap();
        let template = ChatTemplate::new(&source, None, None, None).unwrap();
        if let Some(style) = ToolStyle::of_template(&template) {
            let thoughts = ReasoningStyle::of_template(&template);
            let name = name.strip_suffix(".jinja").unwrap().to_owned();
            found.insert(name, (style, thoughts));
        }
    }
    let (think, mistral) = (
        Some(ReasoningStyle::Think),
        Some(ReasoningStyle::MistralThink),
    );
    let expected = [
        ("Bielik-11B-v3.0-Instruct", ToolStyle::Hermes, think),
        ("GLM-4.7-Flash", ToolStyle::Glm, think),
        ("MiMo-VL", ToolStyle::Hermes, None),
        (
            "Mistral-Small-3.2-24B-Instruct-2506",
            ToolStyle::MistralArgs,
            None,
        ),
        (
            "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            ToolStyle::Qwen3Coder,
            think,
        ),
        (
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
            ToolStyle::Hermes,
            None,
        ),
        ("Qwen-QwQ-32B", ToolStyle::Hermes, think),
        ("Qwen-Qwen2.5-7B-Instruct", ToolStyle::Hermes, None),
        ("Qwen-Qwen3-0.6B", ToolStyle::Hermes, think),
        ("Qwen3-Coder", ToolStyle::Qwen3Coder, None),
        ("Reka-Edge", ToolStyle::Hermes, think),
        ("Spark2.5", ToolStyle::Glm, think),
        ("ibm-granite-granite-4.1", ToolStyle::Hermes, None),
        ("inclusionai-ling-3.0-flash", ToolStyle::Glm, think),
        ("poolside-Laguna-S-2.1", ToolStyle::Glm, think),
        ("poolside-Laguna-XS.2", ToolStyle::Glm, think),
        ("meta-llama-Llama-3.1-8B-Instruct", ToolStyle::Llama3, None),
        ("meta-llama-Llama-3.2-3B-Instruct", ToolStyle::Llama3, None),
        (
            "mistralai-Ministral-3-14B-Reasoning-2512",
            ToolStyle::MistralArgs,
            mistral,
        ),
        (
            "unsloth-mistral-Devstral-Small-2507",
            ToolStyle::MistralArgs,
            None,
        ),
    ];
    let expected = expected.map(|(name, style, thoughts)| (name.to_owned(), (style, thoughts)));
    assert_eq!(found, BTreeMap::from(expected));
    let old = "{% if tools %}[AVAILABLE_TOOLS]{{ tools }}{% endif %}{{ '[TOOL_CALLS] [' }}";
    let old = ChatTemplate::new(old, None, None, None).unwrap();
    assert_eq!(ToolStyle::of_template(&old), Some(ToolStyle::Mistral));
}
