//! What is asked, and when: traces that are drawn, and traces from files. Knows neither model nor
//! device, and no distribution.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use thiserror::Error;

use super::lengths::{self, Lengths};
use crate::output;
use crate::text_input::{json_fault, read_text};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// When it comes, seconds.
    pub arrival_s: f64,
    /// Length of its prompt.
    pub prompt_tokens: usize,
    /// Length of its answer.
    pub output_tokens: usize,
    /// Requests of one group begin alike ...
    #[serde(default)]
    pub prefix_group: Option<u64>,
    /// ... for so many tokens.
    #[serde(default)]
    pub prefix_tokens: usize,
}

/// What a line looks like.
pub const EXAMPLE: &str = r#"{"arrival_s": 0.5, "prompt_tokens": 90, "output_tokens": 30}"#;

/// A line that is no request.
#[derive(Debug, Error)]
pub enum TraceError {
    /// Not a file of lines at all.
    #[error("a trace has one JSON object a line, as {EXAMPLE}, but this begins with {found:?}")]
    Form {
        /// How it begins.
        found: String,
    },
    /// It is not such an object.
    #[error("line {line} is no request: {message}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that cannot be.
    #[error("line {line}: {field} is {found}, but must be {must}")]
    Value {
        /// From 1.
        line: usize,
        /// Which.
        field: &'static str,
        /// Its value.
        found: f64,
        /// What would do.
        must: &'static str,
    },
    /// Nothing in it, or too much.
    #[error("a trace has 1 to {MAX_REQUESTS} requests, but this has {0}")]
    Length(usize),
    /// No rate can be made of one time.
    #[error(
        "the {0} requests of the trace come all at once, so that they cannot come at another rate: \
         leave out --rate and --sweep-rates, or give them different times in arrival_s"
    )]
    AtOnce(usize),
}

/// Most requests of a trace, and most tokens of one.
pub(super) const MAX_REQUESTS: usize = 1_000_000;
const MAX_TOKENS: usize = 1 << 20;

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Trace {
    /// Lengths drawn, by this source.
    Drawn(Lengths),
    /// As a file has them.
    Listed(Vec<TraceRequest>),
}

/// A trace by name, or a file with a JSON object a line.
///
/// # Errors
/// No such name nor file, or a file whose line is no request.
pub fn find(reference: &str) -> anyhow::Result<Trace> {
    if let Some(lengths) = Lengths::published(reference) {
        return Ok(Trace::Drawn(lengths));
    }
    let names = lengths::NAMES.join(", ");
    let text = read_text(Path::new(reference))
        .with_context(|| format!("{reference:?} is no trace by name ({names}) and no file"))?;
    let requests = parse(&text).with_context(|| reference.to_owned())?;
    Ok(Trace::Listed(requests))
}

/// Reads a file's lines.
///
/// # Errors
/// [`TraceError`], naming the line.
pub fn parse(text: &str) -> Result<Vec<TraceRequest>, TraceError> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let mut requests: Vec<TraceRequest> = Vec::new();
    for (index, text) in lines {
        let line = index + 1;
        // A JSON array, or lines with commas: other forms of the same, and no flaw of one line.
        if requests.is_empty() && !text.trim_start().starts_with('{') {
            let found = output::beginning(text);
            return Err(TraceError::Form { found });
        }
        let request: TraceRequest = serde_json::from_str(text).map_err(|e| TraceError::Line {
            line,
            message: in_line(&e),
        })?;
        let value = |field, found, must| {
            Err(TraceError::Value {
                line,
                field,
                found,
                must,
            })
        };
        let before = requests.last().map_or(0.0, |last| last.arrival_s);
        if !(request.arrival_s >= before && request.arrival_s < 1e9) {
            let must = "a time in seconds, not before that of the line above";
            return value("arrival_s", request.arrival_s, must);
        }
        for (field, found) in [
            ("prompt_tokens", request.prompt_tokens),
            ("output_tokens", request.output_tokens),
        ] {
            if !(1..=MAX_TOKENS).contains(&found) {
                return value(field, found as f64, "from 1 to 1048576");
            }
        }
        if request.prefix_tokens > request.prompt_tokens
            || (request.prefix_tokens > 0 && request.prefix_group.is_none())
        {
            let must = "at most prompt_tokens, and with a prefix_group";
            return value("prefix_tokens", request.prefix_tokens as f64, must);
        }
        if requests.len() == MAX_REQUESTS {
            return Err(TraceError::Length(MAX_REQUESTS + 1));
        }
        requests.push(request);
    }
    match requests.is_empty() {
        true => Err(TraceError::Length(0)),
        false => Ok(requests),
    }
}

/// What is wrong with a line, and in which column: its number is known already.
fn in_line(error: &serde_json::Error) -> String {
    let message = json_fault(error);
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(message) => format!("{message} (column {})", error.column()),
        None => message,
    }
}

