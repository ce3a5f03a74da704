//! Summaries as tables for people. Computes nothing.

use std::fmt::Write;

use super::summary::Summary;

/// Policies side by side, one a line.
pub fn table(summaries: &[Summary]) -> String {
    let mut text = format!(
        "{:13} {:>6} {:>7} {:>8} {:>9} {:>15} {:>13} {:>20} {:>8} {:>6} {:>6} {:>7} {:>6} {:>6}\n",
        "policy",
        "req/s",
        "served",
        "tokens/s",
        "s/token",
        "TTFT 50/99 s",
        "TPOT 50/99 ms",
        "ITL 50/95/99 ms",
        "goodput",
        "batch",
        "waste",
        "preempt",
        "hits",
        "memory"
    );
    for s in summaries {
        let ms = |seconds: f64| seconds * 1e3;
        let _ = writeln!(
            text,
            "{:13} {:>6} {:>7.2} {:>8.0} {:>9.4} {:>7.2}/{:>7.2} {:>6.1}/{:>6.1} \
             {:>6.1}/{:>6.1}/{:>6.1} {:>8} {:>6.1} {:>5.1}% {:>7} {:>5.1}% {:>5.0}%",
            s.policy,
            s.offered_rate
                .map_or("-".to_owned(), |rate| format!("{rate:.2}")),
            s.requests_per_second,
            s.output_tokens_per_second,
            s.normalized_latency.mean,
            s.ttft.p50,
            s.ttft.p99,
            ms(s.tpot.p50),
            ms(s.tpot.p99),
            ms(s.itl.p50),
            ms(s.itl.p95),
            ms(s.itl.p99),
            s.goodput.map_or("-".to_owned(), |g| format!("{g:.2}")),
            s.mean_batch,
            s.kv_waste * 100.0,
            s.preemptions_recompute + s.preemptions_swap,
            s.prefix_hits * 100.0,
            s.memory_bound * 100.0,
        );
    }
    text
}

/// What the columns of [`table`] mean.
pub const LEGEND: &str = "\
s/token: mean time from arrival to the end of an answer, per token of it. goodput: answers a second that
kept the service level. batch: sequences a step, over time. waste: share of the held key/value slots
without a token in them. hits: prompt tokens found in the cache. memory: time in steps bound by memory.
";
