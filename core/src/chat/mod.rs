//! Conversations: what every chat front end shares, and what of an answer is thought, said and called.
//! Knows no protocol and no window.

pub mod answer;
mod call_reader;
pub mod chat_prompt;
mod json_call;
mod json_scan;
pub mod message;
mod progress;
pub mod session;
pub mod split;
mod tagged_form;
mod tagged_reader;
pub mod tool_error;
pub mod tool_form;
pub mod tool_style;
mod value_kinds;

#[cfg(test)]
mod chat_prompt_tests;
#[cfg(test)]
mod split_properties;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tagged_tests;
#[cfg(test)]
mod tool_form_tests;

pub use answer::{AnswerEvent, AnswerFormat, AnswerParts, OfferedTools, Reasoning, ToolCall};
pub use chat_prompt::{ChatPrompt, ChatPromptError};
pub use message::{Message, Role};
pub use session::{ChatSession, MessageId, SessionError};
pub use split::AnswerSplitter;
pub use tool_error::ToolError;
pub use tool_form::{Tool, ToolChoice, form_of_answer};
pub use tool_style::{ReasoningStyle, ToolStyle};
