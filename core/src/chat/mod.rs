//! Conversations: what every chat front end shares. Knows no protocol and no window.

pub mod message;
pub mod session;

pub use message::{Message, Role};
pub use session::{ChatSession, MessageId, SessionError};