impl Trace {
    /// `n` requests of at most `max_model_len` tokens, at `rate` a second: drawn ones come as a
    /// Poisson process; of a file, whose times stand where there is no rate, the first `n`, their
    /// times stretched.
    ///
    /// # Errors
    /// [`TraceError::AtOnce`] for a rate where a file's times are all one.
    pub fn requests(
        &self,
        n: usize,
        rate: Option<f64>,
        max_model_len: usize,
        seed: u64,
    ) -> Result<Vec<TraceRequest>, TraceError> {
        match self {
            Self::Drawn(lengths) => Ok(lengths.draw(
                n,
                rate.unwrap_or(lengths::DEFAULT_RATE),
                max_model_len,
                seed,
            )),
            Self::Listed(requests) => {
                let mut requests = requests[..n.min(requests.len())].to_vec();
                if let (Some(rate), [first, .., last]) = (rate, &requests[..]) {
                    if first.arrival_s == last.arrival_s {
                        return Err(TraceError::AtOnce(requests.len()));
                    }
                    let stretch = requests.len() as f64 / rate / last.arrival_s;
                    requests.iter_mut().for_each(|r| r.arrival_s *= stretch);
                }
                Ok(requests)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_what_was_published() {
        for (name, prompt, output) in [
            ("sharegpt-like", 161.0, 338.0),
            ("alpaca-like", 19.3, 58.5),
            ("azure-like", 1155.0, 211.0),
            ("orca-like", 272.0, 64.5),
        ] {
            let requests = find(name).unwrap().requests(20_000, Some(4.0), 8192, 7);
            let requests = requests.unwrap();
            let mean = |of: fn(&TraceRequest) -> usize| {
                requests.iter().map(|r| of(r) as f64).sum::<f64>() / requests.len() as f64
            };
            let (p, o) = (mean(|r| r.prompt_tokens), mean(|r| r.output_tokens));
            assert!((p / prompt - 1.0).abs() < 0.03, "{name} {p}");
            assert!((o / output - 1.0).abs() < 0.03, "{name} {o}");
            let last = requests.last().unwrap().arrival_s;
            assert!((last / 5000.0 - 1.0).abs() < 0.03, "{name} {last}");
        }
    }

    #[test]
    fn medians_of_the_azure_trace_come_out() {
        let requests = find("azure-like")
            .unwrap()
            .requests(20_001, None, 16_384, 1)
            .unwrap();
        let mut prompts: Vec<_> = requests.iter().map(|r| r.prompt_tokens).collect();
        prompts.sort_unstable();
        assert!((prompts[10_000] as f64 / 1020.0 - 1.0).abs() < 0.03);
    }

    #[test]
    fn a_seed_is_a_trace_and_a_rate_only_stretches_it() {
        let trace = find("sharegpt-like").unwrap();
        let draw = |rate, seed| trace.requests(50, Some(rate), 2048, seed).unwrap();
        assert_eq!(draw(1.0, 3), draw(1.0, 3));
        assert_ne!(draw(1.0, 3), draw(1.0, 4));
        for (slow, fast) in draw(1.0, 3).iter().zip(draw(2.0, 3)) {
            assert_eq!(slow.prompt_tokens, fast.prompt_tokens);
            assert!((slow.arrival_s - 2.0 * fast.arrival_s).abs() < 1e-9);
        }
    }

    #[test]
    fn a_file_has_a_request_a_line() {
        let text = "{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 6}\n\n{\"arrival_s\": \
                    2.5, \"prompt_tokens\": 9, \"output_tokens\": 1, \"prefix_group\": 1, \
                    \"prefix_tokens\": 4}\n";
        let requests = parse(text).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1].prefix_group, Some(1));
        let listed = Trace::Listed(requests);
        let second = |rate| listed.requests(9, rate, 10, 0).unwrap()[1].arrival_s;
        assert_eq!((second(None), second(Some(4.0))), (2.5, 0.5));
        let Trace::Listed(requests) = listed else {
            unreachable!("it was listed");
        };
        let at_once = Trace::Listed(vec![requests[1]; 3]);
        let refused = at_once.requests(9, Some(4.0), 10, 0).unwrap_err();
        assert!(matches!(refused, TraceError::AtOnce(3)), "{refused}");
        assert_eq!(at_once.requests(9, None, 10, 0).unwrap().len(), 3);
        for (bad, words) in [
            ("", "0"),
            ("{", "line 1"),
            ("[]", "one JSON object a line"),
            (
                "arrival_s,prompt_tokens,output_tokens\n0,5,6\n",
                "begins with \"arrival_s,prompt",
            ),
            ("{\"arrival_s\": 0, \"prompt_tokens\": 5}", "output_tokens"),
            (
                "{\"arrival_s\": 0, \"prompt_tokens\": -5, \"output_tokens\": 1}",
                "line 1",
            ),
            (
                "{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 0}",
                "output_tokens is 0",
            ),
            (
                "{\"arrival_s\": -1, \"prompt_tokens\": 5, \"output_tokens\": 1}",
                "arrival_s is -1",
            ),
            (
                "{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 1, \"prefix_tokens\": 2}",
                "prefix_group",
            ),
            (
                "\n{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 1}\n{\"arrival_s\": 0, \
                 \"prompt_tokens\": 5000000, \"output_tokens\": 1}",
                "line 3: prompt_tokens",
            ),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains(" at line "), "{error}");
        }
    }
}
