//! What a self-test found: as text, as JSON, and as a verdict. Compares nothing.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use anyhow::bail;
use serde_json::{Value, json};
use twoclock_core::runner::NumericsClass;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::twin::Agreement;

use super::perf::Timed;
use super::{REGIME_TOLERANCE, Regimes};
use crate::picture::digits;

/// What was found of one subject.
#[derive(Clone, Debug)]
struct Subject {
    name: String,
    class: NumericsClass,
    variants: usize,
    missing: Vec<String>,
    regimes: Regimes,
}

/// All that was found on a device.
#[derive(Clone, Debug)]
pub struct Findings {
    device: String,
    subjects: Vec<Subject>,
    /// By kernel, then by variant.
    kernels: BTreeMap<&'static str, BTreeMap<String, Agreement>>,
    /// Variants by themselves, where asked for.
    pub perf: Vec<Timed>,
}

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
    /// Nothing yet.
    pub fn new(device: String) -> Self {
        Self {
            device,
            subjects: Vec::new(),
            kernels: BTreeMap::new(),
            perf: Vec::new(),
        }
    }

    /// Adds what was found of a subject.
    pub fn add(
        &mut self,
        name: &str,
        class: NumericsClass,
        compared: BTreeMap<String, (KernelKey, Agreement)>,
        asked: HashSet<KernelKey>,
        regimes: Regimes,
    ) {
        let missing = asked.into_iter().map(|key| key.to_string());
        let mut missing: Vec<_> = missing.filter(|key| !compared.contains_key(key)).collect();
        missing.sort_unstable();
        self.subjects.push(Subject {
            name: name.to_owned(),
            class,
            variants: compared.len(),
            missing,
            regimes,
        });
        for (name, (key, agreement)) in compared {
            let all = self.kernels.entry(key.kernel).or_default().entry(name);
            all.or_default().add(agreement);
        }
    }

    fn faults(&self) -> Vec<String> {
        let variants = self.kernels.values().flatten();
        let differ = variants.filter_map(|(name, agreement)| {
            let fault = agreement.fault.as_ref()?;
            Some(format!("{name} differs: {fault}"))
        });
        let mut faults: Vec<String> = differ.collect();
        for subject in &self.subjects {
            let Subject { name, missing, .. } = subject;
            faults.extend(
                missing
                    .iter()
                    .map(|key| format!("{name}: {key} was not compared")),
            );
            let largest = subject.regimes.largest;
            if largest > REGIME_TOLERANCE {
                faults.push(format!(
                    "{name}: steps of different sizes differ by {largest:e} in a log-probability"
                ));
            }
        }
        faults
    }

    /// Whether steps of every size gave the same bits.
    pub fn same_bits(&self) -> bool {
        self.subjects.iter().all(|s| s.regimes.unequal == 0)
    }

    /// Nothing, or what is wrong.
    ///
    /// # Errors
    /// Something is.
    pub fn verdict(&self) -> anyhow::Result<()> {
        match &self.faults()[..] {
            [] => Ok(()),
            [first] => bail!("the device computes something else: {first}"),
            [first, rest @ ..] => bail!(
                "the device computes something else: {first} (and {} more)",
                rest.len()
            ),
        }
    }

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
                    "values": s.regimes.values,
                    "unequal": s.regimes.unequal,
                    "largest": s.regimes.largest,
                },
            })
        });
        let timed = self.perf.iter().map(|t| {
            json!({
                "variant": t.variant, "grid": t.grid, "compile_s": t.compile, "seconds": t.seconds,
                "bytes_s": t.bandwidth, "flops": t.flops,
            })
        });
        json!({
            "device": self.device,
            "passed": self.verdict().is_ok(),
            "same_tokens": if self.same_bits() { "bits" } else { "epsilon" },
            "faults": self.faults(),
            "subjects": subjects.collect::<Vec<_>>(),
            "kernels": kernels,
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
        let _ = writeln!(text, "\nSteps of 24, 8, 3 and 1 tokens against one of 70:");
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
                "  {} ({}, {} variants): {found}",
                s.name,
                s.class.name(),
                s.variants
            );
        }
        if !self.perf.is_empty() {
            let _ = writeln!(
                text,
                "\n  {:>9} {:>9} {:>8} {:>8}  variant at its largest grid",
                "compile ms", "run ms", "GB/s", "GFLOP/s"
            );
            for t in &self.perf {
                let _ = writeln!(
                    text,
                    "  {:>9.1} {:>9.3} {:>8} {:>8}  {} {:?}",
                    1e3 * t.compile,
                    1e3 * t.seconds,
                    digits(t.bandwidth / 1e9),
                    digits(t.flops / 1e9),
                    t.variant,
                    t.grid
                );
            }
        }
        let faults = self.faults();
        let _ = match &faults[..] {
            [] if self.same_bits() => writeln!(
                text,
                "\nPassed. A request's tokens are the same however it is served, to the bit."
            ),
            [] => writeln!(
                text,
                "\nPassed. A request's tokens are the same however it is served, up to where two are nearly as likely."
            ),
            faults => writeln!(text, "\nFAILED:\n  {}", faults.join("\n  ")),
        };
        text
    }
}
