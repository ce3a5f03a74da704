//! What of a JSON schema is looked at before it is compiled: only whether compiling it is bounded.

use super::chain::heaviest_chain;
use super::integer_bounds;
use super::limits::{self, check};
use crate::types::StructuredOutputError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Reads a schema and holds it against the limits.
///
/// # Errors
/// What is no JSON, with its place, or too much.
pub(super) fn parse(name: &'static str, text: &str) -> Result<Value, StructuredOutputError> {
    check(
        name,
        "its length in bytes",
        text.len(),
        limits::MAX_SCHEMA_BYTES,
    )?;
    let mut schema =
        serde_json::from_str(text).map_err(|error| StructuredOutputError::Refused {
            name,
            message: format!("the schema is no JSON: {error}"),
        })?;
    check_schema(name, &schema)?;
    integer_bounds::tighten(name, &mut schema)?;
    Ok(schema)
}

/// Holds a schema against the limits.
///
/// # Errors
/// [`StructuredOutputError::TooLarge`].
pub(super) fn check_schema(
    name: &'static str,
    schema: &Value,
) -> Result<(), StructuredOutputError> {
    let mut sizes = Sizes::default();
    walk(schema, &mut |value| sizes.count(value));
    let Sizes {
        members,
        elements,
        pattern_properties,
        pattern_bytes,
        ref multiples,
    } = sizes;
    check(
        name,
        "the number of members of an object",
        members,
        limits::MAX_MEMBERS,
    )?;
    check(
        name,
        "the length of an array",
        elements,
        limits::MAX_ELEMENTS,
    )?;
    let what = "the number of patterns in patternProperties";
    check(
        name,
        what,
        pattern_properties,
        limits::MAX_PATTERN_PROPERTIES,
    )?;
    let what = "the length of all patterns in bytes";
    check(name, what, pattern_bytes, limits::MAX_PATTERN_BYTES)?;
    let what = "the least common multiple of every multipleOf, in their last decimal";
    check(name, what, common_multiple(multiples), limits::MAX_MULTIPLE)?;
    let what = "the depth of what is nested or referred to";
    check(name, what, levels(schema), limits::MAX_SCHEMA_LEVELS)?;
    let mut meeting = Meeting {
        root: schema,
        found: HashMap::new(),
    };
    let what = "the number of patterns and formats that one string has to meet";
    check(
        name,
        what,
        meeting.in_schema(schema),
        limits::MAX_INTERSECTIONS,
    )
}

