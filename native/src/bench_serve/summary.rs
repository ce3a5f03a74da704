//! What a run comes to: times, rates, and how many kept the times to keep; as JSON and as a table.
//! Measures nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::load::{Record, Run};
use super::times::{Times, rounded};
use crate::output;
use crate::picture::digits;

/// Different errors that are told.
const MOST_ERRORS: usize = 5;

/// What was asked, for the record.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The server.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// How requests came, such as `{"concurrency": 8}`.
    pub load: Value,
    /// Time to the first token to keep, ms.
    pub ttft_slo_ms: Option<f64>,
    /// Time per output token to keep, ms.
    pub tpot_slo_ms: Option<f64>,
    /// Of all that was drawn.
    pub seed: u64,
    /// Requests, also those that were not sent as the run was stopped.
    pub requests: usize,
}

/// A run's figures.
#[derive(Clone, Debug)]
pub struct Summary {
    asked: Asked,
    /// Requests sent, and those of them that failed.
    pub requests: usize,
    /// See `requests`.
    pub failed: usize,
    wall: f64,
    prompt_tokens: usize,
    cached_tokens: Option<usize>,
    output_tokens: usize,
    /// To the first token.
    pub ttft: Times,
    /// Per token after it.
    pub tpot: Times,
    /// Between pieces.
    pub itl: Times,
    e2e: Times,
    good: usize,
    good_tokens: usize,
    finish: BTreeMap<String, usize>,
    errors: Vec<String>,
    /// When tokens came, seconds from the start, ascending.
    pub token_times: Vec<f64>,
}

