//! The tools of a chat's body: what it offers and demands. Calls are `tool_calls`'s, and how a model writes them is the
//! core's.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use twoclock_core::chat::{OfferedTools, Tool, ToolChoice, ToolStyle};
use twoclock_core::text::ChatTemplate;

use super::fields::Fields;
use super::refusal::{Below, Refusal};

/// Most tools of one body.
const MAX_TOOLS: usize = 128;
/// Longest name of a tool, bytes.
const MAX_NAME: usize = 64;
/// What came before tools, and is not served.
const OLD: [&str; 2] = ["functions", "function_call"];

/// The tools of a chat, and whether they are called.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// What there is, as templates take it.
    given: Option<Value>,
    /// The same as the engine takes it.
    pub tools: Vec<Tool>,
    /// Whether they are called.
    pub choice: ToolChoice,
    offered: Option<OfferedTools>,
}

impl Tools {
    /// Reads the fields; tools that are not to be called are as if they were not there.
    ///
    /// # Errors
    /// What is wrong with them, or that the template knows no calls.
    pub fn read(fields: &Fields<'_>, template: Option<&ChatTemplate>) -> Result<Self, Refusal> {
        for old in OLD {
            let asks = fields.gives(old) && !fields.gives_nothing(old);
            if asks && fields.get("tool_choice") != Some(&json!("none")) {
                let said = "is not served: give tools and tool_choice";
                return Err(Refusal::of(old, said));
            }
        }
        let given = fields.list("tools")?.filter(|list| !list.is_empty());
        let parallel = fields.flag("parallel_tool_calls")?.unwrap_or(true);
        let choice = choice(fields.get("tool_choice"))?;
        let Some(given) = given else {
            return match choice {
                None | Some(ToolChoice::None | ToolChoice::Auto) => Ok(Self::default()),
                Some(ToolChoice::Required | ToolChoice::Named(_)) => {
                    let said = "asks for a call, but there are no tools";
                    Err(Refusal::of("tool_choice", said))
                }
            };
        };
        if given.len() > MAX_TOOLS {
            let said = format!("has {}, but at most {MAX_TOOLS} are taken", given.len());
            return Err(Refusal::of("tools", said));
        }
        let mut tools: Vec<Tool> = Vec::with_capacity(given.len());
        for (index, value) in given.iter().enumerate() {
            let refuse = |wrong: Below| wrong.of_item("tools", index);
            let tool = tool(value).map_err(refuse)?;
            if tools.iter().any(|known| known.name == tool.name) {
                let said = format!("has the name of another: {}", tool.name);
                return Err(refuse(Below::new("", said)));
            }
            tools.push(tool);
        }
        let choice = choice.unwrap_or_default();
        if let ToolChoice::Named(name) = &choice
            && !tools.iter().any(|tool| tool.name == *name)
        {
            let said = format!("asks for {name:?}, which is none of tools");
            return Err(Refusal::of("tool_choice", said));
        }
        if choice == ToolChoice::None {
            return Ok(Self::default());
        }
        let style = template.and_then(ToolStyle::of_template).ok_or_else(|| {
            let said = "this model's chat template does not teach it to call tools in a style that is \
                        known (those of Hermes and Qwen, Qwen3-Coder, GLM, Llama 3, Mistral)";
            Refusal::sentence("tools", said).code("tools_not_taught")
        })?;
        for tool in &tools {
            let checked = tool.check(style);
            checked.map_err(|why| Refusal::sentence("tools", why))?;
        }
        Ok(Self {
            offered: Some(OfferedTools {
                style,
                tools: Arc::from(tools.as_slice()),
                parallel,
            }),
            given: Some(Value::Array(given.clone())),
            tools,
            choice,
        })
    }

    /// Puts the tools where a template looks for them.
    pub fn put_into(&self, variables: &mut Map<String, Value>) {
        if let Some(given) = &self.given {
            variables.insert("tools".to_owned(), given.clone());
        }
    }

    /// What answers may call.
    pub fn offered(&self) -> Option<OfferedTools> {
        self.offered.clone()
    }
}

/// What `tool_choice` says.
fn choice(given: Option<&Value>) -> Result<Option<ToolChoice>, Refusal> {
    let must = "must be none, auto, required, or a function with its name";
    let refuse = || Refusal::of("tool_choice", must);
    let Some(given) = given else {
        return Ok(None);
    };
    let choice = match given.as_str() {
        Some("none") => ToolChoice::None,
        Some("auto") => ToolChoice::Auto,
        Some("required") => ToolChoice::Required,
        Some(_) => return Err(refuse()),
        None => {
            let is_function = given.get("type").and_then(Value::as_str) == Some("function");
            let name = given.get("function").and_then(|f| f.get("name")?.as_str());
            let name = name.filter(|_| is_function).ok_or_else(refuse)?;
            ToolChoice::Named(name.to_owned())
        }
    };
    Ok(Some(choice))
}

