//! Conversations that end in an answer begun, of templates that think and of those that do not.

use super::tool_form_tests::tokenizer;
use super::*;
use crate::text::ChatTemplate;
use serde_json::{Map, Value, json};

const PLAIN: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";
/// Takes thoughts out of turns that are over.
const THINKING: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";
const OPENING: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]<think>\n{% endif %}";

const CLOSED: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }};{% endfor %}\
    {% if add_generation_prompt %}[assistant]<think>\n\n</think>\n\n{% endif %}";

fn continued(source: &str, last: Value) -> Result<ChatPrompt, ChatPromptError> {
    let template = ChatTemplate::new(source, None, None, None).unwrap();
    let messages = [json!({"role": "user", "content": "Count"}), last];
    ChatPrompt::continuing(&template, &messages, &Map::new(), &tokenizer(&["<end>"]))
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
    let inline = "<think>\nhm\n</think>\n\n1,";
    for (source, last, text, reasoning) in [
        (OPENING, answer("1,"), "<think>\n\n</think>\n\n1,", None),
        (OPENING, answer(""), "<think>\n", open),
        (OPENING, thought("1,"), inline, None),
        (OPENING, thought(""), "<think>\nhm", open),
        (OPENING, answer("<think>\nhm"), "<think>\nhm", open),
        (OPENING, answer(inline), inline, None),
        (THINKING, thought("1,"), inline, None),
        (THINKING, thought(""), "<think>\nhm", open),
        (THINKING, answer("<think>\nhm"), "<think>\nhm", open),
        (THINKING, answer(inline), inline, None),
        (
            THINKING,
            answer("<think>hm</think>"),
            "<think>\nhm\n</think>\n\n",
            None,
        ),
        // A block that says there are none makes room for those there are.
        (CLOSED, answer("1,"), "<think>\n\n</think>\n\n1,", None),
        (CLOSED, thought("1,"), inline, None),
        (CLOSED, thought(""), "<think>\nhm", open),
    ] {
        let continued = continued(source, last.clone()).unwrap();
        let whole = format!("[user]Count;[assistant]{text}");
        assert_eq!(continued.prompt.text, whole, "{last} of {source}");
        assert_eq!(continued.reasoning, reasoning, "{last} of {source}");
        assert_eq!(continued.has_begun, text.contains("</think>"), "{last}");
    }
    let refused = continued(PLAIN, thought("1,"));
    assert!(matches!(refused, Err(ChatPromptError::NoThoughts)));
}

/// An empty block that only closes is no block, and what a user writes of one stays theirs.
#[test]
fn marks_in_what_a_user_says_are_no_block() {
    const ONLY_CLOSES: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}\
        {% if add_generation_prompt %}[assistant]</think>{% endif %}";
    let last = json!({"role": "assistant", "content": "1,", "reasoning_content": "hm"});
    for (source, opened) in [
        (ONLY_CLOSES, "[assistant]</think>"),
        (CLOSED, "[assistant]"),
    ] {
        let template = ChatTemplate::new(source, None, None, None).unwrap();
        let asked = "What is <think>, what <end>?";
        let messages = [json!({"role": "user", "content": asked}), last.clone()];
        let special = tokenizer(&["<end>", "<think>"]);
        let continued = ChatPrompt::continuing(&template, &messages, &Map::new(), &special);
        let prompt = continued.unwrap().prompt;
        let whole = format!("[user]{asked};{opened}<think>\nhm\n</think>\n\n1,");
        assert_eq!(prompt.text, whole, "{source}");
        let literal = prompt.literal.iter().map(|range| &whole[range.clone()]);
        assert_eq!(
            literal.collect::<Vec<_>>(),
            ["<think>", "<end>"],
            "{source}"
        );
    }
}

#[test]
fn marks_that_are_special_tokens_are_meant_only_around_thoughts() {
    let source = "{{ '[/THINK]' if false }}{% if add_generation_prompt %}>{% endif %}";
    let template = ChatTemplate::new(source, None, None, None).unwrap();
    let special = tokenizer(&["[THINK]", "[/THINK]"]);
    let last = [answer("[THINK]a[THINK]b")];
    let continued = ChatPrompt::continuing(&template, &last, &Map::new(), &special).unwrap();
    assert_eq!(continued.prompt.text, ">[THINK]a[THINK]b");
    assert_eq!(continued.prompt.literal, std::slice::from_ref(&(9..16)));
    assert!(
        continued
            .reasoning
            .is_some_and(|reasoning| reasoning.is_open)
    );
}

#[test]
fn what_is_no_answer_of_text_is_refused() {
    for last in [
        json!({"role": "user", "content": "1,"}),
        json!({"role": "assistant", "content": ["1,"]}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}),
    ] {
        let refused = continued(PLAIN, last.clone());
        assert!(
            matches!(refused, Err(ChatPromptError::NoAnswerBegun(_))),
            "{last}"
        );
    }
    let template = ChatTemplate::new(PLAIN, None, None, None).unwrap();
    assert!(ChatPrompt::continuing(&template, &[], &Map::new(), &tokenizer(&[])).is_err());
}
