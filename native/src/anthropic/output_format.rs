//! The form that a request to `/v1/messages` wants its answer in: `output_config.format`, and `output_format`, as it
//! was called before. What a form means is the chat's.

use serde_json::{Map, Value, json};

use crate::openai::fields::Fields;
use crate::openai::refusal::Refusal;

/// Writes the form as a chat has it, where there is one.
///
/// # Errors
/// What is no form, by its own name.
pub(super) fn put_into(chat: &mut Map<String, Value>, fields: &Fields<'_>) -> Result<(), Refusal> {
    let config = fields.object("output_config")?;
    let config = config.and_then(|config| config.get("format"));
    let config = config.filter(|format| !format.is_null());
    let (field, format) = match (config, fields.get("output_format")) {
        (Some(format), _) => ("output_config.format", format),
        (None, Some(format)) => ("output_format", format),
        (None, None) => return Ok(()),
    };
    let refuse = |name: &str, must: &str| {
        let path = format!("{field}.{name}");
        Err(Refusal::of(&path, format!("must be {must}")))
    };
    if format.get("type").and_then(Value::as_str) != Some("json_schema") {
        return refuse("type", "json_schema");
    }
    let Some(schema) = format.get("schema").filter(|schema| schema.is_object()) else {
        return refuse("schema", "a JSON schema, an object");
    };
    let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
    chat.insert("response_format".to_owned(), format);
    Ok(())
}
