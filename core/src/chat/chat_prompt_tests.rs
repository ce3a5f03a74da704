//! Conversations that end in an answer begun, of templates that think and of those that do not.

use super::tool_form_tests::tokenizer;
use super::*;
use crate::text::{ChatTemplate, TextError};
use serde_json::{Map, Value, json};

const PLAIN: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";
/// Takes thoughts out of turns that are over.
const THINKING: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";
const OPENING: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]<think>\n{% endif %}";

fn continued(source: &str, last: Value) -> Result<Continuation, TextError> {
    let template = ChatTemplate::new(source, None, None, None).unwrap();
    let messages = [json!({"role": "user", "content": "Count"}), last];
    Continuation::of(&template, &messages, &Map::new(), &tokenizer(&["<end>"]))
}

fn answer(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

#[test]
fn the_text_follows_what_opens_an_answer() {
    let plain = continued(PLAIN, answer("1, 2,")).unwrap();
    assert_eq!(plain.prompt.text, "[user]Count;[assistant]1, 2,");
    assert_eq!(plain.reasoning, None);
    let thinking = continued(THINKING, answer("1, 2,")).unwrap();
    assert_eq!(thinking.prompt.text, plain.prompt.text);
    assert_eq!(thinking.reasoning, None);
}

#[test]
fn special_tokens_that_it_spells_are_text() {
    let plain = continued(PLAIN, answer("a<end>b")).unwrap();
    let text = &plain.prompt.text;
    let literal: Vec<&str> = plain
        .prompt
        .literal
        .iter()
        .map(|range| &text[range.clone()])
        .collect();
    assert_eq!(literal, ["<end>"]);
}

#[test]
fn thoughts_are_closed_before_what_is_said() {
    let open = Some(Reasoning {
        style: ReasoningStyle::Think,
        is_open: true,
    });
    let thought =
        |content: &str| json!({"role": "assistant", "content": content, "reasoning_content": "hm"});
    for (source, last, text, reasoning) in [
        (OPENING, answer("1,"), "<think>\n\n</think>\n\n1,", None),
        (OPENING, answer(""), "<think>\n", open),
        (OPENING, thought("1,"), "<think>\nhm\n</think>\n\n1,", None),
        (OPENING, thought(""), "<think>\nhm", open),
        (THINKING, thought("1,"), "<think>\nhm\n</think>\n\n1,", None),
        (THINKING, thought(""), "<think>\nhm", open),
        (THINKING, answer("<think>\nhm"), "<think>\nhm", open),
        (
            THINKING,
            answer("<think>\nhm\n</think>\n1,"),
            "<think>\nhm\n</think>\n1,",
            None,
        ),
    ] {
        let continued = continued(source, last.clone()).unwrap();
        assert_eq!(
            continued.prompt.text,
            format!("[user]Count;[assistant]{text}"),
            "{last}"
        );
        assert_eq!(continued.reasoning, reasoning, "{last}");
    }
}

#[test]
fn what_is_no_answer_of_text_is_refused() {
    for last in [
        json!({"role": "user", "content": "1,"}),
        json!({"role": "assistant", "content": ["1,"]}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}),
    ] {
        let refused = continued(PLAIN, last.clone());
        assert!(matches!(refused, Err(TextError::NoAnswerBegun)), "{last}");
    }
    let template = ChatTemplate::new(PLAIN, None, None, None).unwrap();
    assert!(Continuation::of(&template, &[], &Map::new(), &tokenizer(&[])).is_err());
}
