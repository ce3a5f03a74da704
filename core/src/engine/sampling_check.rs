//! Whether sampling parameters mean something for a model. Knows their ranges, not how they are used.

use crate::sched::RequestError;
use crate::types::{PoolingParams, SamplingParams, TokenId};

/// Lowest temperature above 0. Under it `logit / temperature` may leave f32, and tokens of equal
/// infinities are no draw; far above it already the likeliest token is as good as certain.
const MIN_TEMPERATURE: f32 = 1e-30;

/// Highest temperature. Over it a banned token's logit, divided by it, comes within reach of the noise.
const MAX_TEMPERATURE: f32 = 1e30;

/// Holds parameters against a vocabulary.
///
/// # Errors
/// [`RequestError::InvalidParameter`] or [`RequestError::TokenOutOfRange`], naming the first field
/// that means nothing.
pub(super) fn check(params: &SamplingParams, vocab_size: usize) -> Result<(), RequestError> {
    let number = |name, value: f32, ok: bool, must| match ok {
        true => Ok(()),
        false => invalid(name, format!("{value:?}"), must),
    };
    let p = params;
    if !(1..=SamplingParams::MAX_ANSWERS).contains(&p.n) {
        return invalid("n", p.n.to_string(), "1 to 128");
    }
    check_lengths(p)?;
    let warm = p.temperature == 0.0 || (MIN_TEMPERATURE..=MAX_TEMPERATURE).contains(&p.temperature);
    let must = "0 or a number from 1e-30 to 1e30";
    number("temperature", p.temperature, warm, must)?;
    let must = "above 0 and at most 1";
    number("top_p", p.top_p, p.top_p > 0.0 && p.top_p <= 1.0, must)?;
    let must = "from 0 to 1";
    number("min_p", p.min_p, (0.0..=1.0).contains(&p.min_p), must)?;
    let repetition = p.repetition_penalty;
    let ok = (1e-3..=1e3).contains(&repetition);
    let must = "from 0.001 to 1000 (1 is none)";
    number("repetition_penalty", repetition, ok, must)?;
    for (name, value) in [
        ("presence_penalty", p.presence_penalty),
        ("frequency_penalty", p.frequency_penalty),
    ] {
        number(name, value, (-2.0..=2.0).contains(&value), "from -2 to 2")?;
    }
    for &(_, bias) in &p.logit_bias {
        let ok = (-100.0..=100.0).contains(&bias);
        number("logit_bias", bias, ok, "from -100 to 100 for each id")?;
    }
    let mut biased: Vec<TokenId> = p.logit_bias.iter().map(|&(id, _)| id).collect();
    biased.sort_unstable();
    if let Some(twice) = biased.windows(2).find(|pair| pair[0] == pair[1]) {
        let value = format!("given twice for id {}", twice[0]);
        return invalid("logit_bias", value, "given once for each id");
    }
    if p.bad_words.iter().any(Vec::is_empty) {
        let must = "sequences of at least one id";
        return invalid("bad_words", "an empty sequence".into(), must);
    }
    if p.stop.iter().any(String::is_empty) {
        return invalid(
            "stop",
            "an empty string".into(),
            "strings of at least a letter",
        );
    }
    check_priority(p.priority)?;
    if p.min_tokens > p.max_tokens {
        let value = format!("{} with max_tokens {}", p.min_tokens, p.max_tokens);
        return invalid("min_tokens", value, "at most max_tokens");
    }
    let counts = [
        ("logprobs", p.logprobs),
        ("prompt_logprobs", p.prompt_logprobs),
    ];
    for (name, count) in counts {
        if let Some(n) = count.filter(|n| *n > vocab_size) {
            let must = "at most the size of the vocabulary";
            return invalid(name, n.to_string(), must);
        }
    }
    check_ids("stop_token_ids", &p.stop_token_ids, vocab_size)?;
    check_ids("logit_bias", &biased, vocab_size)?;
    let mut words = p.bad_words.iter();
    words.try_for_each(|word| check_ids("bad_words", word, vocab_size))
}

