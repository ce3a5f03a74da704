//! The bounds of a schema's numbers, as far as the library computes with them: 64-bit integers, and their
//! neighbours.

use crate::types::StructuredOutputError;
use serde_json::Value;

/// Bounds reach so far from 0.
const MOST: f64 = 9e18;

/// Members whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Moves bounds that lie further out (such as the least 64-bit integer, which generated schemas like to
/// give) inwards. Whatever is drawn still keeps the schema, as numbers between are left out and none is
/// let in.
///
/// # Errors
/// [`StructuredOutputError::Refused`] where nothing would be left.
pub(super) fn tighten(name: &'static str, schema: &mut Value) -> Result<(), StructuredOutputError> {
    let mut todo = vec![schema];
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(values) => todo.extend(values),
            Value::Object(members) => {
                for (key, value) in members.iter_mut() {
                    let lower = match key.as_str() {
                        "minimum" | "exclusiveMinimum" => true,
                        "maximum" | "exclusiveMaximum" => false,
                        _ => {
                            if !DATA.contains(&key.as_str()) {
                                todo.push(value);
                            }
                            continue;
                        }
                    };
                    match value.as_f64() {
                        Some(bound) if bound.abs() <= MOST => {}
                        Some(bound) if (bound < 0.0) == lower => {
                            *value = Value::from(bound.signum() as i64 * MOST as i64);
                        }
                        Some(_) => {
                            let message = format!(
                                "{key} is {value}, and numbers beyond 9e18 are not drawn: give a \
                                 smaller bound"
                            );
                            return Err(StructuredOutputError::Refused { name, message });
                        }
                        // A property of that name.
                        None => todo.push(value),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_bounds_that_reach_too_far_move() {
        let mut schema = json!({
            "properties": {
                "minimum": {"type": "integer", "minimum": i64::MIN, "maximum": 5},
                "b": {"anyOf": [{"exclusiveMaximum": 1e300}, {"minimum": -1.5}]},
            },
            "const": {"minimum": i64::MIN},
        });
        tighten("json", &mut schema).unwrap();
        let expected = json!({
            "properties": {
                "minimum": {
                    "type": "integer", "minimum": -9_000_000_000_000_000_000_i64, "maximum": 5
                },
                "b": {"anyOf": [
                    {"exclusiveMaximum": 9_000_000_000_000_000_000_i64}, {"minimum": -1.5}
                ]},
            },
            "const": {"minimum": i64::MIN},
        });
        assert_eq!(schema, expected);
        for empty in [json!({"maximum": -9.3e18}), json!({"minimum": u64::MAX})] {
            assert!(tighten("json", &mut empty.clone()).is_err());
        }
    }
}