/// Milliseconds.
fn ms(from: std::time::Instant, to: std::time::Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// An answered request.
struct Answered {
    ttft: f64,
    tpot: Option<f64>,
    itl: Vec<f64>,
    e2e: f64,
    output_tokens: usize,
}

impl Answered {
    fn of(record: &Record) -> Option<Self> {
        let answer = record.answer.as_ref().ok()?;
        let (first, last) = (*answer.times.first()?, *answer.times.last()?);
        let output_tokens = answer.completion_tokens.unwrap_or(answer.times.len());
        let after = output_tokens.saturating_sub(1);
        Some(Self {
            ttft: ms(record.start, first),
            tpot: (after > 0).then(|| ms(first, last) / after as f64),
            itl: answer
                .times
                .windows(2)
                .map(|pair| ms(pair[0], pair[1]))
                .collect(),
            e2e: ms(record.start, last),
            output_tokens,
        })
    }
}

impl Summary {
    /// Of a run.
    pub fn of(run: &Run, asked: Asked) -> Self {
        let answered: Vec<Answered> = run.records.iter().filter_map(Answered::of).collect();
        let answers = || {
            run.records
                .iter()
                .filter_map(|record| record.answer.as_ref().ok())
        };
        let end = run.records.iter().map(|record| record.end).max();
        let wall = end.map_or(0.0, |end| ms(run.start, end) / 1e3);
        let keeps = |a: &&Answered| {
            let within = |time: f64, slo: Option<f64>| slo.is_none_or(|slo| time <= slo);
            within(a.ttft, asked.ttft_slo_ms)
                && a.tpot.is_none_or(|tpot| within(tpot, asked.tpot_slo_ms))
        };
        let good = answered.iter().filter(keeps);
        let mut finish = BTreeMap::new();
        for answer in answers() {
            let reason = answer.finish_reason.clone();
            *finish
                .entry(reason.unwrap_or_else(|| "none".to_owned()))
                .or_insert(0) += 1;
        }
        let errors = run
            .records
            .iter()
            .filter_map(|record| record.answer.clone().err());
        let mut errors: Vec<String> = errors.collect();
        errors.sort();
        errors.dedup();
        errors.truncate(MOST_ERRORS);
        let cached = || answers().filter_map(|answer| answer.cached_tokens);
        let times = answers().flat_map(|answer| &answer.times);
        let token_times = Times::new(times.map(|time| ms(run.start, *time) / 1e3));
        Self {
            requests: run.records.len(),
            failed: run.records.len() - answered.len(),
            wall: wall.max(1e-9),
            prompt_tokens: answers().filter_map(|answer| answer.prompt_tokens).sum(),
            cached_tokens: cached().next().map(|_| cached().sum()),
            output_tokens: answered.iter().map(|a| a.output_tokens).sum(),
            ttft: Times::new(answered.iter().map(|a| a.ttft)),
            tpot: Times::new(answered.iter().filter_map(|a| a.tpot)),
            itl: Times::new(answered.iter().flat_map(|a| a.itl.iter().copied())),
            e2e: Times::new(answered.iter().map(|a| a.e2e)),
            good: good.clone().count(),
            good_tokens: good.map(|a| a.output_tokens).sum(),
            finish,
            errors,
            token_times: token_times.0,
            asked,
        }
    }

    /// Requests that were not sent, as the run was stopped.
    fn unsent(&self) -> usize {
        self.asked.requests.saturating_sub(self.requests)
    }

    fn rate(&self, count: usize) -> f64 {
        rounded(count as f64 / self.wall)
    }

    /// Of what was sent, how much kept the times to keep.
    fn attainment(&self) -> Option<f64> {
        (self.requests > 0).then(|| rounded(self.good as f64 / self.requests as f64))
    }

    /// The times to keep: name, ms.
    pub fn slos(&self) -> [Option<f64>; 2] {
        [self.asked.ttft_slo_ms, self.asked.tpot_slo_ms]
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        json!({
            "base_url": self.asked.base_url,
            "model": self.asked.model,
            "load": self.asked.load,
            "seed": self.asked.seed,
            "requests": self.requests,
            "ok": self.requests - self.failed,
            "failed": self.failed,
            "unsent": self.unsent(),
            "wall_s": rounded(self.wall),
            "prompt_tokens": self.prompt_tokens,
            "cached_prompt_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "ttft_ms": self.ttft.as_json(),
            "tpot_ms": self.tpot.as_json(),
            "itl_ms": self.itl.as_json(),
            "e2e_ms": self.e2e.as_json(),
            "output_tok_s": self.rate(self.output_tokens),
            "total_tok_s": self.rate(self.output_tokens + self.prompt_tokens),
            "request_s": self.rate(self.requests - self.failed),
            "slo": {"ttft_ms": self.asked.ttft_slo_ms, "tpot_ms": self.asked.tpot_slo_ms},
            "slo_attainment": self.attainment(),
            "goodput_request_s": self.rate(self.good),
            "goodput_output_tok_s": self.rate(self.good_tokens),
            "finish": self.finish,
            "errors": self.errors,
        })
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let answered = self.requests - self.failed;
        let _ = writeln!(
            text,
            "{answered} of {} requests answered in {} s by {}",
            self.requests,
            digits(self.wall),
            output::one_line(&self.asked.model)
        );
        if self.unsent() > 0 {
            let _ = writeln!(
                text,
                "stopped: {} of the {} asked for were not sent",
                self.unsent(),
                self.asked.requests
            );
        }
        let _ = writeln!(
            text,
            "\n{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "mean", "p50", "p90", "p95", "p99", "max"
        );
        for (name, times) in [
            ("TTFT", &self.ttft),
            ("TPOT", &self.tpot),
            ("ITL", &self.itl),
            ("E2E", &self.e2e),
        ] {
            let _ = write!(text, "{name:<10}");
            for (_, time) in times.figures() {
                let time = time.map_or_else(|| "-".to_owned(), digits);
                let _ = write!(text, "{time:>10}");
            }
            text.push('\n');
        }
        let cached = match self.cached_tokens {
            Some(cached) => format!(", {cached} of them from the cache"),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "\nprompts     {} tokens{cached}\nanswers     {} tokens, {} a second\nthroughput  {} requests a second, {} tokens a second with prompts",
            self.prompt_tokens,
            self.output_tokens,
            digits(self.rate(self.output_tokens)),
            digits(self.rate(answered)),
            digits(self.rate(self.output_tokens + self.prompt_tokens)),
        );
        if self.slos().iter().any(Option::is_some) {
            let _ = writeln!(
                text,
                "goodput     {} requests a second, {} tokens a second; {} of {} kept the times",
                digits(self.rate(self.good)),
                digits(self.rate(self.good_tokens)),
                self.good,
                self.requests,
            );
        }
        for error in &self.errors {
            let _ = writeln!(text, "failed      {error}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bench_serve::stream::Streamed;

    /// A request due after so many ms whose pieces came after so many.
    fn record(start: Instant, due: u64, pieces: &[u64], tokens: usize) -> Record {
        let at = |ms: u64| start + Duration::from_millis(ms);
        let times: Vec<Instant> = pieces.iter().map(|ms| at(*ms)).collect();
        Record {
            start: at(due),
            end: times.last().copied().unwrap(),
            answer: Ok(Streamed {
                times,
                prompt_tokens: Some(10),
                completion_tokens: Some(tokens),
                cached_tokens: Some(4),
                finish_reason: Some("length".into()),
            }),
        }
    }

    #[test]
    fn figures_follow_from_the_times() {
        let start = Instant::now();
        let failed = Record {
            start,
            end: start + Duration::from_millis(50),
            answer: Err("HTTP 429".into()),
        };
        let run = Run {
            start,
            records: vec![
                record(start, 0, &[100, 200, 400], 4),
                record(start, 100, &[400, 500], 2),
                failed,
            ],
        };
        let asked = Asked {
            base_url: "http://h".into(),
            model: "m".into(),
            load: json!({"concurrency": 2}),
            ttft_slo_ms: Some(200.0),
            tpot_slo_ms: Some(100.0),
            seed: 1,
            requests: 100,
        };
        let summary = Summary::of(&run, asked);
        let json = summary.as_json();
        assert_eq!(
            (&json["ok"], &json["failed"], &json["wall_s"]),
            (&json!(2), &json!(1), &json!(0.5))
        );
        assert_eq!(summary.ttft.0, [100.0, 300.0]);
        assert_eq!(json["ttft_ms"]["p50"], 200.0);
        assert_eq!(json["ttft_ms"]["p90"], 280.0);
        // 300 ms over three tokens, and 100 over one.
        assert_eq!(summary.tpot.0, [100.0, 100.0]);
        assert_eq!(summary.itl.0, [100.0, 100.0, 200.0]);
        assert_eq!(json["output_tok_s"], 12.0);
        assert_eq!(json["total_tok_s"], 52.0);
        assert_eq!(json["request_s"], 4.0);
        assert_eq!(json["goodput_request_s"], 2.0);
        assert_eq!(json["goodput_output_tok_s"], 8.0);
        assert_eq!(json["slo_attainment"], 0.333);
        assert_eq!(json["cached_prompt_tokens"], 8);
        assert_eq!(json["finish"], json!({"length": 2}));
        assert_eq!(json["unsent"], 97);
        assert_eq!(json["errors"], json!(["HTTP 429"]));
        let table = summary.table();
        for part in [
            "2 of 3 requests",
            "97 of the 100 asked for were not sent",
            "TTFT",
            "1 of 3 kept the times",
            "HTTP 429",
        ] {
            assert!(table.contains(part), "{table}");
        }
    }

    #[test]
    fn nothing_answered_has_no_times() {
        let run = Run {
            start: Instant::now(),
            records: Vec::new(),
        };
        let asked = Asked {
            base_url: String::new(),
            model: String::new(),
            load: Value::Null,
            ttft_slo_ms: None,
            tpot_slo_ms: None,
            seed: 0,
            requests: 0,
        };
        let json = Summary::of(&run, asked).as_json();
        assert!(json["ttft_ms"].is_null() && json["slo_attainment"].is_null());
        assert_eq!(json["request_s"], 0.0);
    }
}
