//! One call of a tool as its text comes, where arguments stand between tags and their values are no JSON:
//! `<function=NAME><parameter=KEY>VALUE</parameter>…</function>`. What a value is, the tool's schema says. Knows no
//! marks around the call.

use std::sync::Arc;

use serde_json::Value;

use super::call_reader::Progress;
use super::tool_form::Tool;

const FUNCTION: &str = "<function=";
const END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const END_PARAMETER: &str = "</parameter>";
/// Longest tag, bytes.
const MAX_TAG: usize = 256;
/// References of a schema that are followed.
const MAX_REFERENCES: usize = 8;

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// In the tag that names the tool.
    Name,
    /// Between values, perhaps in a tag.
    Between,
    /// In the value of this argument.
    Value(String),
}

/// What is known of a call.
#[derive(Clone, Debug)]
pub(super) struct TaggedReader {
    tools: Arc<[Tool]>,
    state: State,
    /// The tag that comes, or the value.
    text: String,
    /// The tool, by its place.
    tool: Option<usize>,
    /// JSON of the arguments so far.
    arguments: String,
    /// Bytes of them that were handed out.
    handed: usize,
    begun: bool,
}

impl TaggedReader {
    /// A call that begins with the next character, a `<`, of one of these tools.
    pub(super) fn new(tools: Arc<[Tool]>) -> Self {
        Self {
            tools,
            state: State::Name,
            text: String::new(),
            tool: None,
            arguments: String::new(),
            handed: 0,
            begun: false,
        }
    }

    /// What was read, where no call has begun.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Whether it was said that a call begins.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Goes on by a character.
    pub(super) fn push(&mut self, c: char) -> Progress {
        match &self.state {
            State::Name => self.in_name(c),
            State::Between => self.between(c),
            State::Value(_) => self.in_value(c),
        }
    }

    fn in_name(&mut self, c: char) -> Progress {
        if let Some(name) = self.text.strip_prefix(FUNCTION)
            && c == '>'
        {
            self.tool = self.tools.iter().position(|tool| tool.name == name);
            if self.tool.is_none() {
                return Progress::Wrong;
            }
            self.text.clear();
            self.arguments.push('{');
            self.state = State::Between;
            return Progress::Going;
        }
        self.in_tag(c, &[FUNCTION])
    }

    fn between(&mut self, c: char) -> Progress {
        if self.text.is_empty() && c.is_whitespace() {
            return Progress::Going;
        }
        if let Some(key) = self.text.strip_prefix(PARAMETER)
            && c == '>'
        {
            self.state = State::Value(key.to_owned());
            self.text.clear();
            return Progress::Going;
        }
        let progress = self.in_tag(c, &[PARAMETER, END]);
        if self.text == END {
            self.arguments.push('}');
            return Progress::Whole;
        }
        progress
    }

    /// In one of these tags, or behind it in what it names.
    fn in_tag(&mut self, c: char, tags: &[&str]) -> Progress {
        self.text.push(c);
        let may_be = |tag: &&str| {
            let names = tag.ends_with('=') && self.text.starts_with(*tag) && c != '\n';
            tag.starts_with(&*self.text) || names
        };
        if self.text.len() <= MAX_TAG && tags.iter().any(may_be) {
            return Progress::Going;
        }
        self.text.pop();
        Progress::Wrong
    }

    fn in_value(&mut self, c: char) -> Progress {
        self.text.push(c);
        let State::Value(key) = &self.state else {
            return Progress::Going;
        };
        if let Some(value) = self.text.strip_suffix(END_PARAMETER) {
            // Each line end beside a tag is the tag's.
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            let tool = self.tool.and_then(|place| self.tools.get(place));
            let schema = tool.and_then(|tool| tool.parameters.as_ref());
            let value = as_json(value, &Kinds::of_member(schema, key));
            if self.arguments.len() > 1 {
                self.arguments.push_str(", ");
            }
            let key = Value::from(key.as_str());
            self.arguments.push_str(&format!("{key}: {value}"));
            self.text.clear();
            self.state = State::Between;
        }
        Progress::Going
    }

    /// The name, once, when it is certain that a call begins.
    pub(super) fn take_beginning(&mut self) -> Option<String> {
        if self.begun {
            return None;
        }
        let name = self.tools.get(self.tool?)?.name.clone();
        self.begun = true;
        Some(name)
    }

