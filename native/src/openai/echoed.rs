//! What a request to `/v1/responses` says that its response says again. Kept as text as long as the request runs:
//! values of JSON take dozens of times their text, and requests wait in numbers.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::refusal::Refusal;

/// Most pairs of `metadata`, and most bytes of its names and values, OpenAI's.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

/// Texts that nothing else reads, and the most bytes of each.
const TEXTS: [(&str, usize); 2] = [("user", 512), ("service_tier", 64)];

/// Objects of which only these members are said again.
const MEMBERS: [(&str, [&str; 2]); 2] = [
    ("reasoning", ["effort", "summary"]),
    ("text", ["format", "verbosity"]),
];

/// Of them those that are words, of so many bytes at most.
const WORDS: [(&str, &str); 3] = [
    ("reasoning", "effort"),
    ("reasoning", "summary"),
    ("text", "verbosity"),
];
const MAX_WORD: usize = 64;

/// The fields, and what a response says where they were left out, in JSON.
const DEFAULTS: [(&str, &str); 11] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("reasoning", r#"{"effort": null, "summary": null}"#),
    ("text", r#"{"format": {"type": "text"}}"#),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
    ("service_tier", "\"default\""),
];

/// The fields that one request has.
#[derive(Clone, Debug)]
pub struct Echoed {
    /// An object.
    json: Box<str>,
}

impl Default for Echoed {
    fn default() -> Self {
        Self { json: "{}".into() }
    }
}

impl Echoed {
    /// Takes them out of a body.
    ///
    /// # Errors
    /// Those that nothing else reads are not what they must be.
    pub fn of(body: &Value) -> Result<Self, Refusal> {
        let fields = Fields::of(body)?;
        for (name, most) in TEXTS {
            check_text(name, fields.get(name), most)?;
        }
        for (name, member) in WORDS {
            let value = fields.object(name)?.and_then(|object| object.get(member));
            check_text(&format!("{name}.{member}"), value, MAX_WORD)?;
        }
        check_metadata(&fields)?;
        let given = DEFAULTS.into_iter().filter_map(|(name, _)| {
            let value = fields.get(name)?;
            let members = MEMBERS.iter().find(|(object, _)| *object == name);
            let value = match (members, value) {
                (Some((_, members)), Value::Object(all)) => {
                    let known = members
                        .iter()
                        .filter_map(|member| all.get_key_value(*member));
                    known
                        .map(|(member, value)| (member.clone(), value.clone()))
                        .collect()
                }
                _ => value.clone(),
            };
            Some((name.to_owned(), value))
        });
        let given: Map<String, Value> = given.collect();
        Ok(Self {
            json: Value::Object(given).to_string().into(),
        })
    }

    /// Bytes it takes.
    pub fn num_bytes(&self) -> usize {
        self.json.len()
    }

    /// Puts them into a response, all that there are.
    pub fn put_into(&self, response: &mut Map<String, Value>) {
        let given: Map<String, Value> =
            serde_json::from_str(&self.json).expect("it was written here, from what was read");
        let left_out = DEFAULTS
            .into_iter()
            .filter(|(name, _)| !given.contains_key(*name));
        response.extend(left_out.map(|(name, default)| {
            let value = serde_json::from_str(default).expect("a test reads each of them");
            (name.to_owned(), value)
        }));
        response.extend(given);
    }
}

/// Whether what may be left out is a text of at most so many bytes.
fn check_text(name: &str, value: Option<&Value>, most: usize) -> Result<(), Refusal> {
    let fits =
        |value: &Value| value.is_null() || value.as_str().is_some_and(|text| text.len() <= most);
    match value {
        Some(value) if !fits(value) => {
            let said = format!("must be a string of at most {most} bytes");
            Err(Refusal::of(name, said))
        }
        _ => Ok(()),
    }
}

fn check_metadata(fields: &Fields<'_>) -> Result<(), Refusal> {
    let (most, name_bytes, value_bytes) = MAX_METADATA;
    let fits = |(name, value): (&String, &Value)| {
        let value = value.as_str().map(str::len);
        name.len() <= name_bytes && value.is_some_and(|bytes| bytes <= value_bytes)
    };
    match fields.object("metadata")? {
        Some(pairs) if pairs.len() > most || !pairs.iter().all(fits) => {
            let said = format!(
                "must have at most {most} strings of {value_bytes} bytes, with names of {name_bytes}"
            );
            Err(Refusal::of("metadata", said))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_said_again_is_kept() {
        let body = json!({
            "input": "a ".repeat(100_000), "unheard_of": vec![json!({}); 1000], "model": "m",
            "tools": [{"type": "function", "name": "f"}], "truncation": "auto", "user": null,
            "metadata": {"a": "b"},
        });
        let echoed = Echoed::of(&body).unwrap();
        assert!(echoed.json.len() < 200, "{}", echoed.json);
        let mut response = Map::new();
        echoed.put_into(&mut response);
        assert_eq!(response.len(), DEFAULTS.len());
        for (name, default) in DEFAULTS {
            let default: Value = serde_json::from_str(default).unwrap();
            let given = body.get(name).filter(|value| !value.is_null());
            assert_eq!(&response[name], given.unwrap_or(&default), "{name}");
        }
    }

    #[test]
    fn of_objects_only_known_members_are_said_again() {
        let known = json!({
            "reasoning": {"effort": "low", "summary": null},
            "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        });
        let mut body = known.clone();
        for name in ["reasoning", "text"] {
            body[name]["unheard_of"] = json!("a ".repeat(100_000));
        }
        let mut response = Map::new();
        Echoed::of(&body).unwrap().put_into(&mut response);
        for name in ["reasoning", "text"] {
            assert_eq!(response[name], known[name]);
        }
    }

    #[test]
    fn what_nothing_else_reads_is_read_here() {
        let pairs = |n: usize| (0..n).map(|i| (i.to_string(), json!("v"))).collect();
        let many: Map<String, Value> = pairs(17);
        for (param, wrong) in [
            ("metadata", json!([])),
            ("metadata", json!(many)),
            ("metadata", json!({"a": {"b": []}})),
            ("metadata", json!({"a": "b".repeat(513)})),
            ("metadata", json!({"a".repeat(65): "b"})),
            ("user", json!({"a": []})),
            ("service_tier", json!([])),
            ("user", json!("a".repeat(513))),
            ("service_tier", json!("a".repeat(65))),
            ("reasoning", json!("high")),
            ("text", json!([])),
        ] {
            let refused = Echoed::of(&json!({param: wrong})).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{wrong}");
        }
        for (name, member) in WORDS {
            for wrong in [json!({}), json!(1), json!("a".repeat(65))] {
                let refused = Echoed::of(&json!({name: {member: wrong}})).unwrap_err();
                let path = format!("{name}.{member}");
                assert_eq!(refused.param.as_deref(), Some(&*path), "{wrong}");
            }
        }
        let longest = json!({"user": "a".repeat(512), "service_tier": "a".repeat(64)});
        assert!(Echoed::of(&longest).is_ok());
        let most: Map<String, Value> = pairs(16);
        assert!(Echoed::of(&json!({"metadata": most})).is_ok());
    }
}
