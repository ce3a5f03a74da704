//! The bodies of `/tokenize` and `/detokenize`: what is asked, and what is answered, which is written as it is made.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use twoclock_core::engine::Prompt;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::TokenId;

use super::each::Each;
use super::fields::Fields;
use super::messages;
use super::refusal::Refusal;
use super::request::Serving;

/// A text or messages as ids. It is written as the answer.
pub struct Tokenized<'a> {
    ids: Vec<TokenId>,
    max_model_len: usize,
    /// Where their texts were asked for, too.
    spelled_by: Option<&'a Tokenizer>,
}

impl<'a> Tokenized<'a> {
    /// Does what a body asks.
    ///
    /// # Errors
    /// [`Refusal`] for the first field that means nothing, or has too much.
    pub fn read(body: &Value, serving: &Serving<'a>) -> Result<Self, Refusal> {
        let fields = Fields::of(body)?;
        let tokenizer = serving.tokenizer;
        let is_chat = fields.get("messages").is_some();
        let field = if is_chat { "messages" } else { "prompt" };
        let add_special = fields.flag("add_special_tokens")?;
        let prompt = match fields.text("prompt")? {
            _ if is_chat && add_special == Some(true) => {
                let said = "is not served for messages: their template has put them there";
                return Err(Refusal::of("add_special_tokens", said));
            }
            _ if is_chat => Prompt::Templated(messages::read(&fields, serving)?.prompt),
            Some(text) => Prompt::Text(text.to_owned()),
            None => {
                let must = "must be a string, or there must be messages";
                return Err(Refusal::of("prompt", must));
            }
        };
        serving.hold(field, &prompt, false)?;
        let ids = match prompt {
            Prompt::Text(text) => tokenizer.encode(&text, add_special.unwrap_or(true), true),
            prompt => prompt.into_token_ids(tokenizer),
        };
        let ids = ids.map_err(|e| Refusal::sentence(field, e))?;
        let spelled = fields.flag("return_token_strs")? == Some(true);
        Ok(Self {
            ids,
            max_model_len: serving.max_model_len,
            spelled_by: spelled.then_some(tokenizer),
        })
    }

    /// Bytes that it takes.
    pub fn num_bytes(&self) -> usize {
        size_of_val(&*self.ids)
    }
}

impl Serialize for Tokenized<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("count", &self.ids.len())?;
        body.serialize_entry("max_model_len", &self.max_model_len)?;
        body.serialize_entry("tokens", &self.ids)?;
        let texts = self.spelled_by.map(|tokenizer| {
            let text = |id: &TokenId| String::from_utf8_lossy(tokenizer.token_bytes(*id));
            Each(move || self.ids.iter().map(text))
        });
        body.serialize_entry("token_strs", &texts)?;
        body.end()
    }
}

/// Ids as a text. It is written as the answer.
#[derive(Debug, Serialize)]
pub struct Detokenized {
    prompt: String,
}

impl Detokenized {
    /// Does what a body asks.
    ///
    /// # Errors
    /// [`Refusal`] where there are no ids, some that the vocabulary has not, or a text of more than is taken apart.
    pub fn read(body: &Value, serving: &Serving<'_>) -> Result<Self, Refusal> {
        let fields = Fields::of(body)?;
        if fields.get("tokens").is_none() {
            return Err(Refusal::of("tokens", "must be a list of token ids"));
        }
        let ids = fields.ids("tokens")?;
        let tokenizer = serving.tokenizer;
        let bytes = ids.iter().map(|id| tokenizer.token_bytes(*id).len());
        let (bytes, most) = (bytes.sum::<usize>(), serving.most_counted());
        if bytes > most {
            let said = format!(
                "are a text of {bytes} bytes, but {most} are the most: send fewer at a time"
            );
            return Err(Refusal::of("tokens", said).code("text_too_long"));
        }
        let prompt = tokenizer.decode(&ids, false);
        let prompt = prompt.map_err(|e| Refusal::sentence("tokens", e))?;
        Ok(Self { prompt })
    }

    /// Bytes that it takes.
    pub fn num_bytes(&self) -> usize {
        self.prompt.len()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use serde_json::json;
    use twoclock_core::weights::GenerationDefaults;

    #[test]
    fn what_is_taken_apart_can_be_put_together_and_no_more() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer/tokenizer.json");
        let tokenizer = Tokenizer::from_json(&fs::read(file).unwrap(), None, None).unwrap();
        let serving = Serving {
            tokenizer: &tokenizer,
            template: None,
            defaults: &GenerationDefaults::default(),
            max_model_len: 64,
            max_prompt_bytes: Some(8192),
            heeds_priority: false,
        };
        let most = serving.most_counted();
        let text = "a dog ".repeat(most / 6) + &"a".repeat(most % 6);
        let body = json!({"prompt": text, "add_special_tokens": false});
        let tokenized = Tokenized::read(&body, &serving).unwrap();
        let told = serde_json::to_value(&tokenized).unwrap();
        assert_eq!(
            tokenized.num_bytes(),
            4 * told["tokens"].as_array().unwrap().len()
        );
        let back = Detokenized::read(&told, &serving).unwrap();
        assert_eq!((back.num_bytes(), &back.prompt), (most, &text));
        let mut more = told;
        let first = more["tokens"][0].clone();
        more["tokens"].as_array_mut().unwrap().push(first);
        let refused = Detokenized::read(&more, &serving).unwrap_err();
        assert_eq!(
            (refused.param.as_deref(), refused.code),
            (Some("tokens"), Some("text_too_long"))
        );
        let unknown = tokenizer.vocab_size();
        for wrong in [
            json!([1, unknown]),
            json!([1, -1]),
            json!([1, 1_u64 << 32]),
            json!("a"),
            json!(null),
        ] {
            let refused = Detokenized::read(&json!({"tokens": wrong}), &serving).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("tokens"), "{wrong}");
        }
    }
}
