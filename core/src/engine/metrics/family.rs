//! A metric with its name and what it says, ready for any text format. Knows no format.

use super::histogram::Histogram;

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Its name, prefix included, without what a format appends (`_total`, `_bucket`).
    pub name: &'static str,
    /// What it says, and its unit.
    pub help: &'static str,
    /// Its value.
    pub value: MetricValue,
}

/// A label and its value.
pub type Label = (&'static str, String);

/// What a metric holds.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// What is now.
    Gauge(f64),
    /// A constant 1 whose labels say something.
    Info(Vec<Label>),
    /// What was counted since the beginning.
    Counter(u64),
    /// The same, one count a value of a label.
    LabelledCounter(&'static str, Vec<(&'static str, u64)>),
    /// A sum of something that is no whole number, since the beginning.
    Sum(f64),
    /// Counts by size.
    Histogram(Histogram),
}
