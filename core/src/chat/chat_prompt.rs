//! The prompt that has a model go on with an answer begun, where a conversation ends in one. Owns where the answer's
//! text stands in it; knows no protocol.

use serde_json::{Map, Value};

use super::answer::Reasoning;
use super::tool_style::ReasoningStyle;
use crate::text::{ChatTemplate, RenderedPrompt, TextError, Tokenizer};

/// A prompt that ends inside an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The prompt.
    pub prompt: RenderedPrompt,
    /// The thoughts the rest of the answer may begin with: none where something is said already.
    pub reasoning: Option<Reasoning>,
}

impl Continuation {
    /// The template opens an answer to the messages before the last, whose thoughts (`reasoning_content`) and text
    /// follow: llama.cpp's server does so whenever a conversation ends in an answer. Where the template opens thoughts
    /// with it and something is said, they are closed first.
    ///
    /// # Errors
    /// The template's and the tokenizer's, and [`TextError::NoAnswerBegun`] where the last message is no answer made
    /// of text.
    pub fn of(
        template: &ChatTemplate,
        messages: &[Value],
        extra: &Map<String, Value>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TextError> {
        let (before, thoughts, said) = last_answer(messages).ok_or(TextError::NoAnswerBegun)?;
        let mut prompt = template.render_prompt(before, true, extra, tokenizer)?;
        let mut reasoning = Reasoning::of_prompt(template, &prompt.text);
        let style = ReasoningStyle::of_template(template);
        let is_open = reasoning.is_some_and(|reasoning| reasoning.is_open);
        if let Some(style) = style.filter(|_| is_open || !thoughts.is_empty()) {
            if !is_open && !thoughts.is_empty() {
                prompt.text.push_str(style.opening());
                prompt.text.push('\n');
            }
            prompt.push_literal(thoughts, tokenizer)?;
            reasoning = Some(Reasoning {
                style,
                is_open: true,
            });
            if !said.is_empty() {
                prompt.text.push('\n');
                prompt.text.push_str(style.closing());
                prompt.text.push_str("\n\n");
            }
        }
        prompt.push_literal(said, tokenizer)?;
        if !said.is_empty() {
            reasoning = style
                .filter(|style| opens(said, *style))
                .map(|style| Reasoning {
                    style,
                    is_open: true,
                });
        }
        Ok(Self { prompt, reasoning })
    }
}

/// What comes before the last message, and the thoughts and text of that, where it is an answer without calls.
fn last_answer(messages: &[Value]) -> Option<(&[Value], &str, &str)> {
    let (last, before) = messages.split_last()?;
    let text = |name: &str| match last.get(name) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    };
    let is_answer = last.get("role")?.as_str()? == "assistant";
    let calls = last.get("tool_calls").and_then(Value::as_array);
    let calls_none = calls.is_none_or(Vec::is_empty);
    let (thoughts, said) = (text("reasoning_content")?, text("content")?);
    (is_answer && calls_none).then_some((before, thoughts, said))
}

/// Whether a text ends inside thoughts that it opens itself.
fn opens(text: &str, style: ReasoningStyle) -> bool {
    let opened = text.rfind(style.opening());
    opened.is_some_and(|at| !text[at..].contains(style.closing()))
}
