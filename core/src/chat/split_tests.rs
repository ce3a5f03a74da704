//! Answers of every style, whole and in pieces.

use super::*;
use serde_json::json;

use super::Tool;

fn tool(name: &str) -> Tool {
    let members = json!({"city": {"type": "string"}, "a": {"type": "integer"}});
    Tool {
        name: name.to_owned(),
        parameters: Some(json!({"type": "object", "properties": members})),
    }
}

pub(super) fn format(
    style: Option<ToolStyle>,
    reasoning: Option<bool>,
    parallel: bool,
) -> AnswerFormat {
    AnswerFormat {
        reasoning: reasoning.map(|is_open| Reasoning {
            style: ReasoningStyle::Think,
            is_open,
        }),
        tools: style.map(|style| OfferedTools {
            style,
            tools: ["add", "get_weather"].map(tool).into(),
            parallel,
        }),
    }
}

/// Thoughts, content, and calls as `name(arguments)`.
fn parts(format: &AnswerFormat, text: &str) -> (String, String, Vec<String>) {
    let parts = AnswerParts::of(format, text);
    let calls = parts.tool_calls.iter();
    let calls = calls.map(|call| format!("{}({})", call.name, call.arguments));
    (parts.reasoning, parts.content, calls.collect())
}

fn check(format: &AnswerFormat, text: &str, thoughts: &str, content: &str, calls: &[&str]) {
    let (got_thoughts, got_content, got_calls) = parts(format, text);
    assert_eq!(got_thoughts, thoughts, "thoughts of {text:?}");
    assert_eq!(got_content, content, "content of {text:?}");
    assert_eq!(got_calls, calls, "calls of {text:?}");
}

#[test]
fn calls_of_hermes() {
    let hermes = format(Some(ToolStyle::Hermes), None, true);
    let check = |text: &str, content: &str, calls: &[&str]| {
        check(&hermes, text, "", content, calls);
    };
    check(
        "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"}<\\\"\"}}\n</tool_call>",
        "I look.",
        &["get_weather({\"city\": \"}<\\\"\"})"],
    );
    check(
        "<tool_call>{\"arguments\":{\"a\":[1,-2.5e3]},\"id\":7,\"name\":\"add\"}</tool_call>\n<tool_call>\n{\"name\":\"add\"}\n</tool_call>\n",
        "",
        &["add({\"a\":[1,-2.5e3]})", "add({})"],
    );
    // Arguments as a text, and none.
    check(
        "<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call><tool_call>{\"name\":\"add\",\"arguments\":null}</tool_call>",
        "",
        &["add({\"a\":1})", "add({})"],
    );
    // Without the closing mark; with text behind; cut inside.
    check(
        "<tool_call>{\"name\":\"add\",\"arguments\":{}} Done. <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":",
        "Done.",
        &["add({})", "add({\"a\":)"],
    );
    // A line end inside a text, which JSON wants escaped.
    check(
        "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
        "",
        &["add({\"a\":\"x\\ny\"})"],
    );
    for no_call in [
        "<tool_call>",
        "a <tool_call> b",
        "<tool_call>{'name': 'add'}</tool_call>",
        "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
        "<tool_call>{\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
        "<tool_call>{\"name\":1,\"arguments\":{}}</tool_call>",
        "<tool_call>{\"name\":\"add\",\"arguments\":[1]}</tool_call>",
        "<tool_call>{\"name\":\"add\",\"arguments\":\"no\"}</tool_call>",
        "<tool_call>{\"name\":\"add\",\"more\":{}}</tool_call>",
        "<tool_call>{\"name\":\"add\"",
        " <tool_cal",
        "  text  ",
        "{\"name\":\"add\",\"arguments\":{}}",
    ] {
        check(no_call, no_call, &[]);
    }
    check(
        "<tool_call>oops<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>",
        "<tool_call>oops",
        &["add({})"],
    );
}

