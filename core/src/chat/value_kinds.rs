//! What a value that is no JSON may be, as far as its schema says, and the JSON it then is. Knows no tags.

use serde_json::Value;

/// References of a schema that are followed, one from another.
const MAX_REFERENCES: usize = 8;
/// Longest reference that is followed, bytes.
const MAX_REFERENCE: usize = 1024;
/// Work for one value: a schema that is looked at costs [`SCHEMA_WORK`], a value that is listed 1. A schema may
/// refer to itself many times over, so that its depth alone bounds nothing.
const MAX_WORK: usize = 256 * SCHEMA_WORK;
const SCHEMA_WORK: usize = 16;

/// What a value may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Of the member of this name in an object of this schema. What is too much to look at may be anything.
    pub(super) fn of_member(schema: Option<&Value>, key: &str) -> Self {
        let member = schema.and_then(|root| Some((root, root.get("properties")?.get(key)?)));
        let mut left = MAX_WORK;
        member.map_or(Self::ANY, |(root, member)| {
            Self::of(root, member, 0, &mut left)
        })
    }

    fn of(root: &Value, schema: &Value, depth: usize, left: &mut usize) -> Self {
        if depth > MAX_REFERENCES || !pay(left, SCHEMA_WORK) {
            return Self::ANY;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let at = reference.strip_prefix('#');
            let at = at.filter(|at| at.len() <= MAX_REFERENCE);
            let found = at.and_then(|at| root.pointer(at));
            return found.map_or(Self::ANY, |found| Self::of(root, found, depth + 1, left));
        }
        let mut kinds = Self::ANY;
        if let Some(named) = schema.get("type") {
            let named = named
                .as_array()
                .map_or(std::slice::from_ref(named), |all| all);
            kinds.keep(Self::of_all(named, left, |named, _| match named.as_str() {
                Some("string") => Self::of_value(named),
                Some("null") => Self::of_value(&Value::Null),
                _ => Self::of_value(&Value::from(0)),
            }));
        }
        let listed = schema.get("enum").and_then(Value::as_array);
        let constant = schema.get("const").map(std::slice::from_ref);
        for listed in listed.map(Vec::as_slice).into_iter().chain(constant) {
            kinds.keep(Self::of_all(listed, left, |value, _| Self::of_value(value)));
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(several) = schema.get(name).and_then(Value::as_array) {
                kinds.keep(Self::of_all(several, left, |one, left| {
                    Self::of(root, one, depth + 1, left)
                }));
            }
        }
        kinds
    }

    /// Of all of these together; any, where they are too many to look at.
    fn of_all(
        all: &[Value],
        left: &mut usize,
        mut of: impl FnMut(&Value, &mut usize) -> Self,
    ) -> Self {
        let mut kinds = Self::default();
        for one in all {
            if kinds == Self::ANY || !pay(left, 1) {
                return Self::ANY;
            }
            let Self { text, null, other } = of(one, left);
            kinds.text |= text;
            kinds.null |= null;
            kinds.other |= other;
        }
        kinds
    }

    fn of_value(value: &Value) -> Self {
        Self {
            text: value.is_string(),
            null: value.is_null(),
            other: !value.is_string() && !value.is_null(),
        }
    }

    /// Leaves what is among these too; a schema that leaves nothing says nothing.
    fn keep(&mut self, these: Self) {
        let both = Self {
            text: self.text && these.text,
            null: self.null && these.null,
            other: self.other && these.other,
        };
        if both != Self::default() {
            *self = both;
        }
    }

    /// A value as JSON: what may be a text and not anything is one, whatever it looks like.
    pub(super) fn as_json(self, text: &str) -> String {
        let said = text.trim();
        let read = match said {
            "null" | "None" if self.null => Some("null"),
            _ if self.text && self != Self::ANY => None,
            "True" => Some("true"),
            "False" => Some("false"),
            _ => serde_json::from_str::<Value>(said).is_ok().then_some(said),
        };
        match read {
            Some(json) => json.to_owned(),
            None => Value::from(text).to_string(),
        }
    }
}

/// Takes work off what is left, if there is so much.
fn pay(left: &mut usize, work: usize) -> bool {
    let rest = left.checked_sub(work);
    *left = rest.unwrap_or(0);
    rest.is_some()
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
            "list": {"type": "array"}, "flag": {"type": "boolean"}, "one": {"enum": ["1", "2"]},
            "listed": {"type": ["string", "null"], "enum": ["null", "1"]}}});
        let of = |key: &str, text: &str| Kinds::of_member(Some(&root), key).as_json(text);
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
            ("listed", "null", "\"null\""),
            ("loop", "{}", "{}"),
            ("unknown", "4", "4"),
            ("unknown", "a b", "\"a b\""),
        ] {
            assert_eq!(of(key, text), expected, "{key}: {text}");
        }
        assert_eq!(Kinds::of_member(None, "a").as_json("x"), "\"x\"");
    }

    /// Each of these would take longer than anyone waits, were it followed to its end.
    #[test]
    fn a_schema_that_refers_to_itself_is_not_followed_to_its_end() {
        let number = json!({"type": "integer"});
        for name in ["anyOf", "oneOf"] {
            let mut several = vec![json!({"$ref": "#/$defs/wide"}); 300];
            several.insert(0, number.clone());
            let root = json!({"$defs": {"wide": {name: several}}, "properties": {
                "wide": {"$ref": "#/$defs/wide"}, "number": number}});
            assert_eq!(Kinds::of_member(Some(&root), "wide"), Kinds::ANY);
            assert!(!Kinds::of_member(Some(&root), "number").text);
        }
        let next =
            |name: &str| json!({"anyOf": vec![json!({"$ref": format!("#/$defs/{name}")}); 3000]});
        let root = json!({"$defs": {"a": next("b"), "b": next("c"), "c": next("n"), "n": number},
            "properties": {"layers": next("a")}});
        assert_eq!(Kinds::of_member(Some(&root), "layers"), Kinds::ANY);
        let texts: Vec<String> = (0..4000).map(|n| n.to_string()).collect();
        let twice = [texts.clone(), texts.clone()].concat();
        let root = json!({"properties": {"few": {"enum": texts}, "many": {"enum": twice}}});
        let text = Kinds {
            text: true,
            ..Kinds::default()
        };
        assert_eq!(Kinds::of_member(Some(&root), "few"), text);
        assert_eq!(Kinds::of_member(Some(&root), "many"), Kinds::ANY);
        let long = "a".repeat(MAX_REFERENCE + 1);
        let at = format!("#/$defs/{long}");
        let root = json!({"$defs": {long: {"type": "null"}}, "properties": {"a": {"$ref": at}}});
        assert_eq!(Kinds::of_member(Some(&root), "a"), Kinds::ANY);
    }
}
