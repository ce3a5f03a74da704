//! `/tokenize` and `/detokenize`: from text or messages to ids and back, as the model would have them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use twoclock_core::engine::Prompt;

use super::api_error::ApiError;
use super::app::App;
use super::generate::lease;
use super::loaded::Loaded;
use super::request_body::RequestBody;
use super::whole;
use crate::openai::fields::{Fields, Refusal};
use crate::openai::messages;

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
    answer: fn(&Value, &Loaded) -> Result<Value, Refusal>,
) -> Result<Response, ApiError> {
    let body = RequestBody::read(request, app).await?;
    let (lease, body) = lease(app, body).await?;
    let answer = move |body: &RequestBody| -> Result<Value, ApiError> {
        Ok(answer(&body.value()?, lease.loaded())?)
    };
    let answered = app
        .reading
        .run(body.num_bytes(), move || answer(&body))
        .await??;
    Ok(whole::json(&answered))
}

fn ids(body: &Value, loaded: &Loaded) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    let tokenizer = loaded.handle().tokenizer();
    let is_chat = fields.get("messages").is_some();
    let field = if is_chat { "messages" } else { "prompt" };
    let add_special = fields.flag("add_special_tokens")?;
    let prompt = match fields.text("prompt")? {
        _ if is_chat && add_special == Some(true) => {
            let said =
                "add_special_tokens is not served for messages: their template has put them there";
            return Err(Refusal::of("add_special_tokens", said));
        }
        _ if is_chat => Prompt::Templated(messages::read(&fields, &loaded.serving())?.prompt),
        Some(text) => Prompt::Text(text.to_owned()),
        None => {
            return Err(Refusal::of(
                "prompt",
                "prompt must be a string, or there must be messages",
            ));
        }
    };
    loaded.serving().hold(field, &prompt, false)?;
    let ids = match prompt {
        Prompt::Text(text) => tokenizer.encode(&text, add_special.unwrap_or(true), true),
        prompt => prompt.into_token_ids(tokenizer),
    };
    let ids = ids.map_err(|e| Refusal::of(field, e.to_string()))?;
    let spelled = fields.flag("return_token_strs")? == Some(true);
    let texts = spelled.then(|| -> Vec<_> {
        let text = |id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned();
        ids.iter().map(text).collect()
    });
    Ok(json!({
        "count": ids.len(),
        "max_model_len": loaded.max_model_len(),
        "tokens": ids,
        "token_strs": texts,
    }))
}

fn text(body: &Value, loaded: &Loaded) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    if fields.get("tokens").is_none() {
        return Err(Refusal::of("tokens", "tokens must be a list of token ids"));
    }
    let ids = fields.ids("tokens")?;
    let text = loaded.handle().tokenizer().decode(&ids, false);
    let text = text.map_err(|e| Refusal::of("tokens", e.to_string()))?;
    Ok(json!({"prompt": text}))
}
