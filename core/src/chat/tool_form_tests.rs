//! The forms of answers that call, held against texts that have them and texts that do not.

use super::*;
use crate::sample::grammar::{GrammarCompiler, TokenText};
use crate::text::Tokenizer;
use crate::types::{StructuredOutput, TokenMask};
use serde_json::{Value, json};

const EOS: u32 = 256;
/// The first id that the golden tokenizer leaves free.
const FIRST_SPECIAL: u32 = 288;

pub(super) fn tokenizer(special: &[&str]) -> Tokenizer {
    let golden = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
    let mut whole: Value = serde_json::from_slice(golden).unwrap();
    let added = whole["added_tokens"].as_array_mut().unwrap();
    for (n, mark) in special.iter().enumerate() {
        let mut token = added[0].clone();
        token["id"] = json!(FIRST_SPECIAL as usize + n);
        token["content"] = json!(mark);
        added.push(token);
    }
    Tokenizer::from_json(whole.to_string().as_bytes(), None, None).unwrap()
}

fn tools() -> Vec<Tool> {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"], "additionalProperties": false, "$defs": {"n": {"type": "integer"}}});
    let tool = |name: &str, parameters| Tool {
        name: name.to_owned(),
        parameters,
    };
    vec![tool("add", Some(schema)), tool("now", None)]
}

pub(super) fn format(style: ToolStyle, reasoning: Option<bool>, parallel: bool) -> AnswerFormat {
    AnswerFormat {
        reasoning: reasoning.map(|is_open| Reasoning {
            style: ReasoningStyle::Think,
            is_open,
        }),
        tools: Some(OfferedTools {
            style,
            tools: tools().into(),
            parallel,
        }),
    }
}

/// Whether an answer has the form, byte by byte; ids from [`FIRST_SPECIAL`] on are special.
pub(super) fn has_form(form: &StructuredOutput, answer: &str, special: &[&str]) -> bool {
    let bytes: Vec<u8> = (0..=255).collect();
    let token = |id: u32| TokenText {
        bytes: match id {
            0..256 => &bytes[id as usize..=id as usize],
            256 => b"<eos>",
            FIRST_SPECIAL.. => special
                .get((id - FIRST_SPECIAL) as usize)
                .map_or(b"", |mark| mark.as_bytes()),
            _ => b"",
        },
        special: id >= 256,
    };
    let compiler = GrammarCompiler::new(310, &[EOS], token).unwrap();
    let mut matcher = compiler.compile(form).unwrap();
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        let mark = special
            .iter()
            .position(|mark| rest.starts_with(mark.as_bytes()));
        let (id, length) = match mark {
            Some(n) => (FIRST_SPECIAL + n as u32, special[n].len()),
            None => (u32::from(rest[0]), 1),
        };
        if matcher.is_complete() {
            return false;
        }
        let mask = TokenMask::new(matcher.mask().unwrap());
        if !mask.allows(id) {
            return false;
        }
        matcher.accept(id).unwrap();
        rest = &rest[length..];
    }
    matcher.is_complete() || matcher.accepts().unwrap()
}

fn form(format: &AnswerFormat, choice: &ToolChoice, special: &[&str]) -> StructuredOutput {
    let form = form_of_answer(&tools(), choice, format, None, &tokenizer(special));
    form.unwrap().unwrap()
}

