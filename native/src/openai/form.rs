//! The form a body wants its answer in: OpenAI's `response_format`, and vLLM's `structured_outputs`
//! with its older `guided_…` names. What a form means is the engine's.

use serde_json::{Map, Value};
use twoclock_core::types::StructuredOutput;

use super::fields::{Fields, Refusal};

/// The form and the field it came in; none where the body leaves it open.
pub(super) fn read(
    fields: &Fields<'_>,
) -> Result<Option<(StructuredOutput, &'static str)>, Refusal> {
    let mut forms = Vec::new();
    if let Some(format) = fields.object("response_format")? {
        let form = response_format(format)?;
        forms.extend(form.map(|form| (form, "response_format")));
    }
    if let Some(given) = fields.object("structured_outputs")? {
        for name in ["json", "regex", "choice", "grammar", "json_object"] {
            let form = named(given.get(name), name, "structured_outputs")?;
            forms.extend(form.map(|form| (form, "structured_outputs")));
        }
    }
    for (field, name) in [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
        ("guided_json_object", "json_object"),
    ] {
        let form = named(fields.get(field), name, field)?;
        forms.extend(form.map(|form| (form, field)));
    }
    if let [_, (_, second), ..] = forms[..] {
        let said = format!("{second} asks for a form, and another is asked for already: give one");
        return Err(Refusal::of(second, said));
    }
    Ok(forms.pop())
}

fn response_format(format: &Map<String, Value>) -> Result<Option<StructuredOutput>, Refusal> {
    let refuse = |said: &str| Err(Refusal::of("response_format", said));
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(StructuredOutput::JsonObject)),
        Some("json_schema") => {
            let schema = format
                .get("json_schema")
                .and_then(|json| json.get("schema"));
            match schema.filter(|schema| schema.is_object()) {
                Some(schema) => Ok(Some(StructuredOutput::Json(schema.to_string()))),
                None => refuse("response_format.json_schema.schema must be a JSON schema"),
            }
        }
        _ => refuse("response_format.type must be text, json_object or json_schema"),
    }
}

fn named(
    value: Option<&Value>,
    name: &str,
    field: &str,
) -> Result<Option<StructuredOutput>, Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = || value.as_str().map(str::to_owned);
    let texts = || -> Option<Vec<String>> {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        value.as_array()?.iter().map(text).collect()
    };
    let form = match name {
        "json" if value.is_object() => Some(StructuredOutput::Json(value.to_string())),
        "json" => text().map(StructuredOutput::Json),
        "regex" => text().map(StructuredOutput::Regex),
        "grammar" => text().map(StructuredOutput::Grammar),
        "choice" => texts().map(StructuredOutput::Choice),
        _ => match value.as_bool() {
            Some(false) => return Ok(None),
            Some(true) => Some(StructuredOutput::JsonObject),
            None => None,
        },
    };
    match form {
        Some(form) => Ok(Some(form)),
        None => {
            let must = match name {
                "json" => "a schema",
                "choice" => "a list of strings",
                "json_object" => "true or false",
                _ => "a string",
            };
            let said = format!("{field}: {name} must be {must}");
            Err(Refusal::of(field, said))
        }
    }
}