    /// What of the arguments was not handed out yet.
    pub(super) fn take_arguments(&mut self) -> &str {
        let new = &self.arguments[self.handed..];
        self.handed = self.arguments.len();
        new
    }
}

/// What a value may be, as far as its schema says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// A text.
    pub(super) text: bool,
    /// Null.
    pub(super) null: bool,
    /// Something else.
    pub(super) other: bool,
}

impl Kinds {
    const ANY: Self = Self {
        text: true,
        null: true,
        other: true,
    };

    /// Of the member of this name in an object of this schema.
    pub(super) fn of_member(schema: Option<&Value>, key: &str) -> Self {
        let Some(root) = schema else {
            return Self::ANY;
        };
        let member = root.get("properties").and_then(|all| all.get(key));
        member.map_or(Self::ANY, |member| Self::of(root, member, 0))
    }

    fn of(root: &Value, schema: &Value, depth: usize) -> Self {
        if depth > MAX_REFERENCES {
            return Self::ANY;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let found = reference.strip_prefix('#').and_then(|at| root.pointer(at));
            return found.map_or(Self::ANY, |found| Self::of(root, found, depth + 1));
        }
        let mut kinds = Self::default();
        let named = schema.get("type");
        let named = named.map(|named| named.as_array().map_or(std::slice::from_ref(named), |n| n));
        for kind in named.into_iter().flatten() {
            match kind.as_str() {
                Some("string") => kinds.text = true,
                Some("null") => kinds.null = true,
                _ => kinds.other = true,
            }
        }
        if named.is_some() {
            return kinds;
        }
        let listed = schema.get("enum").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().chain(schema.get("const"));
        for value in listed {
            match value {
                Value::String(_) => kinds.text = true,
                Value::Null => kinds.null = true,
                _ => kinds.other = true,
            }
        }
        for name in ["anyOf", "oneOf"] {
            let several = schema.get(name).and_then(Value::as_array);
            for one in several.into_iter().flatten() {
                let Self { text, null, other } = Self::of(root, one, depth + 1);
                kinds.text |= text;
                kinds.null |= null;
                kinds.other |= other;
            }
        }
        match kinds == Self::default() {
            true => Self::ANY,
            false => kinds,
        }
    }
}

/// A value as JSON: what may be a text and nothing else is one, whatever it looks like.
fn as_json(text: &str, kinds: &Kinds) -> String {
    let said = text.trim();
    let is_any = *kinds == Kinds::ANY;
    let read = match said {
        "null" | "None" if kinds.null => Some("null"),
        _ if kinds.text && !is_any => None,
        "True" => Some("true"),
        "False" => Some("false"),
        _ => serde_json::from_str::<Value>(said).is_ok().then_some(said),
    };
    match read {
        Some(json) => json.to_owned(),
        None => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_what_its_schema_says() {
        let root = json!({"type": "object", "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
        "properties": {
            "text": {"type": "string"}, "number": {"$ref": "#/$defs/n"}, "loop": {"$ref": "#/$defs/loop"},
            "maybe": {"type": ["string", "null"]}, "union": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "list": {"type": "array"}, "flag": {"type": "boolean"}, "one": {"enum": ["1", "2"]}}});
        let of = |key: &str, text: &str| as_json(text, &Kinds::of_member(Some(&root), key));
        for (key, text, expected) in [
            ("text", "12", "\"12\""),
            ("text", "null", "\"null\""),
            ("text", " a\n\"b\" ", "\" a\\n\\\"b\\\" \""),
            ("number", "12", "12"),
            ("number", "twelve", "\"twelve\""),
            ("maybe", "null", "null"),
            ("maybe", "3", "\"3\""),
            ("union", "None", "null"),
            ("union", "1.5", "1.5"),
            ("list", "[1, \"a\"]", "[1, \"a\"]"),
            ("flag", "True", "true"),
            ("one", "1", "\"1\""),
            ("loop", "{}", "{}"),
            ("unknown", "4", "4"),
            ("unknown", "a b", "\"a b\""),
        ] {
            assert_eq!(of(key, text), expected, "{key}: {text}");
        }
        assert_eq!(as_json("x", &Kinds::of_member(None, "a")), "\"x\"");
    }
}
