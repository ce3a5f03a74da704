//! Summaries as tables for people. Computes nothing.

use std::fmt::Write;

use super::summary::Summary;

/// Policies side by side, one a line.
pub fn table(summaries: &[Summary]) -> String {
    let mut text = format!(
        "{:13} {:>6} {:>7} {:>8} {:>9} {:>15} {:>13} {:>20} {:>8} {:>7} {:>6} {:>6} {:>7} {:>6} {:>6}\n",
        "policy",
        "req/s",
        "served",
        "tokens/s",
        "s/token",
        "TTFT 50/99 s",
        "TPOT 50/99 ms",
        "ITL 50/95/99 ms",
        "goodput",
        "in SLO",
        "batch",
        "waste",
        "preempt",
        "hits",
        "memory"
    );
    for s in summaries {
        let unsettled = if s.settled { "" } else { "~" };
        let served = format!("{unsettled}{:.2}", s.requests_per_second);
        let ms = |seconds: f64| seconds * 1e3;
        let _ = writeln!(
            text,
            "{:13} {:>6} {:>7} {:>8.0} {:>9.4} {:>7.2}/{:>7.2} {:>6.1}/{:>6.1} \
             {:>6.1}/{:>6.1}/{:>6.1} {:>8} {:>7} {:>6.1} {:>5.1}% {:>7} {:>5.1}% {:>5.0}%",
            s.policy,
            s.offered_rate
                .map_or("-".to_owned(), |rate| format!("{rate:.2}")),
            served,
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
            s.attainment
                .map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
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
req/s: requests a second that came. served: answers a second that ended, tokens/s: tokens a second that were
drawn, both while the middle half of all answers ended (from the end of the first quarter to that of the
third), so that neither the beginning nor the drain counts: but for chance, a policy that keeps up serves what
comes. ~: the run is too short to say, as a step had more sequences than a quarter of all (more --requests).
s/token: mean time from arrival to the end of an answer, per token of it. goodput: of the served, those that
kept the service level. in SLO: share of all requests that kept it. batch: sequences a step, over time.
waste: share of the held key/value slots without a token in them. preempt: preemptions. hits: prompt tokens
found in the cache. memory: time in steps bound by memory.
";