/// One of `tools`, or what is wrong with it.
fn tool(value: &Value) -> Result<Tool, Below> {
    if value.get("type").and_then(Value::as_str) != Some("function") {
        return Err(Below::new(".type", "must be function"));
    }
    let function = value.get("function").and_then(Value::as_object);
    let function = function.ok_or_else(|| Below::new(".function", "must be an object"))?;
    let name = function.get("name").and_then(Value::as_str).unwrap_or("");
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        let said = format!("must be 1 to {MAX_NAME} letters, digits, _, - and .");
        return Err(Below::new(".function.name", said));
    }
    let is_text = |value: &Value| value.is_string() || value.is_null();
    if !function.get("description").is_none_or(is_text) {
        return Err(Below::new(".function.description", "must be a string"));
    }
    let parameters = function.get("parameters").filter(|value| !value.is_null());
    if parameters.is_some_and(|value| !value.is_object()) {
        let said = "must be a JSON schema, an object";
        return Err(Below::new(".function.parameters", said));
    }
    Ok(Tool {
        name: name.to_owned(),
        parameters: parameters.cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::described;

    #[test]
    fn what_is_refused_is_described() {
        for path in [
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/tokenize",
        ] {
            let fields = described::fields(path);
            for name in OLD {
                assert_eq!(fields[name]["type"], "null", "{path} {name}");
                assert!(read(json!({name: {}})).is_err(), "{name}");
            }
        }
    }

    fn hermes() -> ChatTemplate {
        let source = "{{ tools }}<tool_call>{\"name\": , \"arguments\": }";
        ChatTemplate::new(source, None, None, None).unwrap()
    }

    fn read(body: Value) -> Result<Tools, Refusal> {
        Tools::read(&Fields::of(&body)?, Some(&hermes()))
    }

    fn add() -> Value {
        json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})
    }

    #[test]
    fn tools_and_their_choice_are_read() {
        assert!(read(json!({})).unwrap().offered().is_none());
        // None are none, by either name.
        for name in ["tools", "functions"] {
            assert!(read(json!({name: []})).unwrap().offered().is_none());
        }
        let read_one = read(json!({"tools": [add()], "parallel_tool_calls": false})).unwrap();
        let offered = read_one.offered().unwrap();
        assert_eq!(
            (offered.style, offered.parallel),
            (ToolStyle::Hermes, false)
        );
        assert_eq!(read_one.choice, ToolChoice::Auto);
        let named = json!({"type": "function", "function": {"name": "add"}});
        let body = json!({"tools": [add()], "tool_choice": named});
        assert_eq!(read(body).unwrap().choice, ToolChoice::Named("add".into()));
        let body = json!({"tools": [add()], "tool_choice": "none"});
        assert!(read(body).unwrap().offered().is_none());
        for (param, body) in [
            ("tools", json!({"tools": {}})),
            ("tools", json!({"tools": [{"type": "web_search"}]})),
            ("tools", json!({"tools": [{"type": "function"}]})),
            (
                "tools",
                json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            ),
            (
                "tools",
                json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            ),
            ("tools", json!({"tools": [add(), add()]})),
            ("tools", json!({"tools": vec![add(); 129]})),
            (
                "tool_choice",
                json!({"tools": [add()], "tool_choice": "any"}),
            ),
            ("tool_choice", json!({"tool_choice": "required"})),
            (
                "tool_choice",
                json!({"tools": [add()], "tool_choice": {"type": "function", "function": {"name": "sub"}}}),
            ),
            ("parallel_tool_calls", json!({"parallel_tool_calls": 1})),
            ("functions", json!({"functions": [{"name": "f"}]})),
            ("functions", json!({"functions": {}})),
            ("function_call", json!({"function_call": "auto"})),
        ] {
            let refused = read(body.clone()).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{body}");
        }
        let tagged = "{{ tools }}<tool_call><function=<parameter=";
        let tagged = ChatTemplate::new(tagged, None, None, None).unwrap();
        let parameters = json!({"properties": {"a>b": {"type": "integer"}}});
        let odd =
            json!({"type": "function", "function": {"name": "odd", "parameters": parameters}});
        let body = json!({"tools": [add(), odd]});
        assert!(read(body.clone()).is_ok());
        let refused = Tools::read(&Fields::of(&body).unwrap(), Some(&tagged)).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("tools"));
        assert!(refused.to_string().contains("\"a>b\""), "{refused}");
        let plain = ChatTemplate::new("{{ messages }}", None, None, None).unwrap();
        let body = json!({"tools": [add()]});
        let refused = Tools::read(&Fields::of(&body).unwrap(), Some(&plain)).unwrap_err();
        assert!(refused.to_string().contains("template"), "{refused}");
    }
}
