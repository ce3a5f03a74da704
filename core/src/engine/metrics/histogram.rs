//! Counts of values by size, with fixed borders. Knows not what it counts.

use std::time::Duration;

/// A histogram: how many values were at most each bound, as Prometheus keeps them.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: Vec<f64>,
    /// One a bound, and one beyond the last; not cumulative.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, in rising order.
    pub fn new(bounds: impl Into<Vec<f64>>) -> Self {
        let bounds = bounds.into();
        debug_assert!(bounds.windows(2).all(|w| w[0] < w[1]), "{bounds:?}");
        Self {
            counts: vec![0; bounds.len() + 1],
            bounds,
            sum: 0.0,
        }
    }

    /// Bounds 1, 2, 5, 10, 20, 50 … up to `most`.
    pub fn one_two_five(most: usize) -> Self {
        let decades = (0..18).map(|exponent| 10f64.powi(exponent));
        let bounds = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * decade));
        Self::new(
            bounds
                .take_while(|bound| *bound <= most as f64)
                .collect::<Vec<_>>(),
        )
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Counts a span, in seconds.
    pub fn observe_span(&mut self, span: Option<Duration>) {
        if let Some(span) = span {
            self.observe(span.as_secs_f64());
        }
    }

    /// Values so far.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper bounds, and how many values were at most each; the last bound is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        bounds.zip(counts)
    }

    /// The value under which the share `q` of all lies, taken as evenly spread inside a bucket (as
    /// Prometheus' `histogram_quantile`; beyond the last bound it is that bound). `None` without
    /// values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q.clamp(0.0, 1.0) * self.count() as f64;
        let mut from = (0.0, 0);
        for (bound, count) in self.cumulative() {
            if count > 0 && count as f64 >= rank {
                if bound.is_infinite() {
                    return Some(from.0);
                }
                let inside = (rank - from.1 as f64) / (count - from.1).max(1) as f64;
                return Some(from.0 + (bound - from.0) * inside.max(0.0));
            }
            from = (bound, count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_a_bound_are_under_it() {
        let mut histogram = Histogram::new([1.0, 2.0]);
        assert_eq!(histogram.quantile(0.5), None);
        for value in [0.5, 1.0, 1.5, 2.0, 9.0] {
            histogram.observe(value);
        }
        let all: Vec<_> = histogram.cumulative().collect();
        assert_eq!(all, [(1.0, 2), (2.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 14.0));
        assert_eq!(histogram.quantile(0.4), Some(1.0));
        assert_eq!(histogram.quantile(0.6), Some(1.5));
        assert_eq!(histogram.quantile(1.0), Some(2.0), "no more is known");
    }

    #[test]
    fn bounds_by_decades() {
        let histogram = Histogram::one_two_five(100);
        let bounds: Vec<_> = histogram.cumulative().map(|(bound, _)| bound).collect();
        assert_eq!(bounds[..7], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(bounds[7], f64::INFINITY);
    }
}
