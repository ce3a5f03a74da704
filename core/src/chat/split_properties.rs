//! What holds for any answer, however it is cut into pieces.

use super::split_tests::format;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

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
            "<function=add>",
            "<parameter=city>",
            "</parameter>",
            "</function>",
            "<arg_key>a</arg_key>",
            "<arg_value>",
            "</arg_value>",
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
            // Its values are no JSON.
            ToolStyle::Qwen3Coder | ToolStyle::Glm => return Ok(()),
        };
        let parts = AnswerParts::of(&format(Some(style), None, true), &text);
        prop_assert_eq!(&parts.content, "");
        prop_assert_eq!(parts.tool_calls.len(), 1);
        prop_assert_eq!(&parts.tool_calls[0].arguments, &written);
    }

    #[test]
    fn a_text_between_tags_comes_back_as_it_was_written(value in "(?s:.{0,12})") {
        let text = format!(
            "<tool_call>\n<function=add>\n<parameter=city>\n{value}\n</parameter>\n</function>\n</tool_call>"
        );
        let parts = AnswerParts::of(&format(Some(ToolStyle::Qwen3Coder), None, true), &text);
        prop_assert_eq!(&parts.content, "");
        let written = json!({"city": value}).to_string().replacen("\":", "\": ", 1);
        prop_assert_eq!(&parts.tool_calls[0].arguments, &written);
    }
}
