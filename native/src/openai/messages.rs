//! The messages of a chat request: from OpenAI's form to what chat templates expect, and the prompt
//! they become.

use serde_json::{Value, json};
use twoclock_core::chat::{AnswerFormat, ChatPrompt};
use twoclock_core::text::RenderedPrompt;

use super::fields::Fields;
use super::refusal::{Below, Refusal};
use super::request::Serving;
use super::tool_calls;
use super::tools::Tools;

/// A chat as it is computed.
pub struct Chat {
    /// Its prompt.
    pub prompt: RenderedPrompt,
    /// The text of its answer has begun in it.
    pub has_begun: bool,
    /// What its answer may call.
    pub tools: Tools,
    /// What its answer may be made of.
    pub format: AnswerFormat,
}

/// What is said of a chat whose model has no template.
pub fn no_template() -> Refusal {
    let said = "this model has no chat template: use /v1/completions";
    Refusal::sentence("messages", said).code("no_chat_template")
}

/// Reads the messages of a body and what goes with them.
///
/// # Errors
/// [`Refusal`] of what is no message or tool, and of what the model's template refuses.
pub fn read(fields: &Fields<'_>, serving: &Serving<'_>) -> Result<Chat, Refusal> {
    let template = serving.template.ok_or_else(no_template)?;
    let given = fields.list("messages")?.filter(|list| !list.is_empty());
    let given = given.ok_or_else(|| Refusal::of("messages", "must be a list of at least one"))?;
    let messages = given
        .iter()
        .enumerate()
        .map(|(index, given)| message(given).map_err(|wrong| wrong.of_item("messages", index)));
    let messages: Vec<Value> = messages.collect::<Result<_, _>>()?;
    let tools = Tools::read(fields, Some(template))?;
    let mut extra = fields
        .object("chat_template_kwargs")?
        .cloned()
        .unwrap_or_default();
    tools.put_into(&mut extra);
    let begins_answer = fields.flag("add_generation_prompt")?;
    let goes_on = fields.flag("continue_final_message")?.unwrap_or(false);
    if goes_on && begins_answer == Some(true) {
        let said = "the last message is either continued or followed by another: continue_final_message and \
                    add_generation_prompt cannot both be true";
        return Err(Refusal::sentence("continue_final_message", said));
    }
    let ChatPrompt {
        prompt,
        reasoning,
        has_begun,
    } = match goes_on {
        true => ChatPrompt::continuing(template, &messages, &extra, serving.tokenizer),
        false => {
            let begins_answer = begins_answer.unwrap_or(true);
            ChatPrompt::of(
                template,
                &messages,
                begins_answer,
                &extra,
                serving.tokenizer,
            )
        }
    }
    .map_err(|why| Refusal::sentence("messages", why))?;
    let format = AnswerFormat {
        reasoning,
        tools: tools.offered(),
    };
    Ok(Chat {
        prompt,
        has_begun,
        tools,
        format,
    })
}

/// One message as templates expect it: content is one text.
fn message(message: &Value) -> Result<Value, Below> {
    let object = message
        .as_object()
        .ok_or_else(|| Below::new("", "must be an object"))?;
    let role = match object.get("role").and_then(Value::as_str) {
        Some("developer" | "system") => "system",
        Some(role @ ("user" | "assistant" | "tool")) => role,
        _ => {
            let must = "must be system, developer, user, assistant or tool";
            return Err(Below::new(".role", must));
        }
    };
    let content = match object.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
                Some("text") => part.get("text")?.as_str().map(str::to_owned),
                _ => None,
            };
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            texts
                .ok_or_else(|| {
                    Below::new(".content", "has a part that is no text").code("not_text")
                })?
                .concat()
        }
        Some(_) => {
            let must = "must be a string or a list of text parts";
            return Err(Below::new(".content", must));
        }
    };
    let mut whole = object.clone();
    whole.insert("role".into(), json!(role));
    whole.insert("content".into(), json!(content));
    tool_calls::read_calls(&mut whole)?;
    Ok(Value::Object(whole))
}
