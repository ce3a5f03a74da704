//! Bodies of Anthropic's protocol: requests as the chat requests that they are, answers whole and as a
//! stream, errors. Knows no transport and no engine.

mod messages;
mod output_format;
pub mod request;
pub mod response;
mod tools;

pub use request::{as_chat, names};
pub use response::{Ended, MessageStream, count_body, error_body, message_body};
