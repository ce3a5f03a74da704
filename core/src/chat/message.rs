//! One message of a conversation, in the shape chat templates expect. Knows no conversation.

use serde::{Deserialize, Serialize};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that stand before the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool the model called.
    Tool,
}

/// A message; serialises to the `{"role": …, "content": …}` of chat templates and of the OpenAI
/// protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of the given role.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }

    /// Instructions.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// The person's.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// The model's.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialises_as_templates_expect() {
        let json = serde_json::to_string(&Message::user("Hi")).unwrap();
        assert_eq!(json, r#"{"role":"user","content":"Hi"}"#);
    }
}
