//! The tools of a request to `/v1/messages` and which of them are to be called, as a chat has them. What a model makes
//! of them is the chat's.

use serde_json::{Map, Value, json};

use crate::openai::fields::Fields;
use crate::openai::refusal::{Below, Refusal};

/// Writes the tools and the choice among them as a chat has them.
///
/// # Errors
/// What is no tool or no choice, by its own name.
pub(super) fn put_into(chat: &mut Map<String, Value>, fields: &Fields<'_>) -> Result<(), Refusal> {
    if let Some(tools) = fields.list("tools")? {
        let tools = tools
            .iter()
            .enumerate()
            .map(|(index, tool)| function(tool).map_err(|wrong| wrong.of_item("tools", index)));
        chat.insert("tools".into(), tools.collect::<Result<Value, _>>()?);
    }
    if let Some(choice) = fields.object("tool_choice")? {
        put_choice(choice, chat)?;
    }
    Ok(())
}

/// A tool as a chat has it.
fn function(tool: &Value) -> Result<Value, Below> {
    let tool = tool.as_object();
    let tool = tool.ok_or_else(|| Below::new("", "must be an object"))?;
    match tool.get("type").and_then(Value::as_str) {
        None | Some("custom") => {}
        Some(other) => return Err(Below::new(".type", format!("{other:?} is not served"))),
    }
    if !tool.get("input_schema").is_some_and(Value::is_object) {
        let must = "must be a JSON schema, an object";
        return Err(Below::new(".input_schema", must));
    }
    let mut function = Map::new();
    for (from, to) in [
        ("name", "name"),
        ("description", "description"),
        ("input_schema", "parameters"),
    ] {
        if let Some(value) = tool.get(from) {
            function.insert(to.to_owned(), value.clone());
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

fn put_choice(choice: &Map<String, Value>, chat: &mut Map<String, Value>) -> Result<(), Refusal> {
    let refuse = |path: &str, must: &str| Err(Below::new(path, must).of("tool_choice"));
    let chosen = match choice.get("type").and_then(Value::as_str) {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => match choice.get("name").and_then(Value::as_str) {
            Some(name) => json!({"type": "function", "function": {"name": name}}),
            None => return refuse(".name", "must be a string"),
        },
        _ => return refuse(".type", "must be auto, any, tool or none"),
    };
    chat.insert("tool_choice".into(), chosen);
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(one)) => {
            chat.insert("parallel_tool_calls".into(), json!(!one));
        }
        Some(_) => return refuse(".disable_parallel_tool_use", "must be true or false"),
    }
    Ok(())
}
