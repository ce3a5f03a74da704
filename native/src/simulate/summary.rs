//! A run in numbers: latencies, throughput, and what memory and the roofline were good for. Prints
//! nothing.

use serde::Serialize;
use twoclock_core::sched::{Bound, ServiceLevel};

use super::run::{Outcome, Served, Step};

/// A distribution. Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Of these values, by nearest rank; all 0 where there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let Some(&max) = values.last() else {
            return Self::default();
        };
        let rank = |p: f64| values[((values.len() as f64 * p).ceil() as usize).max(1) - 1];
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: rank(0.5),
            p95: rank(0.95),
            p99: rank(0.99),
            max,
        }
    }
}

/// A run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Policy.
    pub policy: String,
    /// Requests a second that came, on average; `None` where they came all at once.
    pub offered_rate: Option<f64>,
    /// Requests.
    pub requests: usize,
    /// From the first arrival to the last answer's end, seconds.
    pub seconds: f64,
    /// Seconds of the window in which rates are counted: from the end of the first quarter of all
    /// answers to the end of the third, so that neither the beginning nor the drain counts.
    pub window_seconds: f64,
    /// Whether a quarter of the requests is at least as many as a step had sequences at most. Where it
    /// is not, the run had no middle to speak of, and rates in the window tell little.
    pub settled: bool,
    /// Answers a second that ended in the window.
    pub requests_per_second: f64,
    /// Tokens of answers a second that were drawn in the window.
    pub output_tokens_per_second: f64,
    /// Time from arrival to the answer's end, per token of it: the measure of Orca and `PagedAttention`.
    pub normalized_latency: Quantiles,
    /// Time to the first token.
    pub ttft: Quantiles,
    /// Time per token after the first, by request.
    pub tpot: Quantiles,
    /// Times between tokens.
    pub itl: Quantiles,
    /// Answers a second that ended in the window and kept the service level; `None` where there is
    /// none.
    pub goodput: Option<f64>,
    /// Share of all answers that kept it.
    pub attainment: Option<f64>,
    /// Sequences a step, weighted by time.
    pub mean_batch: f64,
    /// Tokens a step.
    pub mean_step_tokens: f64,
    /// Share of the slots that requests hold without a token in them, over time.
    pub kv_waste: f64,
    /// Share of all slots with a token in them, while requests wait for room.
    pub kv_filled_when_crowded: Option<f64>,
    /// Preemptions whose tokens were computed again.
    pub preemptions_recompute: u64,
    /// Preemptions whose pages were moved.
    pub preemptions_swap: u64,
    /// Share of prompt tokens that were found in the cache.
    pub prefix_hits: f64,
    /// Share of time in steps that waited for memory.
    pub memory_bound: f64,
    /// Steps.
    pub steps: usize,
}

impl Summary {
    /// That of a run.
    pub fn of(outcome: &Outcome, slo: ServiceLevel) -> Self {
        let served = &outcome.served;
        let first = served.first().map_or(0.0, |s| s.arrival);
        let last = served.last().map_or(0.0, |s| s.arrival);
        let end = served.iter().map(|s| s.end).fold(first, f64::max);
        let window = Window::of(served, first);
        let inside = || served.iter().filter(|s| window.has(s.end));
        let drawn = outcome.steps.iter();
        let drawn = drawn.filter(|s| window.has(s.begin + s.seconds));
        let tokens = drawn.map(|s| s.num_drawn).sum::<usize>() as f64;
        let over_time = |value: fn(&Step) -> f64| {
            let sum = outcome
                .steps
                .iter()
                .map(|s| s.seconds * value(s))
                .sum::<f64>();
            sum / outcome.steps.iter().map(|s| s.seconds).sum::<f64>()
        };
        let (used, held) = (
            over_time(|s| s.kv_used as f64),
            over_time(|s| s.kv_held as f64),
        );
        let crowded = outcome.steps.iter().filter(|s| s.crowded);
        let (time, filled) = crowded.fold((0.0, 0.0), |(time, filled), s| {
            (time + s.seconds, filled + s.seconds * s.kv_used as f64)
        });
        let cache = outcome.cache;
        Self {
            policy: outcome.policy.to_string(),
            offered_rate: (last > first).then(|| served.len() as f64 / (last - first)),
            requests: served.len(),
            seconds: end - first,
            window_seconds: window.seconds(),
            settled: outcome.steps.iter().all(|s| 4 * s.num_seqs <= served.len()),
            requests_per_second: inside().count() as f64 / window.seconds(),
            output_tokens_per_second: tokens / window.seconds(),
            normalized_latency: quantiles(served, |s| {
                Some((s.end - s.arrival) / s.output_tokens as f64)
            }),
            ttft: quantiles(served, |s| Some(s.first_token - s.arrival)),
            tpot: quantiles(served, tpot),
            itl: Quantiles::of(outcome.itl.clone()),
            goodput: slo_kept(inside(), slo).map(|kept| kept as f64 / window.seconds()),
            attainment: slo_kept(served.iter(), slo).map(|kept| kept as f64 / served.len() as f64),
            mean_batch: over_time(|s| s.num_seqs as f64),
            mean_step_tokens: outcome.steps.iter().map(|s| s.num_tokens).sum::<usize>() as f64
                / outcome.steps.len() as f64,
            kv_waste: 1.0 - used / held,
            kv_filled_when_crowded: (time > 0.0).then(|| filled / time / outcome.kv_slots as f64),
            preemptions_recompute: cache.num_preemptions_recompute,
            preemptions_swap: cache.num_preemptions_swap,
            prefix_hits: match cache.prefix_cache_queries {
                0 => 0.0,
                queries => cache.prefix_cache_hits as f64 / queries as f64,
            },
            memory_bound: over_time(|s| f64::from(u8::from(s.bound == Bound::Memory))),
            steps: outcome.steps.len(),
        }
    }
}

