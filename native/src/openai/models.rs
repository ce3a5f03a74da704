//! The models of `/v1/models`, as the clients of OpenAI and those of Anthropic read them: each finds its own fields and
//! passes over the other's. Knows not which models there are.

use serde_json::{Value, json};
use twoclock_core::text::strftime::CivilTime;

/// What is said of a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelCard<'a> {
    /// Its name.
    pub name: &'a str,
    /// Since when it can be asked for, seconds of the epoch.
    pub created: u64,
    /// Longest sequence, tokens.
    pub context_length: usize,
    /// Whether nobody need wait for it.
    pub is_loaded: bool,
}

impl ModelCard<'_> {
    /// The body.
    pub fn as_json(&self) -> Value {
        let created = i64::try_from(self.created).unwrap_or(i64::MAX);
        json!({
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "twoclock",
            "context_length": self.context_length,
            "max_model_len": self.context_length,
            "loaded": self.is_loaded,
            // Anthropic's.
            "type": "model",
            "display_name": self.name,
            "created_at": CivilTime::from_seconds(created).format("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycle": "active",
            "max_input_tokens": self.context_length,
            "max_tokens": self.context_length,
        })
    }
}

/// The body of a list that is whole.
pub fn list(cards: &[ModelCard<'_>]) -> Value {
    let data: Vec<Value> = cards.iter().map(ModelCard::as_json).collect();
    json!({
        "object": "list",
        "first_id": cards.first().map(|card| card.name),
        "last_id": cards.last().map(|card| card.name),
        "has_more": false,
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_both_protocols() {
        let card = |name| ModelCard {
            name,
            created: 1_700_000_000,
            context_length: 512,
            is_loaded: true,
        };
        let list = list(&[card("a"), card("b")]);
        assert_eq!(
            (&list["object"], &list["first_id"], &list["last_id"]),
            (&json!("list"), &json!("a"), &json!("b"))
        );
        let one = &list["data"][1];
        assert_eq!(
            (&one["object"], &one["created"]),
            (&json!("model"), &json!(1_700_000_000))
        );
        assert_eq!(
            (&one["type"], &one["created_at"]),
            (&json!("model"), &json!("2023-11-14T22:13:20Z"))
        );
        assert!(super::list(&[])["first_id"].is_null());
    }
}