#[test]
fn calls_of_llama() {
    let llama = format(Some(ToolStyle::Llama3), None, true);
    let check = |text: &str, content: &str, calls: &[&str]| {
        check(&llama, text, "", content, calls);
    };
    check(
        "\n{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"type\":\"function\",\"name\": \"add\", \"parameters\": {}}",
        "",
        &["add({\"a\": 1})", "add({})"],
    );
    check(
        "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
        "",
        &["add({\"a\": 1})"],
    );
    for no_call in [
        "<|python_tag|>print(1)",
        "{\"answer\": 1}",
        "{\"name\": \"Ann\", \"age\": 3}",
        "The call is {\"name\": \"add\", \"parameters\": {}}",
        "{}",
        "{",
    ] {
        check(no_call, no_call, &[]);
    }
}

#[test]
fn calls_of_mistral() {
    let old = format(Some(ToolStyle::Mistral), None, true);
    check(
        &old,
        "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, {\"name\": \"add\", \"arguments\": {}}]",
        "",
        "",
        &["add({\"a\": 1})", "add({})"],
    );
    for no_call in [
        "[TOOL_CALLS][]",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][{}]",
        "[1, 2]",
    ] {
        check(&old, no_call, "", no_call, &[]);
    }
    let new = format(Some(ToolStyle::MistralArgs), None, true);
    check(
        &new,
        "Yes.[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{}[TOOL_CALLS]add{}",
        "",
        "Yes.",
        &["add({\"a\": 1})", "get_weather({})", "add({})"],
    );
    for no_call in [
        "[TOOL_CALLS]other[ARGS]{}",
        "[TOOL_CALLS]add[ARGS]",
        "[TOOL_CALLS]add[MORE]{}",
        "[TOOL_CALLS]add!",
    ] {
        check(&new, no_call, "", no_call, &[]);
    }
}

#[test]
fn thoughts_are_apart() {
    let both = |is_open| format(Some(ToolStyle::Hermes), Some(is_open), true);
    check(
        &both(false),
        "<think>\nSo.\n</think>\n\nYes",
        "So.",
        "Yes",
        &[],
    );
    check(
        &both(true),
        "\nSo <b>.\n</think>\n\nYes </think>",
        "So <b>.",
        "Yes </think>",
        &[],
    );
    check(
        &both(false),
        " No <think>x</think>",
        "",
        " No <think>x</think>",
        &[],
    );
    check(&both(true), "cut <", "cut <", "", &[]);
    check(&both(false), "<thin", "", "<thin", &[]);
    check(
        &both(true),
        "<tool_call></think><tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>",
        "<tool_call>",
        "",
        &["add({})"],
    );
    let llama = format(Some(ToolStyle::Llama3), Some(false), true);
    check(
        &llama,
        "<think>x</think>\n{\"name\":\"add\",\"parameters\":{}}",
        "x",
        "",
        &["add({})"],
    );
    check(&format(None, Some(true), true), "a</think>b", "a", "b", &[]);
    check(
        &AnswerFormat::default(),
        "<think>a</think> b",
        "",
        "<think>a</think> b",
        &[],
    );
}

#[test]
fn calls_of_qwen3_coder() {
    let coder = format(Some(ToolStyle::Qwen3Coder), None, true);
    let check = |text: &str, content: &str, calls: &[&str]| {
        check(&coder, text, "", content, calls);
    };
    check(
        "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n\"</p>\n\n</parameter>\n\
         <parameter=a>\n7\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n</function>\n\
         </tool_call>",
        "I look.",
        &[
            "get_weather({\"city\": \"12\\n\\\"</p>\\n\", \"a\": 7})",
            "add({})",
        ],
    );
    // As JSON, as its relatives write.
    check(
        "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
        "",
        &["add({})"],
    );
    // No tool, no tag, and a call that is cut or goes on in another way.
    for none in [
        "<tool_call>\n<function=sub>\n</function>",
        "<tool_call>\n<func>",
        "<tool_call>\n<function=add",
        "<function=add></function>",
    ] {
        check(none, none, &[]);
    }
    check("<tool_call><function=add>", "", &["add({)"]);
    check("<tool_call><function=add>\nNo.", "No.", &["add({)"]);
    check(
        "<tool_call><function=add><parameter=a>1</parameter><parameter=city>x",
        "",
        &["add({\"a\": 1)"],
    );
    let only = format(Some(ToolStyle::Qwen3Coder), None, false);
    let call = "<tool_call><function=add></function></tool_call>";
    assert_eq!(parts(&only, &[call, call].concat()).2, ["add({})"]);
}