/// Calls `each` with every value.
fn walk<'a>(value: &'a Value, each: &mut impl FnMut(&'a Value)) {
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        each(value);
        match value {
            Value::Array(values) => todo.extend(values),
            Value::Object(members) => todo.extend(members.values()),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Sizes {
    members: usize,
    elements: usize,
    pattern_properties: usize,
    pattern_bytes: usize,
    multiples: Vec<f64>,
}

impl Sizes {
    fn count(&mut self, value: &Value) {
        match value {
            Value::Array(values) => self.elements = self.elements.max(values.len()),
            Value::Object(members) => {
                self.members = self.members.max(members.len());
                if let Some(Value::Object(patterns)) = members.get("patternProperties") {
                    self.pattern_properties = self.pattern_properties.max(patterns.len());
                    self.pattern_bytes += patterns.keys().map(String::len).sum::<usize>();
                }
                // Also `whitespace_pattern` of `x-guidance`.
                for key in ["pattern", "whitespace_pattern"] {
                    if let Some(Value::String(pattern)) = members.get(key) {
                        self.pattern_bytes += pattern.len();
                    }
                }
                let multiple = members.get("multipleOf").and_then(Value::as_f64);
                self.multiples.extend(multiple);
            }
            _ => {}
        }
    }
}

/// The least common multiple in units of the finest decimal; `usize::MAX` where it leaves all bounds.
fn common_multiple(multiples: &[f64]) -> usize {
    const MOST: f64 = 1e9;
    let mut scale = 1.0;
    while multiples
        .iter()
        .any(|multiple| (multiple * scale).fract() != 0.0)
    {
        scale *= 10.0;
        if scale > MOST {
            return usize::MAX;
        }
    }
    let mut common = 1u64;
    for multiple in multiples.iter().map(|multiple| multiple * scale) {
        if !(0.0..=MOST).contains(&multiple) {
            return usize::MAX;
        }
        let multiple = (multiple as u64).max(1);
        common = common / gcd(common, multiple) * multiple;
        if common as f64 > MOST {
            return usize::MAX;
        }
    }
    common as usize
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// How deep compiling may have to go.
fn levels(schema: &Value) -> usize {
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut places = vec![schema];
    // Of the schema itself, and of what is referred to.
    let mut weights = Vec::new();
    let mut next = Vec::new();
    let mut at = 0;
    while let Some(&place) = places.get(at) {
        let mut targets = Vec::new();
        walk(place, &mut |value| {
            if let Some(reference) = reference(value) {
                let known = *names.entry(reference).or_insert_with(|| {
                    places.push(resolve(schema, reference));
                    places.len() - 1
                });
                targets.push(known);
            }
        });
        targets.sort_unstable();
        targets.dedup();
        weights.push(depth(place));
        next.push(targets);
        at += 1;
    }
    heaviest_chain(&weights, &next)
}

fn reference(value: &Value) -> Option<&str> {
    value.get("$ref").and_then(Value::as_str)
}

/// What a reference means, as the library has it; nothing where it means nothing.
fn resolve<'a>(schema: &'a Value, reference: &str) -> &'a Value {
    let Some(path) = reference.strip_prefix('#') else {
        return &Value::Null;
    };
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut place = Some(schema);
    for segment in segments {
        place = place.and_then(|place| match place {
            Value::Array(values) => segment.parse().ok().and_then(|i: usize| values.get(i)),
            _ => place.get(segment),
        });
    }
    place.unwrap_or(&Value::Null)
}

fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut todo = vec![(value, 1)];
    while let Some((value, depth)) = todo.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(values) => todo.extend(values.iter().map(|v| (v, depth + 1))),
            Value::Object(members) => todo.extend(members.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// How many patterns and formats may meet in one string, at most: those beside each other and of all
/// parts of an `allOf` join, of an `anyOf` one part does.
struct Meeting<'a> {
    root: &'a Value,
    /// By reference; `None` while it is being counted, which adds nothing.
    found: HashMap<&'a str, Option<usize>>,
}

impl<'a> Meeting<'a> {
    fn in_schema(&mut self, value: &'a Value) -> usize {
        match value {
            Value::Array(values) => self.most(values.iter()),
            Value::Object(members) => self.in_object(members),
            _ => 0,
        }
    }

    fn most(&mut self, values: impl Iterator<Item = &'a Value>) -> usize {
        values.map(|value| self.in_schema(value)).max().unwrap_or(0)
    }

    fn in_object(&mut self, members: &'a Map<String, Value>) -> usize {
        let mut meeting = 0usize;
        let mut inside = 0;
        for (key, value) in members {
            match (key.as_str(), value) {
                ("pattern" | "format", Value::String(_)) => meeting += 1,
                ("allOf", Value::Array(all)) => {
                    for part in all {
                        meeting = meeting.saturating_add(self.in_schema(part));
                    }
                }
                ("anyOf" | "oneOf", Value::Array(any)) => meeting += self.most(any.iter()),
                ("$ref", Value::String(reference)) => meeting += self.referred_to(reference),
                // Parts that objects of an `allOf` have in common join too.
                _ => inside = inside.max(self.in_schema(value)),
            }
        }
        meeting.saturating_add(inside)
    }

    fn referred_to(&mut self, reference: &'a str) -> usize {
        if let Some(found) = self.found.get(reference) {
            return found.unwrap_or(0);
        }
        self.found.insert(reference, None);
        let found = self.in_schema(resolve(self.root, reference));
        self.found.insert(reference, Some(found));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn multiples_are_counted_in_their_last_decimal() {
        assert_eq!(common_multiple(&[]), 1);
        assert_eq!(common_multiple(&[5.0, 6.0]), 30);
        assert_eq!(common_multiple(&[0.25, 5.0]), 500);
        assert_eq!(common_multiple(&[1e12]), usize::MAX);
        assert_eq!(common_multiple(&[9973.0, 9967.0, 9949.0]), usize::MAX);
    }

    #[test]
    fn references_are_followed() {
        let schema = json!({
            "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"type": "null"}},
            "$ref": "#/$defs/a",
        });
        // The schema holds its definitions: 5 levels, then 3 and 2.
        assert_eq!(levels(&schema), 5 + 3 + 2);
        // A circle: the schema, and what it refers to.
        assert_eq!(levels(&json!({"items": {"$ref": "#"}})), 3 + 3);
        assert_eq!(levels(&json!({"$ref": "#/no/such"})), 2 + 1);
    }

    #[test]
    fn patterns_that_meet_are_counted() {
        let count = |schema: Value| {
            Meeting {
                root: &schema,
                found: HashMap::new(),
            }
            .in_schema(&schema)
        };
        let one = json!({"pattern": "a"});
        assert_eq!(count(json!({"properties": {"a": one, "b": one}})), 1);
        assert_eq!(count(json!({"allOf": [one, one], "format": "date"})), 3);
        assert_eq!(count(json!({"anyOf": [one, {"allOf": [one, one]}]})), 2);
        let own = json!({"properties": {"a": one}});
        assert_eq!(count(json!({"properties": {"a": one}, "allOf": [own]})), 2);
        let circle =
            json!({"$defs": {"a": {"pattern": "a", "$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"});
        // Once as the definition, twice as what it refers to.
        assert_eq!(count(circle), 3);
    }
}
