//! Answers of every style, whole and in pieces.

use std::sync::Arc;

use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn format(style: Option<ToolStyle>, reasoning: Option<bool>, parallel: bool) -> AnswerFormat {
    AnswerFormat {
        reasoning: reasoning.map(|is_open| Reasoning {
            style: ReasoningStyle::Think,
            is_open,
        }),
        tools: style.map(|style| OfferedTools {
            style,
            names: Arc::from(["add".to_owned(), "get_weather".to_owned()]),
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

/// The pieces of marks and calls, and what is near them.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "<|python_tag|>",
            "[TOOL_CALLS]",
            "[ARGS]",
            "[CALL_ID]",
            "{\"name\": \"add\", \"arguments\": {\"a\": \"x\\\"}\"}}",
            "{\"name\":\"add\",\"parameters\":{}}",
            "{\"arguments\": {}, \"name\": \"add\"}",
            "{\"name\": \"",
            "add",
            "\"",
            "{",
            "}",
            "[",
            "]",
            ",",
            ";",
            " ",
            "\n",
            "<",
            "é",
            "\\",
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ]
}

fn any_format() -> impl Strategy<Value = AnswerFormat> {
    let style = prop::option::of(prop::sample::select(ToolStyle::ALL.to_vec()));
    (style, any::<Option<bool>>(), any::<bool>()).prop_map(|(style, r, p)| format(style, r, p))
}

/// Events with neighbours of a kind joined.
fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut all: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(AnswerEvent::Content(a)), AnswerEvent::Content(b))
            | (Some(AnswerEvent::Reasoning(a)), AnswerEvent::Reasoning(b))
            | (
                Some(AnswerEvent::Arguments { text: a, .. }),
                AnswerEvent::Arguments { text: b, .. },
            ) => a.push_str(&b),
            (_, event) => all.push(event),
        }
    }
    all
}

proptest! {
    #[test]
    fn however_it_is_cut_the_parts_are_the_same(
        format in any_format(),
        fragments in prop::collection::vec(fragment(), 0..14),
        cuts in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let text = fragments.concat();
        let mut whole = AnswerSplitter::new(format.clone());
        let mut expected = whole.push(&text);
        expected.extend(whole.finish());
        let mut splitter = AnswerSplitter::new(format);
        let mut events = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        let (mut rest, mut cuts) = (chars.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            events.extend(splitter.push(&piece.iter().collect::<String>()));
            rest = after;
        }
        events.extend(splitter.finish());
        prop_assert_eq!(joined(events), joined(expected));
    }

    #[test]
    fn nothing_is_lost(
        format in any_format(),
        fragments in prop::collection::vec(fragment(), 0..14),
    ) {
        let text = fragments.concat();
        let parts = AnswerParts::of(&format, &text);
        let is_word = |c: &char| c.is_alphanumeric();
        let num = |text: &str| text.chars().filter(is_word).count();
        // What goes besides marks: the names around a call's parts.
        let shown = num(&parts.content) + num(&parts.reasoning);
        if parts.tool_calls.is_empty() {
            let marks = ["<think>", "</think>"];
            let think: usize = match parts.reasoning.is_empty() && format.reasoning.is_none() {
                true => 0,
                false => marks.iter().map(|m| num(m)).sum(),
            };
            prop_assert!(shown + think >= num(&text), "{:?} of {:?}", parts, text);
        }
        for call in &parts.tool_calls {
            let opens = call.arguments.starts_with('{');
            prop_assert!(opens, "{}", call.arguments);
        }
    }

    #[test]
    fn a_call_comes_back_as_it_was_written(
        arguments in prop::collection::vec((".{0,6}", ".{0,8}"), 0..4),
        style in prop::sample::select(ToolStyle::ALL.to_vec()),
        pretty: bool,
    ) {
        let arguments: serde_json::Map<String, Value> = arguments
            .into_iter()
            .map(|(key, value)| (key, Value::from(value)))
            .collect();
        let written = match pretty {
            true => serde_json::to_string_pretty(&arguments).unwrap(),
            false => serde_json::to_string(&arguments).unwrap(),
        };
        let text = match style {
            ToolStyle::Hermes => format!(
                "<tool_call>\n{{\"name\": \"add\", \"arguments\": {written}}}\n</tool_call>"
            ),
            ToolStyle::Llama3 => format!("{{\"name\": \"add\", \"parameters\": {written}}}"),
            ToolStyle::Mistral => {
                format!("[TOOL_CALLS][{{\"name\": \"add\", \"arguments\": {written}}}]")
            }
            ToolStyle::MistralArgs => format!("[TOOL_CALLS]add[ARGS]{written}"),
        };
        let parts = AnswerParts::of(&format(Some(style), None, true), &text);
        prop_assert_eq!(&parts.content, "");
        prop_assert_eq!(parts.tool_calls.len(), 1);
        prop_assert_eq!(&parts.tool_calls[0].arguments, &written);
    }
}