#[test]
fn calls_of_glm() {
    let glm = format(Some(ToolStyle::Glm), None, true);
    let check = |text: &str, content: &str, calls: &[&str]| {
        check(&glm, text, "", content, calls);
    };
    check(
        "So.<tool_call>get_weather<arg_key>city</arg_key><arg_value>12\n</arg_value></tool_call>\n<tool_call>add\n\
         <arg_key>a</arg_key>\n<arg_value>-1</arg_value>\n</tool_call><tool_call>add</tool_call>",
        "So.",
        &[
            "get_weather({\"city\": \"12\\n\"})",
            "add({\"a\": -1})",
            "add({})",
        ],
    );
    for none in [
        "<tool_call>sub<arg_key>a</arg_key>",
        "<tool_call>add",
        "<tool_call>add more</tool_call>",
    ] {
        check(none, none, &[]);
    }
    check("<tool_call>add<b>", "<b>", &["add({)"]);
}

#[test]
fn what_follows_the_only_call_allowed_is_not_told() {
    let object = "{\"name\":\"add\",\"arguments\":{}}";
    for (style, two) in [
        (
            ToolStyle::Hermes,
            format!("<tool_call>{object}</tool_call>\n<tool_call>{object}</tool_call> So."),
        ),
        (ToolStyle::Llama3, format!("{object}; {object}")),
        (
            ToolStyle::Mistral,
            format!("[TOOL_CALLS][{object}, {object}] So."),
        ),
        (
            ToolStyle::MistralArgs,
            "[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]add[ARGS]{}".to_owned(),
        ),
    ] {
        let one = format(Some(style), None, false);
        check(&one, &two, "", "", &["add({})"]);
        let mut splitter = AnswerSplitter::new(one);
        splitter.push(&two[..two.find('}').unwrap()]);
        assert!(!splitter.is_over(), "{style:?}");
        splitter.push(&two[two.find('}').unwrap()..]);
        assert!(splitter.is_over(), "{style:?}");
        let mut several = AnswerSplitter::new(format(Some(style), None, true));
        several.push(&two);
        assert!(!several.is_over(), "{style:?}");
    }
}

#[test]
fn a_call_is_told_before_it_is_whole() {
    let mut splitter = AnswerSplitter::new(format(Some(ToolStyle::Hermes), None, true));
    assert_eq!(
        splitter.push("Hm <tool_"),
        [AnswerEvent::Content("Hm".into())]
    );
    assert_eq!(splitter.push("call>{\"name\": \"add\", \"arg"), []);
    let name = "add".to_owned();
    let arguments = |text: &str| AnswerEvent::Arguments {
        index: 0,
        text: text.to_owned(),
    };
    let begun = AnswerEvent::ToolCallBegun { index: 0, name };
    assert_eq!(splitter.push("uments\": {\"a"), [begun, arguments("{\"a")]);
    assert_eq!(splitter.push("\": 1"), [arguments("\": 1")]);
    let ended = AnswerEvent::ToolCallEnded { index: 0 };
    assert_eq!(splitter.push("}}"), [arguments("}"), ended]);
    assert_eq!(splitter.push("</tool_call>"), []);
    assert_eq!(splitter.finish(), []);
}