/// Holds what a request brings any number of against the bounds of [`SamplingParams`].
fn check_lengths(p: &SamplingParams) -> Result<(), RequestError> {
    let stop_bytes: usize = p.stop.iter().map(String::len).sum();
    let word_ids: usize = p.bad_words.iter().map(Vec::len).sum();
    let bounds = [
        (
            "stop",
            p.stop.len(),
            SamplingParams::MAX_STOPS,
            "strings",
            "at most 256 strings",
        ),
        (
            "stop",
            stop_bytes,
            SamplingParams::MAX_STOP_BYTES,
            "bytes",
            "at most 16384 bytes in all",
        ),
        (
            "stop_token_ids",
            p.stop_token_ids.len(),
            SamplingParams::MAX_STOP_IDS,
            "ids",
            "at most 1024 ids",
        ),
        (
            "bad_words",
            p.bad_words.len(),
            SamplingParams::MAX_BAD_WORDS,
            "sequences",
            "at most 2048 sequences (a word has two: with a space before it and without)",
        ),
        (
            "bad_words",
            word_ids,
            SamplingParams::MAX_BAD_WORD_IDS,
            "ids",
            "at most 16384 ids in all",
        ),
        (
            "logit_bias",
            p.logit_bias.len(),
            SamplingParams::MAX_BIASES,
            "ids",
            "at most 4096 ids",
        ),
    ];
    match bounds.into_iter().find(|(_, n, most, ..)| n > most) {
        None => check_salt(p.cache_salt.as_deref()),
        Some((name, n, _, of, must)) => invalid(name, format!("of {n} {of}"), must),
    }
}

fn check_priority(priority: i32) -> Result<(), RequestError> {
    let most = SamplingParams::MAX_PRIORITY;
    match (-most..=most).contains(&priority) {
        true => Ok(()),
        false => invalid("priority", priority.to_string(), "from -100 to 100"),
    }
}

/// Holds what a request for an embedding has in common with others against its bounds.
///
/// # Errors
/// [`RequestError::InvalidParameter`].
pub(super) fn check_pooling(params: &PoolingParams) -> Result<(), RequestError> {
    check_salt(params.cache_salt.as_deref())?;
    check_priority(params.priority)
}

/// Holds a salt, which every prompt of a request has, against its bound.
fn check_salt(salt: Option<&str>) -> Result<(), RequestError> {
    match salt.map_or(0, str::len) {
        n if n > SamplingParams::MAX_SALT_BYTES => {
            invalid("cache_salt", format!("of {n} bytes"), "at most 1024 bytes")
        }
        _ => Ok(()),
    }
}

/// Holds ids against a vocabulary.
///
/// # Errors
/// [`RequestError::TokenOutOfRange`] for the first beyond it.
pub(super) fn check_ids(
    what: &'static str,
    ids: &[TokenId],
    vocab_size: usize,
) -> Result<(), RequestError> {
    match ids.iter().find(|id| **id as usize >= vocab_size) {
        Some(&id) => Err(RequestError::TokenOutOfRange {
            what,
            id,
            vocab_size,
        }),
        None => Ok(()),
    }
}

fn invalid(name: &'static str, value: String, must: &'static str) -> Result<(), RequestError> {
    Err(RequestError::InvalidParameter { name, value, must })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_named_by_its_error() {
        type Change = fn(&mut SamplingParams);
        let cases: [(&str, Change); 26] = [
            ("stop", |p| p.stop = vec!["a".into(); 257]),
            ("stop", |p| p.stop = vec!["a".repeat(16_385)]),
            ("stop_token_ids", |p| p.stop_token_ids = vec![1; 1025]),
            ("bad_words", |p| p.bad_words = vec![vec![1]; 2049]),
            ("bad_words", |p| p.bad_words = vec![vec![1; 16_385]]),
            ("logit_bias", |p| p.logit_bias = vec![(1, 0.0); 4097]),
            ("cache_salt", |p| p.cache_salt = Some("a".repeat(1025))),
            ("n", |p| p.n = 0),
            ("temperature", |p| p.temperature = -1.0),
            ("temperature", |p| p.temperature = f32::NAN),
            ("temperature", |p| p.temperature = f32::INFINITY),
            ("top_p", |p| p.top_p = 0.0),
            ("top_p", |p| p.top_p = f32::NAN),
            ("min_p", |p| p.min_p = 1.5),
            ("repetition_penalty", |p| p.repetition_penalty = 0.0),
            ("presence_penalty", |p| p.presence_penalty = 2.5),
            ("frequency_penalty", |p| p.frequency_penalty = f32::NAN),
            ("logit_bias", |p| p.logit_bias = vec![(1, f32::INFINITY)]),
            ("logit_bias", |p| p.logit_bias = vec![(1, 1.0), (1, 2.0)]),
            ("logit_bias", |p| p.logit_bias = vec![(10, 1.0)]),
            ("bad_words", |p| p.bad_words = vec![vec![]]),
            ("bad_words", |p| p.bad_words = vec![vec![1], vec![2, 10]]),
            ("stop", |p| p.stop = vec![String::new()]),
            ("logprobs", |p| p.logprobs = Some(11)),
            ("prompt_logprobs", |p| p.prompt_logprobs = Some(11)),
            ("min_tokens", |p| p.min_tokens = 1000),
        ];
        assert_eq!(check(&SamplingParams::default(), 10), Ok(()));
        for (name, change) in cases {
            let mut params = SamplingParams::default();
            change(&mut params);
            let error = check(&params, 10).unwrap_err().to_string();
            assert!(error.starts_with(name), "{name}: {error}");
        }
    }
}
