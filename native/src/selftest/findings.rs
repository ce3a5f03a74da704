//! What a self-test found, and what of it is wrong: a difference beyond what is allowed, a promise that was
//! not kept, something that was not compared. Compares nothing, prints nothing.

use std::collections::BTreeMap;

use anyhow::bail;
use twoclock_core::runner::NumericsClass;
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::twin::Agreement;

use super::perf::Perf;
use super::{REGIME_TOLERANCE, Regimes, Tested};
use crate::asked_variants::MOST_TOKENS;

/// What was found of one subject.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) class: NumericsClass,
    pub(super) variants: usize,
    pub(super) missing: Vec<String>,
    pub(super) regimes: Regimes,
}

/// All that was found on a device.
#[derive(Clone, Debug)]
pub struct Findings {
    pub(super) device: String,
    /// Whether steps of any size must give the same bits on it.
    pub(super) promised_bits: bool,
    pub(super) subjects: Vec<Subject>,
    /// By kernel, then by variant.
    pub(super) kernels: BTreeMap<&'static str, BTreeMap<String, Agreement>>,
    /// Variants by themselves, where asked for.
    pub perf: Option<Perf>,
}

impl Findings {
    /// Nothing yet; of a device that promises the same bits however a request is served, or does not.
    pub fn new(device: String, promised_bits: bool) -> Self {
        Self {
            device,
            promised_bits,
            subjects: Vec::new(),
            kernels: BTreeMap::new(),
            perf: None,
        }
    }

    /// Adds what was found of a subject.
    pub fn add(&mut self, name: &str, class: NumericsClass, tested: Tested) {
        let asked = tested.asked.iter();
        let missing = asked.filter(|key| !tested.compared.contains_key(key));
        let mut missing: Vec<String> = missing.map(KernelKey::to_string).collect();
        missing.sort_unstable();
        if tested.others_beyond {
            missing.push(format!(
                "the products of steps of more than {MOST_TOKENS} tokens, which the tuning gives others"
            ));
        }
        self.subjects.push(Subject {
            name: name.to_owned(),
            class,
            variants: tested.compared.len(),
            missing,
            regimes: tested.regimes,
        });
        for (key, agreement) in tested.compared {
            let all = self.kernels.entry(key.kernel).or_default();
            all.entry(key.to_string()).or_default().add(agreement);
        }
    }

    /// What is wrong.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, agreement) in self.kernels.values().flatten() {
            if let Some(fault) = &agreement.fault {
                faults.push(format!("{name} differs: {fault}"));
            }
            if agreement.words == 0 {
                faults.push(format!("{name} wrote nothing that could be compared"));
            }
        }
        for subject in &self.subjects {
            let Subject { name, missing, .. } = subject;
            let Regimes {
                values,
                unequal,
                largest,
                ..
            } = subject.regimes;
            faults.extend(
                missing
                    .iter()
                    .map(|key| format!("{name}: {key} was not compared")),
            );
            if subject.variants == 0 || values == 0 {
                faults.push(format!("{name}: nothing was compared"));
            }
            if largest > REGIME_TOLERANCE {
                faults.push(format!(
                    "{name}: steps of different sizes differ by {largest:e} in a log-probability"
                ));
            } else if unequal > 0 && self.promised_bits {
                faults.push(format!(
                    "{name}: {unequal} of {values} log-probabilities have other bits in steps of other \
                     sizes, and this device promises the same"
                ));
            }
        }
        if self.subjects.is_empty() {
            faults.push("nothing was compared".into());
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
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use twoclock_shaders::kernels::matmul::Regime;
    use twoclock_shaders::kernels::{act::ActFormat, weight::WeightFormat};

    fn key(tokens: u32) -> KernelKey {
        Regime::gemv(tokens).key(WeightFormat::Q4_0, ActFormat::F32)
    }

    /// Where all is well.
    pub(crate) fn tested() -> Tested {
        let agreement = Agreement {
            launches: 1,
            words: 8,
            ..Agreement::default()
        };
        Tested {
            compared: HashMap::from([(key(1), agreement.clone()), (key(2), agreement)]),
            asked: HashSet::from([key(1)]),
            others_beyond: false,
            regimes: Regimes {
                sizes: vec![70, 3, 1],
                values: 10,
                unequal: 0,
                largest: 0.0,
            },
        }
    }

    fn faults(promised_bits: bool, tested: Tested) -> Vec<String> {
        let mut findings = Findings::new("a device".into(), promised_bits);
        findings.add("a model", NumericsClass::F16, tested);
        assert_eq!(findings.verdict().is_ok(), findings.faults().is_empty());
        assert_eq!(findings.as_json()["passed"], findings.faults().is_empty());
        findings.faults()
    }

    #[test]
    fn bits_are_held_to_where_they_are_promised() {
        let regimes = |unequal, largest| Regimes {
            unequal,
            largest,
            ..tested().regimes
        };
        let of = |promised, unequal, largest| {
            let regimes = regimes(unequal, largest);
            let faults = faults(
                promised,
                Tested {
                    regimes,
                    ..tested()
                },
            );
            faults.join("; ")
        };
        assert_eq!(of(true, 0, 0.0), "");
        assert_eq!(of(false, 0, 0.0), "");
        assert_eq!(of(false, 1, 1e-6), "");
        assert!(of(true, 1, 1e-6).contains("1 of 10 log-probabilities have other bits"));
        for promised in [true, false] {
            assert!(of(promised, 1, 0.1).contains("differ by 1e-1"));
        }
    }

    #[test]
    fn what_was_not_compared_is_a_fault() {
        let mut none = tested();
        none.regimes.values = 0;
        assert_eq!(faults(false, none), ["a model: nothing was compared"]);
        let mut empty = tested();
        empty.compared.insert(key(4), Agreement::default());
        let found = faults(true, empty);
        assert!(
            found.len() == 1 && found[0].contains("wrote nothing"),
            "{found:?}"
        );
        let mut asked = tested();
        asked.asked.insert(key(8));
        let found = faults(true, asked);
        assert_eq!(found, [format!("a model: {} was not compared", key(8))]);
        let beyond = Tested {
            others_beyond: true,
            ..tested()
        };
        assert!(faults(true, beyond)[0].contains("more than 512 tokens"));
        assert!(Findings::new("a device".into(), true).verdict().is_err());
    }
}
