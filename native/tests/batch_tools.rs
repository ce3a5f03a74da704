//! Tools and thoughts in a batch: calls that are demanded come out as calls, whatever the weights.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

mod batch_scene;

use std::fs;
use std::path::Path;

use batch_scene::{answers, batch, chat, requests, scene, succeeded};
use serde_json::{Value, json};

/// Calls as Hermes has them.
const TEMPLATE: &str = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}\
    {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \
    \"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}";
/// Every answer begins inside thoughts, which end with `</think>`.
const THINKING: &str = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}";

/// Gives the model another template.
fn teach(home: &Path, template: &str) {
    let config = home.join("model/tokenizer_config.json");
    let mut read: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    read["chat_template"] = json!(template);
    fs::write(&config, read.to_string()).unwrap();
}

#[test]
fn a_form_that_is_no_json_is_all_of_the_answer_also_behind_an_opened_thought() {
    let home = scene();
    teach(home.path(), THINKING);
    let form = json!({"guided_choice": ["yes", "no"]});
    requests(home.path(), &[chat("form", form), chat("free", json!({}))]);
    succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    let answers = answers(home.path().join("out.jsonl"));
    let message = |id: &str| answers[id]["body"]["choices"][0]["message"].clone();
    let form = message("form");
    assert!(
        matches!(form["content"].as_str(), Some("yes" | "no")),
        "{form}"
    );
    assert!(form.get("reasoning_content").is_none(), "{form}");
    let free = message("free");
    assert_eq!(free["content"], "");
    assert!(!free["reasoning_content"].as_str().unwrap().is_empty());
}

#[test]
fn demanded_calls_come_out_as_calls() {
    let home = scene();
    teach(home.path(), TEMPLATE);
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
        "additionalProperties": false, "x-guidance": {"whitespace_flexible": false}});
    let tool = |name: &str| {
        let function = json!({"name": name, "parameters": schema});
        json!({"type": "function", "function": function})
    };
    let tools = json!([tool("add"), tool("sub")]);
    let named = json!({"type": "function", "function": {"name": "sub"}});
    let line = |id: &str, more: Value| {
        let mut whole = json!({"tools": tools, "max_tokens": 250, "parallel_tool_calls": false});
        for (name, value) in more.as_object().unwrap() {
            whole[name] = value.clone();
        }
        chat(id, whole)
    };
    let call = json!({"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}});
    let talk = json!([{"role": "user", "content": "the"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "cat"}]);
    requests(
        home.path(),
        &[
            line("required", json!({"tool_choice": "required"})),
            line(
                "named",
                json!({"tool_choice": named, "messages": talk, "tools": [tool("sub")]}),
            ),
            line("none", json!({"tool_choice": "none", "max_tokens": 4})),
            line(
                "wrong",
                json!({"messages": [{"role": "assistant",
                "tool_calls": [{"function": {"name": "add", "arguments": "["}}]}]}),
            ),
        ],
    );
    succeeded(batch(home.path(), "out.jsonl", &[]).output().unwrap());
    let answers = answers(home.path().join("out.jsonl"));
    for (id, names) in [("required", &["add", "sub"][..]), ("named", &["sub"])] {
        let choice = &answers[id]["body"]["choices"][0];
        let message = &choice["message"];
        let calls = message["tool_calls"].as_array().unwrap();
        assert_eq!(
            (calls.len(), &choice["finish_reason"]),
            (1, &json!("tool_calls")),
            "{choice} {}",
            answers[id]["body"]["usage"]
        );
        assert!(message["content"].is_null(), "{choice}");
        let function = &calls[0]["function"];
        assert!(
            names.contains(&function["name"].as_str().unwrap()),
            "{choice}"
        );
        let arguments: Value =
            serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert!(matches!(arguments["a"].as_u64(), Some(1 | 2)), "{choice}");
        assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    }
    let none = &answers["none"]["body"]["choices"][0]["message"];
    assert!(
        none["content"].is_string() && none.get("tool_calls").is_none(),
        "{none}"
    );
    let wrong = &answers["wrong"]["body"]["error"];
    assert_eq!(wrong["param"], "messages");
    assert!(
        wrong["message"]
            .as_str()
            .unwrap()
            .contains("tool_calls[0].function.arguments")
    );
}