/// A span of a run, without its beginning and with its end. Seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    after: f64,
    to: f64,
}

impl Window {
    /// From the end of the first quarter of all answers to the end of the third. Between them as many
    /// answers end as come where a policy keeps up, and as many as it can where it does not. The
    /// whole run, which began at `first`, where these ends are one.
    fn of(served: &[Served], first: f64) -> Self {
        let mut ends: Vec<f64> = served.iter().map(|s| s.end).collect();
        ends.sort_by(f64::total_cmp);
        let quarter = |quarters: usize| ends.get((ends.len() * quarters / 4).saturating_sub(1));
        match (quarter(1), quarter(3), ends.last()) {
            (Some(&after), Some(&to), _) if to > after => Self { after, to },
            (.., last) => Self {
                after: first,
                to: last.copied().unwrap_or(first),
            },
        }
    }

    fn has(&self, time: f64) -> bool {
        self.after < time && time <= self.to
    }

    fn seconds(&self) -> f64 {
        self.to - self.after
    }
}

fn quantiles(served: &[Served], of: impl Fn(&Served) -> Option<f64>) -> Quantiles {
    Quantiles::of(served.iter().filter_map(of).collect())
}

/// Time per token after the first; `None` of an answer of one token.
fn tpot(s: &Served) -> Option<f64> {
    let rest = s.output_tokens.checked_sub(1).filter(|rest| *rest > 0)?;
    Some((s.end - s.first_token) / rest as f64)
}

/// Answers that kept the service level.
fn slo_kept<'a>(served: impl Iterator<Item = &'a Served>, slo: ServiceLevel) -> Option<usize> {
    if slo == ServiceLevel::default() {
        return None;
    }
    let kept = |s: &&Served| {
        let first = slo
            .ttft
            .is_none_or(|most| s.first_token - s.arrival <= most);
        first
            && slo
                .tpot
                .is_none_or(|most| tpot(s).is_none_or(|tpot| tpot <= most))
    };
    Some(served.filter(kept).count())
}

/// The highest rate up to which a latency keeps under `most`, between the rates that were tried as
/// logarithms run; of rates and latencies, ascending by rate. `None` where the first is over
/// already, and the last rate where none is.
pub fn rate_within(points: &[(f64, f64)], most: f64) -> Option<f64> {
    let over = points.iter().position(|(_, latency)| *latency > most);
    match over {
        None => points.last().map(|(rate, _)| *rate),
        Some(0) => None,
        Some(over) => {
            let ((r0, l0), (r1, l1)) = (points[over - 1], points[over]);
            let share = (most / l0).ln() / (l1 / l0).ln();
            Some(r0 * (r1 / r0).powf(share))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let q = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            (q.p50, q.p95, q.p99, q.max, q.mean),
            (50.0, 95.0, 99.0, 100.0, 50.5)
        );
        assert_eq!(Quantiles::of(vec![3.0]).p95, 3.0);
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }

    #[test]
    fn an_answer_is_good_if_it_keeps_all() {
        let served = |first_token, end| Served {
            arrival: 1.0,
            first_token,
            end,
            output_tokens: 11,
        };
        let all = [served(1.5, 2.5), served(3.5, 4.5), served(1.5, 6.5)];
        let slo = |ttft, tpot| ServiceLevel { tpot, ttft };
        let kept = |slo| slo_kept(all.iter(), slo);
        assert_eq!(kept(slo(None, None)), None);
        assert_eq!(kept(slo(Some(1.0), None)), Some(2));
        assert_eq!(kept(slo(None, Some(0.2))), Some(2));
        assert_eq!(kept(slo(Some(1.0), Some(0.2))), Some(1));
    }

    #[test]
    fn rates_are_of_the_middle_half() {
        let served = |ends: &[f64]| -> Vec<Served> {
            let served = |&end: &f64| Served {
                arrival: 1.0,
                first_token: end,
                end,
                output_tokens: 1,
            };
            ends.iter().map(served).collect()
        };
        // 4 answers end from 4 to 12, one of which is the last of the third quarter.
        let run = served(&[90.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 80.0]);
        let window = Window::of(&run, 1.0);
        assert_eq!((window.after, window.to), (4.0, 12.0));
        assert_eq!(run.iter().filter(|s| window.has(s.end)).count(), 4);
        for run in [served(&[5.0]), served(&[5.0, 5.0, 5.0, 5.0])] {
            let window = Window::of(&run, 1.0);
            assert_eq!((window.after, window.to), (1.0, 5.0));
        }
    }

    #[test]
    fn rates_are_found_between_those_tried() {
        let points = [(1.0, 0.1), (2.0, 0.2), (4.0, 0.8)];
        assert_eq!(rate_within(&points, 0.05), None);
        assert_eq!(rate_within(&points, 1.0), Some(4.0));
        let between = rate_within(&points, 0.4).unwrap();
        assert!((between - 8f64.sqrt()).abs() < 1e-9);
    }
}
