//! Times of one kind, and what is told of them. Knows not of what.

use serde_json::{Value, json};

/// Times of one kind, ms, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(pub Vec<f64>);

impl Times {
    /// These, in any order.
    pub fn new(times: impl Iterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// A quantile, between two times in the ratio of their ranks.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = self.0.len().checked_sub(1)? as f64 * q;
        let low = rank as usize;
        let high = (low + 1).min(self.0.len() - 1);
        Some(self.0[low] + (self.0[high] - self.0[low]) * (rank - low as f64))
    }

    fn mean(&self) -> Option<f64> {
        let n = self.0.len();
        (n > 0).then(|| self.0.iter().sum::<f64>() / n as f64)
    }

    /// Mean, quantiles and the most.
    pub fn figures(&self) -> [(&'static str, Option<f64>); 6] {
        [
            ("mean", self.mean()),
            ("p50", self.quantile(0.5)),
            ("p90", self.quantile(0.9)),
            ("p95", self.quantile(0.95)),
            ("p99", self.quantile(0.99)),
            ("max", self.0.last().copied()),
        ]
    }

    /// For programs; null where there are none.
    pub fn as_json(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let figures = self.figures();
        let figures = figures.map(|(name, time)| (name.to_owned(), json!(time.map(rounded))));
        Value::Object(figures.into_iter().collect())
    }
}

/// To a thousandth.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
