//! The prompt of a conversation, and how the answer to it begins: anew, or behind what the last message has begun.
//! Knows no protocol.

use serde_json::{Map, Value};
use thiserror::Error;

use super::answer::Reasoning;
use super::tool_style::ReasoningStyle;
use crate::text::{ChatTemplate, RenderedPrompt, TextError, Tokenizer};

/// A prompt and the thoughts that what follows it may begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// The prompt.
    pub prompt: RenderedPrompt,
    /// None where the model does not think, or something is said already.
    pub reasoning: Option<Reasoning>,
    /// The answer's text has begun in the prompt.
    pub has_begun: bool,
}

/// Why there is no prompt.
#[derive(Debug, Error)]
pub enum ChatPromptError {
    /// The template refuses the conversation or fails on it.
    #[error(transparent)]
    Text(#[from] TextError),
    /// There is nothing to go on with.
    #[error("only an assistant's message made of text can be continued, and the last one {0}")]
    NoAnswerBegun(&'static str),
    /// The template has no way to write what the last message thinks.
    #[error(
        "this model's chat template writes no thoughts, so those of the last message cannot be continued"
    )]
    NoThoughts,
}

impl ChatPrompt {
    /// The template's prompt of these messages, which opens an answer if that is wished.
    ///
    /// # Errors
    /// The template's and the tokenizer's.
    pub fn of(
        template: &ChatTemplate,
        messages: &[Value],
        begins_answer: bool,
        extra: &Map<String, Value>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ChatPromptError> {
        let prompt = template.render_prompt(messages, begins_answer, extra, tokenizer)?;
        Ok(Self {
            reasoning: Reasoning::of_prompt(template, &prompt.text),
            prompt,
            has_begun: false,
        })
    }

    /// The prompt that has a model go on with the last message: the template opens an answer to those before it, and
    /// its thoughts (`reasoning_content`, or what stands between their marks at its beginning) and its text follow.
    /// llama.cpp's server does so whenever a conversation ends in an answer. Thoughts that the template opens or leaves
    /// out by an empty block are the message's.
    ///
    /// # Errors
    /// The template's and the tokenizer's; a last message that is no answer of text, or thinks where the template
    /// cannot say so.
    pub fn continuing(
        template: &ChatTemplate,
        messages: &[Value],
        extra: &Map<String, Value>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ChatPromptError> {
        let (before, last) = match messages.split_last() {
            Some((last, before)) => (before, Begun::of(last)?),
            None => return Err(ChatPromptError::NoAnswerBegun("is not there")),
        };
        let mut opened = Self::of(template, before, true, extra, tokenizer)?;
        opened.has_begun = !last.said.is_empty();
        match ReasoningStyle::of_template(template) {
            Some(style) => opened.go_on(&last.apart(style), style, tokenizer)?,
            None if last.thoughts.is_empty() => opened.prompt.push_literal(last.said, tokenizer)?,
            None => return Err(ChatPromptError::NoThoughts),
        }
        Ok(opened)
    }

    fn go_on(
        &mut self,
        last: &Begun<'_>,
        style: ReasoningStyle,
        tokenizer: &Tokenizer,
    ) -> Result<(), TextError> {
        let prompt = &mut self.prompt;
        let mut is_open = self.reasoning.is_some_and(|reasoning| reasoning.is_open);
        if !last.thoughts.is_empty() && !is_open {
            if let Some(end) = empty_block(&prompt.text, style) {
                prompt.truncate(end);
            }
            prompt.text += style.opening();
            prompt.text += style.line_end();
            is_open = true;
        }
        prompt.push_literal(last.thoughts, tokenizer)?;
        if is_open && last.is_past_thoughts() {
            prompt.text += style.line_end();
            prompt.text += style.closing();
            prompt.text += style.line_end();
            prompt.text += style.line_end();
            is_open = false;
        }
        prompt.push_literal(last.said, tokenizer)?;
        self.has_begun = last.is_past_thoughts();
        self.reasoning = match self.has_begun {
            true => None,
            false => Some(Reasoning { style, is_open }),
        };
        Ok(())
    }
}

/// Where the block without thoughts begins that a prompt ends with, if it ends with one. Marks elsewhere in it are
/// somebody's words.
fn empty_block(prompt: &str, style: ReasoningStyle) -> Option<usize> {
    let inside = prompt.trim_end().strip_suffix(style.closing())?;
    let before = inside.trim_end().strip_suffix(style.opening())?;
    Some(before.len())
}

/// An answer begun.
struct Begun<'a> {
    thoughts: &'a str,
    said: &'a str,
    /// Its thoughts are over though it says nothing yet.
    has_closed: bool,
}

impl<'a> Begun<'a> {
    /// What a message has begun.
    fn of(message: &'a Value) -> Result<Self, ChatPromptError> {
        let text = |name: &str, why| match message.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(ChatPromptError::NoAnswerBegun(why)),
        };
        if message.get("role").and_then(Value::as_str) != Some("assistant") {
            return Err(ChatPromptError::NoAnswerBegun("is not an assistant's"));
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        if calls.is_some_and(|calls| !calls.is_empty()) {
            return Err(ChatPromptError::NoAnswerBegun("calls tools"));
        }
        Ok(Self {
            thoughts: text("reasoning_content", "has thoughts that are no text")?,
            said: text("content", "has content that is no text")?,
            has_closed: false,
        })
    }

    /// The same with the thoughts at the beginning of its text told apart, where they are not already.
    fn apart(self, style: ReasoningStyle) -> Self {
        let opened = self.said.trim_start().strip_prefix(style.opening());
        let Some(inside) = opened.filter(|_| self.thoughts.is_empty()) else {
            return self;
        };
        match inside.split_once(style.closing()) {
            Some((thoughts, said)) => Self {
                thoughts: thoughts.trim(),
                said: said.trim_start(),
                has_closed: true,
            },
            None => Self {
                thoughts: inside.trim_start(),
                said: "",
                has_closed: false,
            },
        }
    }

    fn is_past_thoughts(&self) -> bool {
        self.has_closed || !self.said.is_empty()
    }
}