#[test]
fn each_style_is_enforced_and_read_back() {
    let cases: [(ToolStyle, &[&str], &str); 6] = [
        (
            ToolStyle::Qwen3Coder,
            &[],
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        ),
        (
            ToolStyle::Hermes,
            &[],
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        ),
        (
            ToolStyle::Glm,
            &["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
            "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>\n<tool_call>now</tool_call>",
        ),
        (
            ToolStyle::Llama3,
            &["<|python_tag|>"],
            "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"now\", \"parameters\": {}}",
        ),
        (
            ToolStyle::Mistral,
            &["[TOOL_CALLS]"],
            "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"now\", \"arguments\": {}}]",
        ),
        (
            ToolStyle::MistralArgs,
            &["[TOOL_CALLS]", "[ARGS]"],
            "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]now[ARGS]{}",
        ),
    ];
    let named = ToolChoice::Named("add".to_owned());
    for (style, special, two) in cases {
        let several = format(style, None, true);
        let required = form(&several, &ToolChoice::Required, special);
        assert!(has_form(&required, two, special), "{required:?}");
        let parts = AnswerParts::of(&several, two);
        assert_eq!(
            (parts.tool_calls.len(), &*parts.content),
            (2, ""),
            "{style:?}"
        );
        assert!(!has_form(&required, "Hi", special));
        assert!(!has_form(&required, &two.replace("add", "sub"), special));
        assert!(!has_form(&required, &two.replace('1', "\"1\""), special));
        assert!(!has_form(&form(&several, &named, special), two, special));
        let one = form(&format(style, None, false), &ToolChoice::Required, special);
        assert!(!has_form(&one, two, special), "{style:?}");
    }
    let auto = ToolChoice::Auto;
    let hermes = format(ToolStyle::Hermes, None, true);
    assert_eq!(
        form_of_answer(&tools(), &auto, &hermes, None, &tokenizer(&[])),
        Ok(None)
    );
    assert_eq!(
        form_of_answer(
            &tools(),
            &auto,
            &AnswerFormat::default(),
            None,
            &tokenizer(&[])
        ),
        Ok(None)
    );
}

#[test]
fn values_between_tags_are_held_to_what_they_may_be() {
    let schema = json!({"type": "object", "required": ["text", "one"], "properties": {
        "text": {"type": "string"}, "one": {"enum": ["a", "b"]}, "list": {"type": "array", "items": {"type": "integer"}}}});
    let tool = Tool {
        name: "f".to_owned(),
        parameters: Some(schema),
    };
    let format = format(ToolStyle::Qwen3Coder, None, false);
    let required = ToolChoice::Required;
    let form = form_of_answer(&[tool], &required, &format, None, &tokenizer(&[]));
    let form = form.unwrap().unwrap();
    let of = |arguments: &[(&str, &str)]| {
        let mut text = "<tool_call>\n<function=f>\n".to_owned();
        for (key, value) in arguments {
            text += &format!("<parameter={key}>\n{value}\n</parameter>\n");
        }
        has_form(&form, &(text + "</function>\n</tool_call>"), &[])
    };
    assert!(of(&[
        ("text", "a\n<b>\"\n"),
        ("one", "b"),
        ("list", "[1, 2]")
    ]));
    assert!(of(&[("text", ""), ("one", "a")]));
    assert!(!of(&[("text", "x"), ("one", "c")]));
    assert!(!of(&[("text", "x"), ("one", "a"), ("list", "[\"1\"]")]));
    assert!(!of(&[("one", "a"), ("text", "x")]));
}

#[test]
fn thoughts_may_come_first_and_an_answer_instead() {
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let otherwise = json!({"type": "object", "properties": {"b": {"type": "boolean"}},
        "required": ["b"], "additionalProperties": false});
    let of = |is_open, special: &[&str]| {
        let format = format(ToolStyle::Hermes, Some(is_open), true);
        let auto = ToolChoice::Auto;
        let tokenizer = tokenizer(special);
        let form = form_of_answer(&tools(), &auto, &format, Some(&otherwise), &tokenizer);
        form.unwrap().unwrap()
    };
    let specials: [&[&str]; 2] = [&[], &["<think>", "</think>"]];
    for special in specials {
        let (open, closed) = (of(true, special), of(false, special));
        for end in [call, "{\"b\": true}"] {
            let thought = format!("I {{think}} so.\n</think>\n\n{end}");
            assert!(
                has_form(&open, &thought, special),
                "{special:?} {thought} {open:?}"
            );
            assert!(!has_form(&open, end, special));
            assert!(has_form(&closed, &format!("<think>{thought}"), special));
            assert!(has_form(&closed, end, special));
            assert!(!has_form(&closed, &thought, special));
        }
        assert!(!has_form(&closed, "{\"b\": 1}", special));
    }
    // Without tools the form alone is left.
    let only = format(ToolStyle::Hermes, Some(true), true);
    let none = ToolChoice::None;
    let only = form_of_answer(&tools(), &none, &only, Some(&otherwise), &tokenizer(&[]));
    let only = only.unwrap().unwrap();
    assert!(has_form(&only, "So.</think>{\"b\": true}", &[]));
    assert!(!has_form(&only, &format!("So.</think>{call}"), &[]));
}
