//! The `render` command: a chat template and its variables as JSON. Owns what the object on standard
//! input may hold; knows neither tokens nor weights.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;
use twoclock_core::config::TextAssets;
use twoclock_core::text::strftime::CivilTime;
use twoclock_core::text::template::StrftimeNow;
use twoclock_core::text::{ChatTemplate, TextError};

use crate::host_time;
use crate::output;
use crate::text_input::{json_fault, read_text};

/// Why nothing was rendered.
#[derive(Debug, Error)]
pub enum RenderError {
    /// Standard input is no JSON object.
    #[error(
        "standard input is no JSON object ({0}): it holds the template's variables, such as {{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"add_generation_prompt\": true}}"
    )]
    NotAnObject(String),
    /// A variable is of another kind than it must be.
    #[error("{name} is {found}, but it must be {expected}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What the object holds.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// The template is none, or fails.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A template of its own file.
///
/// # Errors
/// The file cannot be read.
pub fn template_file(path: &Path) -> anyhow::Result<TextAssets> {
    Ok(TextAssets {
        chat_template: Some(read_text(path)?),
        ..TextAssets::default()
    })
}

/// What the template makes of the variables in a JSON object. `messages` and
/// `add_generation_prompt` are as the template takes them; `strftime_now` is the time it is told,
/// such as `2025-01-15T12:30:45`, and now (UTC) where missing; `bos_token` and `eos_token` are the
/// model's where missing. All others are handed on.
///
/// # Errors
/// [`RenderError`].
pub fn render(assets: &TextAssets, input: &str) -> Result<String, RenderError> {
    let mut variables: Map<String, Value> =
        serde_json::from_str(input).map_err(|e| RenderError::NotAnObject(json_fault(&e)))?;
    let wrong = |name, found: &Value, expected| RenderError::Variable {
        name,
        found: output::beginning(&found.to_string()),
        expected,
    };
    let messages = variables.remove("messages").unwrap_or(Value::Null);
    if !messages.is_array() {
        return Err(wrong(
            "messages",
            &messages,
            "a list, each with a role and a content",
        ));
    }
    let add_generation_prompt = match variables.remove("add_generation_prompt") {
        None => false,
        Some(Value::Bool(add)) => add,
        Some(other) => return Err(wrong("add_generation_prompt", &other, "true or false")),
    };
    let now: StrftimeNow = match variables.remove("strftime_now") {
        None | Some(Value::Null) => host_time::strftime(),
        Some(given) => {
            let time = given.as_str().and_then(CivilTime::parse);
            let expected = "a time such as \"2025-01-15T12:30:45\"";
            let time = time.ok_or_else(|| wrong("strftime_now", &given, expected))?;
            Arc::new(move |format| time.format(format))
        }
    };
    let template = ChatTemplate::from_assets(assets, Some(now))?;
    Ok(template.render(&messages, add_generation_prompt, &variables)?)
}
