//! The steps a `tokenizer.json` asks for around its model. Owns the checks that keep them from
//! panicking inside the tokenizers library and from blowing up a text; knows no vocabulary.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

use super::TextError;

/// Most JSON values one component may be written with.
const MAX_VALUES: usize = 1024;
/// Deepest nesting of one component, levels of JSON. The library tries every kind of step at every
/// level, so its time grows with a power of the depth.
const MAX_DEPTH: usize = 16;
/// Most steps of one component, each of which walks the whole text.
const MAX_STEPS: usize = 64;
/// Most bytes the steps of one component may make of one byte of text. Llama's make 12.
const MAX_EXPANSION: usize = 1024;

/// The components as the file writes them.
pub(super) struct Components<'a> {
    pub(super) normalizer: &'a Value,
    pub(super) pre_tokenizer: &'a Value,
    pub(super) decoder: &'a Value,
    pub(super) post_processor: &'a Value,
}

impl Components<'_> {
    /// Whether the library can be given these. To be asked before it reads the file, as it
    /// normalizes the added tokens then.
    ///
    /// # Errors
    /// [`TextError`], with the name of the component.
    pub(super) fn check(&self) -> Result<(), TextError> {
        check::<NormalizerWrapper>("normalizer", self.normalizer)?;
        check::<PreTokenizerWrapper>("pre_tokenizer", self.pre_tokenizer)?;
        check::<DecoderWrapper>("decoder", self.decoder)?;
        check::<PostProcessorWrapper>("post_processor", self.post_processor)
    }
}

fn check<T: DeserializeOwned + Serialize>(
    field: &'static str,
    component: &Value,
) -> Result<(), TextError> {
    if component.is_null() {
        return Ok(());
    }
    let unsupported = |found: &str, supported: String| TextError::Unsupported {
        field,
        found: found.to_owned(),
        supported,
    };
    let mut values = 0;
    if !fits(component, 0, &mut values) {
        return Err(unsupported(
            "too large or nested too deep",
            format!("{MAX_VALUES} values in {MAX_DEPTH} levels"),
        ));
    }
    // The library takes steps without a type and fields in any form; as it writes them itself,
    // there is one form.
    let malformed = |e: serde_json::Error| TextError::Malformed {
        field,
        found: format!("not readable ({e})"),
        expected: "it must be one the tokenizers library knows".to_owned(),
    };
    let component: T = serde_json::from_value(component.clone()).map_err(malformed)?;
    let component = serde_json::to_value(component).map_err(malformed)?;
    let (mut steps, mut expansion) = (0, 1_usize);
    each_step(&component, &mut |kind, step| {
        steps += 1;
        if steps > MAX_STEPS {
            return Err(unsupported(
                "a list of too many steps",
                format!("{MAX_STEPS} steps"),
            ));
        }
        if kind == "TemplateProcessing" {
            check_template(field, step)?;
        }
        // Not multiplied any more once it is too large, so this cannot overflow.
        expansion *= expansion_of(field, kind, step)?;
        if expansion > MAX_EXPANSION {
            return Err(unsupported(
                "one that makes long texts of short ones",
                format!("{MAX_EXPANSION} bytes for one"),
            ));
        }
        Ok(())
    })
}

fn fits(value: &Value, depth: usize, values: &mut usize) -> bool {
    *values += 1;
    *values <= MAX_VALUES
        && depth <= MAX_DEPTH
        && match value {
            Value::Object(fields) => fields.values().all(|v| fits(v, depth + 1, values)),
            Value::Array(items) => items.iter().all(|v| fits(v, depth + 1, values)),
            _ => true,
        }
}

/// Calls `f` on every object that has a type, in the order they apply.
fn each_step(
    value: &Value,
    f: &mut impl FnMut(&str, &Map<String, Value>) -> Result<(), TextError>,
) -> Result<(), TextError> {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(kind)) = fields.get("type") {
                f(kind, fields)?;
            }
            fields.values().try_for_each(|v| each_step(v, f))
        }
        Value::Array(items) => items.iter().try_for_each(|v| each_step(v, f)),
        _ => Ok(()),
    }
}

/// How many bytes a step may make of one, at most one more than [`MAX_EXPANSION`].
fn expansion_of(
    field: &'static str,
    kind: &str,
    step: &Map<String, Value>,
) -> Result<usize, TextError> {
    let length = |name| step.get(name).and_then(Value::as_str).map_or(0, str::len);
    let factor = match kind {
        "Replace" => {
            let pattern = step.get("pattern").unwrap_or(&Value::Null);
            length("content").div_ceil(shortest_match(field, pattern)?)
        }
        // Once for every part of the text, and a part may be one byte.
        "Prepend" => length("prepend").saturating_add(1),
        "Metaspace" => length("replacement") + 1,
        // Its alphabet spells a byte with up to two.
        "ByteLevel" | "Lowercase" => 2,
        // Unicode's bounds on its normal forms in UTF-8: https://unicode.org/faq/normalization.html
        "NFC" | "NFD" => 3,
        "NFKC" | "NFKD" => 11,
        // Spaces around ideographs, lower case, and decomposition before accents go.
        "BertNormalizer" => 12,
        _ => 1,
    };
    Ok(factor.clamp(1, MAX_EXPANSION + 1))
}

