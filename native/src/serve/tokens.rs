//! `/tokenize` and `/detokenize`: from text or messages to ids and back, as the model would have them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use twoclock_core::engine::Prompt;

use super::api_error::ApiError;
use super::app::App;
use super::intake::{self, within};
use super::lease::Lease;
use super::request_body::RequestBody;
use super::whole;
use crate::openai::fields::Fields;
use crate::openai::refusal::Refusal;
use crate::openai::{Serving, messages};

/// `/tokenize`.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    read(&app, request, ids).await
}

/// `/detokenize`.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    read(&app, request, text).await
}

async fn read(
    app: &App,
    request: Request,
    answer: fn(&Value, &Serving<'_>) -> Result<Value, Refusal>,
) -> Result<Response, ApiError> {
    within(app, async |_| {
        let look = move |lease: Lease, body: RequestBody| -> Result<Value, ApiError> {
            Ok(answer(&body.value()?, &lease.loaded().serving())?)
        };
        Ok(whole::json(&intake::read(app, request, look).await?))
    })
    .await
}

pub(super) fn ids(body: &Value, serving: &Serving<'_>) -> Result<Value, Refusal> {
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
    let texts = spelled.then(|| -> Vec<_> {
        let text = |id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned();
        ids.iter().map(text).collect()
    });
    Ok(json!({
        "count": ids.len(),
        "max_model_len": serving.max_model_len,
        "tokens": ids,
        "token_strs": texts,
    }))
}

pub(super) fn text(body: &Value, serving: &Serving<'_>) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    if fields.get("tokens").is_none() {
        return Err(Refusal::of("tokens", "must be a list of token ids"));
    }
    let ids = fields.ids("tokens")?;
    let text = serving.tokenizer.decode(&ids, false);
    let text = text.map_err(|e| Refusal::sentence("tokens", e))?;
    Ok(json!({"prompt": text}))
}
