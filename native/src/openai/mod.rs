//! Bodies of OpenAI's protocol: what a request asks, and what is answered. Knows no transport and no
//! engine: the batch command and a server read and write the same.

pub mod chunk;
#[cfg(test)]
pub mod described;
mod each;
pub mod echoed;
pub mod embeddings;
pub mod engine_words;
pub mod error;
pub mod fields;
mod form;
mod logprobs;
pub mod messages;
pub mod models;
mod prompts;
pub mod refusal;
pub mod request;
pub mod response;
mod response_items;
pub mod responses;
pub mod responses_stream;
#[cfg(test)]
mod responses_stream_tests;
mod sampling;
mod text_offset;
pub mod tokens;
pub mod tool_calls;
pub mod tools;
mod unserved;

pub use echoed::Echoed;
pub use error::{error_body, error_kind};
pub use refusal::Refusal;
pub use request::{Asked, Endpoint, Serving};
pub use response::{Answered, Choice, Usage};
