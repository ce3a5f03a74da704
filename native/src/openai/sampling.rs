//! How a body wants its tokens drawn: OpenAI's fields, and those that vLLM and llama.cpp have beside them. Ranges
//! are the engine's to check.

use twoclock_core::text::Tokenizer;
use twoclock_core::types::{SamplingParams, TokenId};

use super::fields::Fields;
use super::refusal::Refusal;
use crate::bad_words::bad_words;

/// Bytes that the texts of bad words may have for each of their tokens: words have fewer.
const BYTES_PER_TOKEN: usize = 16;

/// Reads the fields over `base`; length and log-probabilities are the endpoint's own.
pub(super) fn read(
    fields: &Fields<'_>,
    base: SamplingParams,
    tokenizer: &Tokenizer,
) -> Result<SamplingParams, Refusal> {
    let words = fields.texts("bad_words")?;
    // Spelling so many would take long, and they would be refused.
    let bytes: usize = words.iter().map(String::len).sum();
    if words.len() > SamplingParams::MAX_BAD_WORDS
        || bytes > BYTES_PER_TOKEN * SamplingParams::MAX_BAD_WORD_IDS
    {
        let said = format!(
            "has {} words of {bytes} bytes, more than the {} or the {} tokens that may be",
            words.len(),
            SamplingParams::MAX_BAD_WORDS / 2,
            SamplingParams::MAX_BAD_WORD_IDS,
        );
        return Err(Refusal::of("bad_words", said));
    }
    let spelled = bad_words(tokenizer, &words);
    let spelled = spelled.map_err(|e| Refusal::sentence("bad_words", e))?;
    let salt = fields.text("cache_salt")?;
    if salt == Some("") {
        return Err(Refusal::of("cache_salt", "is empty"));
    }
    Ok(SamplingParams {
        temperature: fields.float("temperature")?.unwrap_or(base.temperature),
        top_k: top_k(fields)?.unwrap_or(base.top_k),
        top_p: fields.float("top_p")?.unwrap_or(base.top_p),
        min_p: fields.float("min_p")?.unwrap_or(base.min_p),
        repetition_penalty: fields
            .float(penalty_field(fields))?
            .unwrap_or(base.repetition_penalty),
        presence_penalty: fields.float("presence_penalty")?.unwrap_or(0.0),
        frequency_penalty: fields.float("frequency_penalty")?.unwrap_or(0.0),
        logit_bias: logit_bias(fields)?,
        bad_words: spelled,
        seed: seed(fields)?.unwrap_or(base.seed),
        min_tokens: fields.count("min_tokens")?.unwrap_or(0),
        stop_token_ids: fields.ids("stop_token_ids")?,
        stop: fields.texts("stop")?,
        include_stop_str_in_output: fields.flag("include_stop_str_in_output")? == Some(true),
        ignore_eos: fields.flag("ignore_eos")? == Some(true),
        n: fields.count("n")?.unwrap_or(1),
        cache_salt: salt.map(str::to_owned),
        ..base
    })
}

/// The field of the repetition penalty; the second is llama.cpp's name for it.
pub(super) fn penalty_field(fields: &Fields<'_>) -> &'static str {
    let names = ["repetition_penalty", "repeat_penalty"];
    let given = names.into_iter().find(|name| fields.get(name).is_some());
    given.unwrap_or("repetition_penalty")
}

/// −1 and 0 are all of them.
fn top_k(fields: &Fields<'_>) -> Result<Option<usize>, Refusal> {
    match fields.get("top_k").and_then(|k| k.as_i64()) {
        Some(-1) => Ok(Some(0)),
        _ => fields.count_or("top_k", ", or -1 for all tokens"),
    }
}

/// How urgent it is, which is refused where that is not heeded.
pub(super) fn priority(fields: &Fields<'_>, is_heeded: bool) -> Result<i32, Refusal> {
    let most = SamplingParams::MAX_PRIORITY;
    match fields.within("priority", -most..=most)?.unwrap_or(0) {
        priority if priority != 0 && !is_heeded => {
            let said = "must be 0: here requests are served as they come (--scheduling-policy priority of the \
                        server would heed it)";
            Err(Refusal::of("priority", said))
        }
        priority => Ok(priority),
    }
}

/// −1 is any.
fn seed(fields: &Fields<'_>) -> Result<Option<u64>, Refusal> {
    match fields.get("seed").and_then(|seed| seed.as_i64()) {
        Some(-1) => Ok(None),
        _ => fields.seed("seed"),
    }
}

fn logit_bias(fields: &Fields<'_>) -> Result<Vec<(TokenId, f32)>, Refusal> {
    let Some(biases) = fields.object("logit_bias")? else {
        return Ok(Vec::new());
    };
    let read = |(id, bias): (&String, &serde_json::Value)| {
        let parsed = id.parse().ok().zip(bias.as_f64().map(|b| b as f32));
        parsed.ok_or_else(|| {
            let said = format!("has {id:?}: {bias}, but must map token ids to numbers");
            Refusal::of("logit_bias", said)
        })
    };
    biases.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_seed_of_minus_one_is_none() {
        let json = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
        let tokenizer = Tokenizer::from_json(json, None, None).unwrap();
        let drawn = SamplingParams {
            seed: 77,
            ..SamplingParams::default()
        };
        let seed = |body: serde_json::Value| {
            let fields = Fields::of(&body).unwrap();
            read(&fields, drawn.clone(), &tokenizer).unwrap().seed
        };
        for any in [json!({}), json!({"seed": null}), json!({"seed": -1})] {
            assert_eq!(seed(any), 77);
        }
        assert_eq!(seed(json!({"seed": 0})), 0);
        assert_eq!(seed(json!({"seed": -2})), u64::MAX - 1);
        assert_eq!(seed(json!({"seed": u64::MAX})), u64::MAX);
    }

    #[test]
    fn a_number_beyond_its_range_is_told_the_range() {
        // 2**64 and 2**70, which no integer here holds.
        let body = r#"{"priority": 1180591620717411303424, "seed": 18446744073709551616, "top_k": -2,
            "min_tokens": 18446744073709551616, "n_predict": 1180591620717411303424, "n": -1}"#;
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let fields = Fields::of(&body).unwrap();
        for (refused, range) in [
            (
                priority(&fields, true).map(drop),
                "a whole number from -100 to 100",
            ),
            (
                seed(&fields).map(drop),
                "from -9223372036854775808 to 18446744073709551615",
            ),
            (top_k(&fields).map(drop), "0 or more, or -1 for all tokens"),
            (
                fields.count("min_tokens").map(drop),
                "from 0 to 18446744073709551615",
            ),
            (
                fields.signed("n_predict").map(drop),
                "from -2147483648 to 2147483647",
            ),
            (fields.count("n").map(drop), "a whole number, 0 or more"),
        ] {
            let said = refused.unwrap_err().to_string();
            assert!(said.ends_with(range), "{said}");
        }
        for wrong in [json!(101), json!(-101), json!(1.5), json!("a")] {
            let body = json!({"priority": wrong});
            let refused = priority(&Fields::of(&body).unwrap(), true).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("priority"));
        }
    }
}
