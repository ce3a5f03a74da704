//! The form a body wants its answer in: OpenAI's `response_format`, and vLLM's `structured_outputs`
//! with its older `guided_…` names, and llama.cpp's `json_schema`. What a form means is the engine's.

use serde_json::{Map, Value, json};
use twoclock_core::chat::{ToolChoice, form_of_answer};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::StructuredOutput;

use super::fields::Fields;
use super::messages::Chat;
use super::refusal::Refusal;
use crate::output;

/// Forms by name, and where they stand.
const FORMS: [(&str, &str); 5] = [
    ("json", "structured_outputs.json"),
    ("regex", "structured_outputs.regex"),
    ("choice", "structured_outputs.choice"),
    ("grammar", "structured_outputs.grammar"),
    ("json_object", "structured_outputs.json_object"),
];
/// The switch beside them that leaves white space out of JSON.
const COMPACT: &str = "disable_any_whitespace";
/// Where OpenAI has a schema.
const SCHEMA: &str = "response_format.json_schema.schema";

/// The form and the field it came in; none where the body leaves it open.
pub(super) fn read(
    fields: &Fields<'_>,
) -> Result<Option<(StructuredOutput, &'static str)>, Refusal> {
    let mut forms = Vec::new();
    let mut is_compact = false;
    if let Some(format) = fields.object("response_format")? {
        forms.extend(response_format(format)?);
    }
    if let Some(given) = fields.object("structured_outputs")? {
        refuse_unknown(given)?;
        is_compact = match given.get(COMPACT) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                let field = format!("structured_outputs.{COMPACT}");
                return Err(Refusal::of(&field, "must be true or false"));
            }
        };
        for (name, field) in FORMS {
            let form = named(given.get(name), name, field)?;
            forms.extend(form.map(|form| (form, field)));
        }
    }
    for (field, name) in [
        ("json_schema", "json"),
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
        let said = "asks for a form, and another is asked for already: give one";
        return Err(Refusal::of(second, said));
    }
    let form = forms.pop();
    Ok(form.map(|(form, field)| match is_compact {
        true => (compact(form), field),
        false => (form, field),
    }))
}

/// The same with no white space that JSON could do without.
fn compact(form: StructuredOutput) -> StructuredOutput {
    let schema = match &form {
        StructuredOutput::Json(text) => serde_json::from_str(text).ok(),
        StructuredOutput::JsonObject => Some(json!({"type": "object"})),
        _ => None,
    };
    match schema {
        Some(Value::Object(mut schema)) => {
            schema.insert("x-guidance".into(), json!({"whitespace_flexible": false}));
            StructuredOutput::Json(Value::Object(schema).to_string())
        }
        // What is no schema is refused when it is compiled.
        _ => form,
    }
}

/// The form of an answer to a chat whose form is this, where it may think or call, and the field it is
/// from. What is demanded of tools goes before any form; a JSON schema holds for what is said beside
/// thoughts and calls; another form holds for all of the answer, which then has no thoughts.
///
/// # Errors
/// What is wrong with a tool that is to be called.
pub(super) fn of_chat(
    form: Option<(StructuredOutput, &'static str)>,
    chat: &mut Chat,
    tokenizer: &Tokenizer,
) -> Result<Option<(StructuredOutput, &'static str)>, Refusal> {
    let Chat { tools, format, .. } = &*chat;
    let demanded = matches!(tools.choice, ToolChoice::Required | ToolChoice::Named(_));
    let field = form.as_ref().map(|(_, field)| *field);
    if let Some(field) = field
        .or(demanded.then_some("tool_choice"))
        .filter(|_| chat.has_begun)
    {
        let said = "gives all of the answer a form, and the last message has begun it: it cannot be continued in one";
        return Err(Refusal::of(field, said));
    }
    let called = |schema: Option<&Value>| {
        form_of_answer(&tools.tools, &tools.choice, format, schema, tokenizer)
            .map_err(|why| Refusal::sentence("tools", why))
    };
    if demanded {
        return Ok(called(None)?.map(|form| (form, "tools")));
    }
    let schema = match &form {
        Some((StructuredOutput::Json(text), _)) => serde_json::from_str(text).ok(),
        Some((StructuredOutput::JsonObject, _)) => Some(json!({"type": "object"})),
        _ => None,
    };
    match (form, schema) {
        (Some((_, field)), Some(schema)) if !format.is_plain() => {
            Ok(called(Some(&schema))?.map(|form| (form, field)))
        }
        (form, _) => {
            if form.is_some() {
                chat.format.reasoning = None;
            }
            Ok(form)
        }
    }
}

/// Refuses what would leave an answer without the form that was asked for.
fn refuse_unknown(given: &Map<String, Value>) -> Result<(), Refusal> {
    // One that is off asks for nothing; and there is nothing to fall back to.
    let asks = |(name, value): &(&String, &Value)| {
        let is_switch = ["disable_fallback", COMPACT].contains(&name.as_str());
        !value.is_null() && **value != Value::Bool(false) && !is_switch
    };
    let unknown = given.iter().filter(asks);
    let known = FORMS.map(|(name, _)| name);
    let listed = known.join(", ");
    match unknown
        .map(|(name, _)| name)
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(name) => {
            let name = output::beginning(name);
            let field = format!("structured_outputs.{name}");
            let said = format!("is not served: there are {listed}");
            Err(Refusal::of(&field, said))
        }
        None if given.values().all(Value::is_null) => {
            let said = format!("names no form: there are {listed}");
            Err(Refusal::of("structured_outputs", said))
        }
        None => Ok(()),
    }
}

fn response_format(
    format: &Map<String, Value>,
) -> Result<Option<(StructuredOutput, &'static str)>, Refusal> {
    let schema = |given: Option<&Value>, field: &'static str| match given {
        Some(schema) if schema.is_object() => {
            Ok(Some((StructuredOutput::Json(schema.to_string()), field)))
        }
        _ => Err(Refusal::of(field, "must be a JSON schema, an object")),
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        // As llama.cpp has it, it may name a schema too.
        Some("json_object") => match format.get("schema").filter(|schema| !schema.is_null()) {
            None => Ok(Some((StructuredOutput::JsonObject, "response_format"))),
            given => schema(given, "response_format.schema"),
        },
        Some("json_schema") => {
            let nested = format.get("json_schema");
            schema(nested.and_then(|json| json.get("schema")), SCHEMA)
        }
        _ => {
            let said = "must be text, json_object or json_schema";
            Err(Refusal::of("response_format.type", said))
        }
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
            let said = format!("must be {must}");
            Err(Refusal::of(field, said))
        }
    }
}
