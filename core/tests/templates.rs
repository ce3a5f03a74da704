//! Real models' chat templates against what transformers renders, to the last byte.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use support::{json, read};
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
