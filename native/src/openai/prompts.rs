//! The prompts of a completion request, and what becomes of prompts before they are computed: cut,
//! special tokens left out, said again before the answer.

use serde_json::Value;
use twoclock_core::engine::Prompt;
use twoclock_core::text::{TextError, Tokenizer};

use super::fields::{self, Fields};
use super::refusal::Refusal;
use super::request::{Endpoint, Serving};

/// How a body wants its prompts read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Put the tokens around a text that the model expects there.
    add_special: bool,
    /// Keep so many tokens of the end.
    keep: Option<usize>,
    /// Say the prompt before the answer.
    echo: bool,
}

impl Reading {
    /// Reads the fields. `room` tokens stay free for the answer where as many are to be kept as the
    /// context holds.
    pub(super) fn read(
        endpoint: Endpoint,
        fields: &Fields<'_>,
        serving: &Serving<'_>,
        room: usize,
    ) -> Result<Self, Refusal> {
        let is_text = endpoint == Endpoint::Completions;
        let add_special = fields.flag("add_special_tokens")?.unwrap_or(is_text);
        if add_special && !is_text {
            let said = "is not served for a chat: its template has put them there";
            return Err(Refusal::of("add_special_tokens", said));
        }
        let echo = fields.flag("echo")?.unwrap_or(false);
        if echo && !is_text {
            return Err(Refusal::of("echo", "is not served for a chat"));
        }
        let keep = match fields.signed("truncate_prompt_tokens")? {
            None => None,
            Some(-1) => Some(serving.max_model_len.saturating_sub(room).max(1)),
            Some(kept) => match usize::try_from(kept) {
                Ok(kept) if kept > 0 => Some(kept),
                _ => {
                    let said = format!(
                        "is {kept}, but must be 1 or more, or -1 for what the \
                         context holds"
                    );
                    return Err(Refusal::of("truncate_prompt_tokens", said));
                }
            },
        };
        Ok(Self {
            add_special,
            keep,
            echo,
        })
    }

    /// The prompts as they are computed, and what is said before the answers to each; nothing unless
    /// that was asked for.
    pub(super) fn apply(
        self,
        prompts: Vec<Prompt>,
        tokenizer: &Tokenizer,
    ) -> Result<(Vec<Prompt>, Vec<String>), TextError> {
        let mut echoes = Vec::new();
        let mut read = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let text = match &prompt {
                Prompt::Text(text) if self.echo => Some(text.clone()),
                _ => None,
            };
            let (prompt, is_cut) = self.cut(prompt, tokenizer)?;
            if self.echo {
                let said = match (text, &prompt) {
                    (Some(text), _) if !is_cut => text,
                    (_, Prompt::TokenIds(ids)) => tokenizer.decode(ids, true)?,
                    (text, _) => text.unwrap_or_default(),
                };
                echoes.push(said);
            }
            read.push(prompt);
        }
        Ok((read, echoes))
    }

    /// The prompt as it is computed, and whether something of it is left out.
    fn cut(&self, prompt: Prompt, tokenizer: &Tokenizer) -> Result<(Prompt, bool), TextError> {
        let prompt = match prompt {
            Prompt::Text(text) if !self.add_special => {
                Prompt::TokenIds(tokenizer.encode(&text, false, true)?)
            }
            prompt => prompt,
        };
        let Some(keep) = self.keep else {
            return Ok((prompt, false));
        };
        let mut ids = prompt.into_token_ids(tokenizer)?;
        let left_out = ids.len().saturating_sub(keep);
        ids.drain(..left_out);
        Ok((Prompt::TokenIds(ids), left_out > 0))
    }

    /// Whether the prompt is said before the answer.
    pub(super) fn echoes(&self) -> bool {
        self.echo
    }

    /// Whether a prompt may be longer than the context, as it is cut.
    pub(super) fn cuts(&self) -> bool {
        self.keep.is_some()
    }
}

/// The prompts: a text, texts, ids, or lists of ids.
pub(super) fn read(fields: &Fields<'_>) -> Result<Vec<Prompt>, Refusal> {
    let refuse = |said: &str| Err(Refusal::of("prompt", said));
    let must = "must be a text, a list of texts, token ids, or a list of lists of token ids";
    let prompts = match fields.get("prompt") {
        Some(Value::String(text)) => vec![Prompt::Text(text.clone())],
        Some(value @ Value::Array(list)) if !list.is_empty() => {
            let whole = fields::ids(value).map(|ids| vec![Prompt::TokenIds(ids)]);
            let each = |item: &Value| match item {
                Value::String(text) => Some(Prompt::Text(text.clone())),
                item => fields::ids(item).map(Prompt::TokenIds),
            };
            match whole.or_else(|| list.iter().map(each).collect()) {
                Some(prompts) => prompts,
                None => return refuse(must),
            }
        }
        _ => return refuse(must),
    };
    Ok(prompts)
}
