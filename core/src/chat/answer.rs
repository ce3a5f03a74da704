//! What an answer may be made of, and what it was made of: thoughts, what is said, calls of tools.
//! Knows not how they are told apart.

use std::sync::Arc;

use super::split::AnswerSplitter;
use super::tool_form::Tool;
use super::tool_style::{ReasoningStyle, ToolStyle, is_any_special};
use crate::text::{ChatTemplate, Tokenizer};

/// What an answer may be made of. Without thoughts and tools it is what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFormat {
    /// The thoughts it may begin with.
    pub reasoning: Option<Reasoning>,
    /// The tools it may call.
    pub tools: Option<OfferedTools>,
}

/// Thoughts at the beginning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasoning {
    /// Its marks.
    pub style: ReasoningStyle,
    /// The prompt has opened them, so that the answer is inside from its first character on.
    pub is_open: bool,
}

impl Reasoning {
    /// What answers to this prompt begin with, which the template made.
    pub fn of_prompt(template: &ChatTemplate, prompt: &str) -> Option<Self> {
        let style = ReasoningStyle::of_template(template)?;
        let is_open = prompt.trim_end().ends_with(style.opening());
        Some(Self { style, is_open })
    }
}

/// Tools an answer may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedTools {
    /// How the model writes a call.
    pub style: ToolStyle,
    /// What they are.
    pub tools: Arc<[Tool]>,
    /// Whether it may call several.
    pub parallel: bool,
}

impl AnswerFormat {
    /// Whether an answer may be anything but what it says.
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && self.tools.is_none()
    }

    /// The text behind which nothing more is wanted, where an answer may call once: a stop string then spares
    /// what else the model would write. Not every style has one.
    pub fn end_of_only_call(&self) -> Option<&'static str> {
        let tools = self.tools.as_ref().filter(|tools| !tools.parallel)?;
        tools.style.closing()
    }

    /// Whether the marks this looks for are special tokens, which an answer's text must then keep
    /// ([`skip_special_tokens`](crate::types::SamplingParams::skip_special_tokens) off).
    pub fn reads_special_tokens(&self, tokenizer: &Tokenizer) -> bool {
        let thoughts = self
            .reasoning
            .map(|r| [r.style.opening(), r.style.closing()]);
        let calls = self.tools.as_ref().map(|tools| tools.style.marks());
        thoughts.is_some_and(|marks| is_any_special(tokenizer, &marks))
            || calls.is_some_and(|marks| is_any_special(tokenizer, marks))
    }
}

/// A piece of an answer. Pieces of text are never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEvent {
    /// More of what it says.
    Content(String),
    /// More of its thoughts.
    Reasoning(String),
    /// A call begins. Calls come one after the other.
    ToolCallBegun {
        /// Its number, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of the arguments of the call that has begun: JSON text of an object, when all of it has
    /// come.
    Arguments {
        /// The call's number.
        index: usize,
        /// The text.
        text: String,
    },
    /// The call that has begun is over. Where the answer was cut inside, or goes on in another way than
    /// JSON, its arguments are not whole.
    ToolCallEnded {
        /// Its number.
        index: usize,
    },
}

/// A whole answer, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerParts {
    /// What it says.
    pub content: String,
    /// Its thoughts.
    pub reasoning: String,
    /// Its calls.
    pub tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// JSON text of an object; may be cut short where the answer was.
    pub arguments: String,
}

impl AnswerParts {
    /// Takes a whole answer apart.
    pub fn of(format: &AnswerFormat, text: &str) -> Self {
        let mut splitter = AnswerSplitter::new(format.clone());
        let mut parts = Self::default();
        parts.extend(splitter.push(text));
        parts.extend(splitter.finish());
        parts
    }
}

impl Extend<AnswerEvent> for AnswerParts {
    fn extend<I: IntoIterator<Item = AnswerEvent>>(&mut self, events: I) {
        for event in events {
            match event {
                AnswerEvent::Content(text) => self.content.push_str(&text),
                AnswerEvent::Reasoning(text) => self.reasoning.push_str(&text),
                AnswerEvent::ToolCallBegun { name, .. } => self.tool_calls.push(ToolCall {
                    name,
                    arguments: String::new(),
                }),
                AnswerEvent::Arguments { index, text } => {
                    if let Some(call) = self.tool_calls.get_mut(index) {
                        call.arguments.push_str(&text);
                    }
                }
                AnswerEvent::ToolCallEnded { .. } => {}
            }
        }
    }
}