/// Bytes the shortest match of a `Replace` has. The library panics on a match of none.
fn shortest_match(field: &'static str, pattern: &Value) -> Result<usize, TextError> {
    let text = |name| pattern.get(name).and_then(Value::as_str);
    let shortest = match (text("String"), text("Regex")) {
        (Some(text), _) => Some(text.len()),
        (_, Some(regex)) => regex_syntax::parse(regex)
            .ok()
            .and_then(|parsed| parsed.properties().minimum_len()),
        _ => None,
    };
    shortest
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| TextError::Unsupported {
            field,
            found: format!("a Replace of {pattern}"),
            supported: "texts, and regular expressions without look-around, that match at least \
                        one byte"
                .to_owned(),
        })
}

/// A template may use the text once, as a second use doubles it, and only tokens it defines.
fn check_template(field: &'static str, step: &Map<String, Value>) -> Result<(), TextError> {
    let malformed = |found: String, expected: &str| TextError::Malformed {
        field,
        found,
        expected: expected.to_owned(),
    };
    let tokens = step.get("special_tokens").unwrap_or(&Value::Null);
    let single = step.get("single").and_then(Value::as_array);
    let mut texts = 0;
    for piece in single.into_iter().flatten() {
        if let Some(token) = piece["SpecialToken"]["id"].as_str() {
            if tokens.get(token).is_none() {
                return Err(malformed(
                    format!("a template that names {token:?}"),
                    "its special_tokens have no such token",
                ));
            }
        } else {
            texts += 1;
            if texts > 1 || piece["Sequence"]["id"] != "A" {
                return Err(malformed(
                    "a template of more than one text".to_owned(),
                    "\"single\" may hold the text A once",
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused<T: DeserializeOwned + Serialize>(component: &Value, because: &str) {
        let message = check::<T>("part", component).unwrap_err().to_string();
        assert!(message.contains("part"), "{message}");
        assert!(message.contains(because), "{message:?} lacks {because:?}");
    }

    fn sequence(steps: &[Value]) -> Value {
        json!({"type": "Sequence", "normalizers": steps})
    }

    fn replace(pattern: Value, content: &str) -> Value {
        json!({"type": "Replace", "pattern": pattern, "content": content})
    }

    #[test]
    fn a_replacement_of_nothing_is_refused() {
        for pattern in [
            json!({"String": ""}),
            json!({"Regex": ""}),
            json!({"Regex": "a*|b"}),
            json!({"Regex": "(?=a)"}),
        ] {
            refused::<NormalizerWrapper>(&replace(pattern, "x"), "at least one byte");
        }
        let untyped = json!({"normalizers": [{"content": "x", "pattern": {"Regex": ""}}]});
        refused::<NormalizerWrapper>(&untyped, "at least one byte");
    }

    #[test]
    fn texts_do_not_grow_without_bound() {
        let thousandfold = replace(json!({"String": "o"}), &"o".repeat(1000));
        check::<NormalizerWrapper>("part", &thousandfold).unwrap();
        let long = "long texts of short";
        refused::<NormalizerWrapper>(&sequence(&[thousandfold.clone(), thousandfold]), long);
        let twice = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let steps: Vec<_> = (0..20).map(|_| twice.clone()).collect();
        let steps = json!({"type": "Sequence", "pretokenizers": steps});
        refused::<PreTokenizerWrapper>(&steps, long);
        let prepend = json!({"type": "Prepend", "prepend": "x".repeat(5000)});
        refused::<NormalizerWrapper>(&prepend, long);
    }

    #[test]
    fn steps_are_neither_too_many_nor_too_deep() {
        let nothing = json!({"type": "StripAccents"});
        let steps = |count| sequence(&vec![nothing.clone(); count]);
        check::<NormalizerWrapper>("part", &steps(63)).unwrap();
        refused::<NormalizerWrapper>(&steps(64), "too many steps");
        refused::<NormalizerWrapper>(&steps(2000), "too large");
        let mut tree = nothing.clone();
        for _ in 0..50 {
            tree = sequence(&[tree]);
        }
        refused::<NormalizerWrapper>(&tree, "nested too deep");
    }

    #[test]
    fn templates_name_their_tokens_and_the_text_once() {
        let template = |single: Value| {
            json!({"type": "TemplateProcessing", "single": single, "pair": [],
                   "special_tokens": {"a": {"id": "a", "ids": [1], "tokens": ["a"]}}})
        };
        let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        let good = template(json!([token("a"), text("A")]));
        check::<PostProcessorWrapper>("part", &good).unwrap();
        for (single, because) in [
            (json!([token("zz"), text("A")]), "\"zz\""),
            (json!([text("B")]), "once"),
            (json!([text("A"), text("A")]), "once"),
        ] {
            refused::<PostProcessorWrapper>(&template(single), because);
        }
    }

    #[test]
    fn what_published_tokenizers_do_is_taken() {
        let llama = sequence(&[
            json!({"type": "Prepend", "prepend": "▁"}),
            replace(json!({"String": " "}), "▁"),
        ]);
        let clip = sequence(&[
            json!({"type": "NFC"}),
            replace(json!({"Regex": r"\s+"}), " "),
            json!({"type": "Lowercase"}),
        ]);
        for normalizer in [llama, clip, json!({"type": "NFKC"}), Value::Null] {
            check::<NormalizerWrapper>("part", &normalizer).unwrap();
        }
    }
}
