//! What a self-test found, as text and as JSON. Judges nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use twoclock_shaders::twin::Agreement;

use super::findings::Findings;
use crate::devices::same_tokens;
use crate::picture::digits;

/// What the variants of a kernel come to.
struct Row {
    launches: u64,
    words: u64,
    unequal: u64,
    largest: f32,
}

impl Row {
    fn of(variants: &BTreeMap<String, Agreement>) -> Self {
        let sum = |of: fn(&Agreement) -> u64| variants.values().map(of).sum();
        Self {
            launches: sum(|a| a.launches),
            words: sum(|a| a.words),
            unequal: sum(|a| a.unequal),
            largest: variants.values().map(|a| a.largest).fold(0.0, f32::max),
        }
    }
}

impl Findings {
    /// For programs.
    pub fn as_json(&self) -> Value {
        let kernels: serde_json::Map<String, Value> = self
            .kernels
            .iter()
            .map(|(&kernel, variants)| {
                let row = Row::of(variants);
                let row = json!({
                    "variants": variants.len(),
                    "launches": row.launches,
                    "words": row.words,
                    "unequal": row.unequal,
                    "largest": row.largest,
                });
                (kernel.to_owned(), row)
            })
            .collect();
        let subjects = self.subjects.iter().map(|s| {
            json!({
                "name": s.name,
                "class": s.class.name(),
                "variants": s.variants,
                "not_compared": s.missing,
                "regimes": {
                    "steps": s.regimes.sizes,
                    "values": s.regimes.values,
                    "unequal": s.regimes.unequal,
                    "largest": s.regimes.largest,
                },
            })
        });
        let timed = self.perf.iter().flat_map(|perf| &perf.timed).map(|t| {
            json!({
                "variant": t.variant, "grid": t.grid, "compile_s": t.compile, "seconds": t.seconds,
                "bytes_s": t.bandwidth, "flops": t.flops, "of_roof": t.of_roof,
            })
        });
        let rates = self
            .perf
            .as_ref()
            .map(|perf| json!({"copy_bytes_s": perf.rates.copy, "fma_flops": perf.rates.fma}));
        json!({
            "device": self.device,
            "passed": self.verdict().is_ok(),
            "same_tokens": same_tokens(self.same_bits()),
            "promised": same_tokens(self.promised_bits),
            "faults": self.faults(),
            "subjects": subjects.collect::<Vec<_>>(),
            "kernels": kernels,
            "rates": rates,
            "perf": timed.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn as_text(&self) -> String {
        let mut text = format!("{}\n\n", self.device);
        let _ = writeln!(
            text,
            "  {:20} {:>8} {:>8} {:>10}  compared with the reference",
            "kernel", "variants", "launches", "words"
        );
        for (kernel, variants) in &self.kernels {
            let row = Row::of(variants);
            let verdict = match (row.unequal, row.largest) {
                (0, _) => "the same bits".to_owned(),
                (n, largest) => format!(
                    "{} % of words differ, by up to {} % of what is allowed",
                    digits(100.0 * n as f64 / row.words as f64),
                    digits(100.0 * f64::from(largest))
                ),
            };
            let _ = writeln!(
                text,
                "  {kernel:20} {:>8} {:>8} {:>10}  {verdict}",
                variants.len(),
                row.launches,
                row.words
            );
        }
        let _ = writeln!(
            text,
            "\nOne prompt in steps of other sizes against one step:"
        );
        for s in &self.subjects {
            let found = match s.regimes.unequal {
                0 => format!("the same bits in {} log-probabilities", s.regimes.values),
                n => format!(
                    "{n} of {} log-probabilities differ, by up to {:.1e}",
                    s.regimes.values, s.regimes.largest
                ),
            };
            let _ = writeln!(
                text,
                "  {} ({}, {} variants), {}: {found}",
                s.name,
                s.class.name(),
                s.variants,
                sizes(&s.regimes.sizes)
            );
        }
        if let Some(perf) = &self.perf {
            let _ = writeln!(
                text,
                "\nEach variant at its largest grid, beside copies of {} GB/s and multiply-adds of {} \
                 GFLOP/s:\n  {:>9} {:>9} {:>8} {:>8} {:>6}  variant",
                digits(perf.rates.copy / 1e9),
                digits(perf.rates.fma / 1e9),
                "compile ms",
                "run ms",
                "GB/s",
                "GFLOP/s",
                "% roof"
            );
            for t in &perf.timed {
                let _ = writeln!(
                    text,
                    "  {:>10.1} {:>9.3} {:>8} {:>8} {:>6}  {} {:?}",
                    1e3 * t.compile,
                    1e3 * t.seconds,
                    digits(t.bandwidth / 1e9),
                    digits(t.flops / 1e9),
                    digits(100.0 * t.of_roof),
                    t.variant,
                    t.grid
                );
            }
        }
        let faults = self.faults();
        let _ = match &faults[..] {
            [] => writeln!(
                text,
                "\nPassed. A request's tokens are the same however it is served, {}.",
                match (self.same_bits(), self.promised_bits) {
                    (true, true) => "to the bit",
                    (true, false) =>
                        "to the bit here; of this device it is promised only up to where two are \
                         nearly as likely",
                    (false, _) =>
                        "up to where two are nearly as likely: more is not promised of this device",
                }
            ),
            faults => writeln!(text, "\nFAILED:\n  {}", faults.join("\n  ")),
        };
        text
    }
}

/// The steps that were held against the first.
fn sizes(sizes: &[usize]) -> String {
    let number = usize::to_string;
    match sizes {
        [] => "no step".to_owned(),
        [all] => format!("one step of {all} alone"),
        [all, one] => format!("{one} against {all} tokens"),
        [all, others @ .., last] => {
            let others: Vec<String> = others.iter().map(number).collect();
            format!("{} and {last} against {all} tokens", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::tested;
    use super::*;
    use twoclock_core::runner::NumericsClass;

    #[test]
    fn a_report_says_what_is_promised() {
        for (promised, unequal, said) in [
            (true, 0, "however it is served, to the bit."),
            (
                false,
                0,
                "to the bit here; of this device it is promised only",
            ),
            (false, 2, "more is not promised of this device"),
        ] {
            let mut findings = Findings::new("a device".into(), promised);
            let mut tested = tested();
            tested.regimes.unequal = unequal;
            findings.add("a model", NumericsClass::F16, tested);
            let text = findings.as_text();
            assert!(text.contains(said), "{text}");
            assert!(text.contains("3 and 1 against 70 tokens"), "{text}");
            let promised = if promised { "bits" } else { "epsilon" };
            assert_eq!(findings.as_json()["promised"], promised);
        }
    }
}
