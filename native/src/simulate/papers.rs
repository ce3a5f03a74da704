//! What papers compare, simulated again, and what comes out beside what they say. Owns the choice of
//! device, model, trace and measure; the figures are whatever the runs give.

use std::fmt::Write;

use twoclock_core::sched::{Reservation, ServiceLevel};

use super::policy::{Limits, Policy};
use super::run::{self, Setup};
use super::shape::{self, Bits};
use super::summary::{Summary, rate_within};
use super::{hardware, setup, trace};
use crate::models::Models;
use crate::report::Reporter;

const ORCA_MAX: Policy = Policy::Orca(Reservation::MaxModelLen);
const ORCA_POW2: Policy = Policy::Orca(Reservation::PowerOfTwo);
const ORCA_ORACLE: Policy = Policy::Orca(Reservation::MaxTokens);
const STATIC_ORACLE: Policy = Policy::Static(Reservation::MaxTokens);

/// Requests of each run.
const REQUESTS: usize = 500;

/// A device, a model and a trace under some policies, at rising rates.
struct Case {
    hardware: &'static str,
    model: &'static str,
    trace: &'static str,
    weight_bits: f64,
    slo: ServiceLevel,
    policies: Vec<Policy>,
    /// The lowest rate, and how often it is raised by half.
    rates: (f64, i32),
}

/// Runs of one policy by rising rate.
struct Curve {
    policy: Policy,
    runs: Vec<Summary>,
}

impl Curve {
    /// The highest rate up to which a measure of the runs stays within `most`.
    fn rate(&self, most: f64, measure: impl Fn(&Summary) -> f64) -> Option<f64> {
        let point = |run: &Summary| Some((run.offered_rate?, measure(run)));
        let points = self.runs.iter().filter_map(point);
        rate_within(&points.collect::<Vec<_>>(), most)
    }

    fn within_latency(&self, most: f64) -> Option<f64> {
        self.rate(most, |run| run.normalized_latency.mean)
    }

    /// The highest rate at which nine of ten requests keep the service level.
    fn within_slo(&self) -> Option<f64> {
        self.rate(0.1, |run| (1.0 - run.attainment.unwrap_or(0.0)).max(1e-3))
    }
}

/// What is the same for every case.
struct Lab<'a> {
    models: &'a Models<'a>,
    report: &'a Reporter,
    seed: u64,
    requests: usize,
}

impl Lab<'_> {
    fn curves(&self, case: &Case) -> anyhow::Result<Vec<Curve>> {
        let setup = self.setup(case)?;
        let source = trace::find(case.trace)?;
        let max_model_len = setup.limits.max_model_len;
        let label = "simulating what papers compare";
        let bar = self.report.counter(label, case.policies.len());
        let mut curves = Vec::new();
        for &policy in &case.policies {
            let mut runs = Vec::new();
            for step in 0..=case.rates.1 {
                let rate = case.rates.0 * 1.5f64.powi(step);
                let requests =
                    source.requests(self.requests, Some(rate), max_model_len, self.seed)?;
                let outcome = run::run(&setup, policy, &requests)?;
                runs.push(Summary::of(&outcome, setup.slo));
            }
            curves.push(Curve { policy, runs });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(curves)
    }

    fn setup(&self, case: &Case) -> anyhow::Result<Setup> {
        let bits = Bits {
            weight: Some(case.weight_bits),
            kv: 16.0,
        };
        let model = shape::find(case.model, bits, self.models)?;
        let limits = Limits {
            max_model_len: model.max_model_len.min(4096),
            max_num_seqs: 256,
            block_size: 16,
            num_blocks: 0,
            max_num_batched_tokens: 2048,
            prefix_caching: true,
        };
        setup(
            model.shape,
            hardware::find(case.hardware)?,
            limits,
            case.slo,
        )
    }
}

/// Simulates all of it, and gives what to print.
///
/// # Errors
/// None that a build of this program should show.
pub fn compare(
    models: &Models<'_>,
    report: &Reporter,
    seed: u64,
    requests: Option<usize>,
) -> anyhow::Result<String> {
    let lab = Lab {
        models,
        report,
        seed,
        requests: requests.unwrap_or(REQUESTS),
    };
    Ok([
        orca(&lab)?,
        paged_attention(&lab)?,
        sarathi(&lab)?,
        ridge(&lab)?,
    ]
    .join("\n"))
}

fn shown(rate: Option<f64>) -> String {
    rate.map_or("none".to_owned(), |rate| format!("{rate:.2}"))
}

/// How many times more; a rate that was never kept counts as the lowest that was tried.
fn gain(rate: Option<f64>, than: Option<f64>, lowest: f64) -> String {
    match (rate, than) {
        (Some(rate), Some(than)) => format!("{:.1} ×", rate / than),
        (Some(rate), None) => format!("> {:.1} ×", rate / lowest),
        (None, _) => "-".to_owned(),
    }
}

fn orca(lab: &Lab<'_>) -> anyhow::Result<String> {
    let case = Case {
        hardware: "a100-40gb",
        model: "opt-13b",
        trace: "orca-like",
        weight_bits: 16.0,
        slo: ServiceLevel::default(),
        policies: vec![STATIC_ORACLE, ORCA_ORACLE],
        rates: (0.05, 15),
    };
    let curves = lab.curves(&case)?;
    let [before, after] = curves.as_slice() else {
        anyhow::bail!("two policies give two curves");
    };
    let unloaded = after.runs[0].normalized_latency.mean;
    let mut text = "\
Orca (OSDI 2022): iterations scheduled one by one, against batches that run to their longest answer
OPT 13B, A100 40 GB; prompts of 32 to 512 tokens, answers of 1 to 128; both reserve what a request needs

  latency a token       static req/s   orca req/s     gain
"
    .to_owned();
    for times in [1.25, 1.5, 2.0, 4.0, 10.0] {
        let most = unloaded * times;
        let rates = [before, after].map(|curve| curve.within_latency(most));
        let _ = writeln!(
            text,
            "  {:5.1} ms ({times:>5} ×)   {:>10}   {:>10} {:>10}",
            most * 1e3,
            shown(rates[0]),
            shown(rates[1]),
            gain(rates[1], rates[0], case.rates.0)
        );
    }
    let most = |curve: &Curve| {
        let rates = curve.runs.iter().map(|run| run.requests_per_second);
        rates.fold(0.0, f64::max)
    };
    let _ = writeln!(
        text,
        "  most served          {:>10.2}   {:>10.2} {:>8.1} ×\n  the paper: up to 36.9 × at equal latency \
         (175B on 16 GPUs, in a pipeline that static batches leave idle;\n  here one GPU without a \
         pipeline, so that part of its gain cannot come out)",
        most(before),
        most(after),
        most(after) / most(before)
    );
    Ok(text)
}

fn paged_attention(lab: &Lab<'_>) -> anyhow::Result<String> {
    let case = Case {
        hardware: "a100-40gb",
        model: "opt-13b",
        trace: "sharegpt-like",
        weight_bits: 16.0,
        slo: ServiceLevel::default(),
        policies: vec![
            ORCA_MAX,
            ORCA_POW2,
            ORCA_ORACLE,
            Policy::Vllm,
            Policy::Ridge,
        ],
        rates: (0.1, 10),
    };
    let curves = lab.curves(&case)?;
    let unloaded = curves[0].runs[0].normalized_latency.mean;
    let most = 2.0 * unloaded;
    let paged = curves
        .iter()
        .find(|curve| curve.policy == Policy::Vllm)
        .and_then(|curve| curve.within_latency(most));
    let mut text = format!(
        "PagedAttention (SOSP 2023): paged keys and values, against reservations in one piece (vllm is vllm-2023)\nOPT 13B, \
         A100 40 GB, lengths as ShareGPT's; rate at {:.1} ms a token (2 × unloaded)\n\n  policy         \
         \u{20}   req/s   vllm's over it    waste   of all slots, filled\n",
        most * 1e3
    );
    for curve in &curves {
        let rate = curve.within_latency(most);
        let last = curve.runs.last().expect("there are rates");
        let _ = writeln!(
            text,
            "  {:13} {:>10} {:>16} {:>7.1}% {:>12}",
            curve.policy.to_string(),
            shown(rate),
            gain(paged, rate, case.rates.0),
            last.kv_waste * 100.0,
            last.kv_filled_when_crowded
                .map_or("-".to_owned(), |filled| format!("{:.1}%", filled * 100.0))
        );
    }
    text += "  the paper: 2.7 to 8 × orca-max, 1.7 to 2.7 × orca-oracle; waste of 60 to 80 % (20.4 to \
             38.2 % of all\n  slots filled) falls under 4 %\n";
    Ok(text)
}

fn sarathi(lab: &Lab<'_>) -> anyhow::Result<String> {
    let case = Case {
        hardware: "a100",
        model: "llama-3-8b",
        trace: "azure-like",
        weight_bits: 16.0,
        slo: ServiceLevel::default(),
        policies: vec![Policy::Vllm, ORCA_ORACLE, Policy::Fixed(Some(512))],
        rates: (0.4, 8),
    };
    let curves = lab.curves(&case)?;
    // Each policy's rate as so many times that of whole prompts, so that what chunks gain stands on
    // their line.
    let whole = curves[0].rate(0.1, |run| run.itl.p99);
    // The run next below what the device can serve.
    let at = case.rates.1 as usize - 1;
    let mut text = format!(
        "Sarathi-Serve (OSDI 2024): prompts in chunks of 512, against whole ones\nLlama 3 8B, A100 80 GB, \
         lengths as Azure's conversations\n\n  policy             ITL 50/99/most ms at {:.1} req/s     \
         \u{20} req/s with ITL 99 % within 100 ms   of vllm-2023\n",
        curves[0].runs[at].offered_rate.unwrap_or(f64::NAN)
    );
    for curve in &curves {
        let itl = curve.runs[at].itl;
        let rate = curve.rate(0.1, |run| run.itl.p99);
        let _ = writeln!(
            text,
            "  {:13} {:>14.1} / {:>6.1} / {:>6.1} {:>26} {:>19}",
            curve.policy.to_string(),
            itl.p50 * 1e3,
            itl.p99 * 1e3,
            itl.max * 1e3,
            shown(rate),
            gain(rate, whole, case.rates.0)
        );
    }
    text += "  the paper: up to 2.6 × the capacity of vLLM (Mistral 7B on one A100)\n";
    Ok(text)
}

fn ridge(lab: &Lab<'_>) -> anyhow::Result<String> {
    let policies = [256, 512, 1024, 2048].map(|tokens| Policy::Fixed(Some(tokens)));
    let cases = [
        ("h100", 16.0, 15.0, 1000.0, 4.0),
        ("h100", 16.0, 40.0, 1000.0, 4.0),
        ("a100", 16.0, 25.0, 2000.0, 1.0),
        ("a100", 16.0, 50.0, 2000.0, 1.0),
        ("a100", 16.0, 150.0, 2000.0, 1.0),
        ("rtx4090", 8.5, 50.0, 3000.0, 0.6),
        ("m3max", 4.5, 250.0, 15_000.0, 0.03),
    ];
    let mut text = "\
The ridge: as many prompt tokens a step as the cost model finds room for, against a number fixed for all
Llama 3 8B, lengths as Azure's conversations; most req/s of which nine in ten keep both limits

  device, bits     TPOT, TTFT ms  "
        .to_owned();
    for policy in policies {
        let _ = write!(text, "{:>12}", policy.to_string());
    }
    text += "       ridge   of the best fixed\n";
    for (hardware, weight_bits, tpot, ttft, rate) in cases {
        let case = Case {
            hardware,
            model: "llama-3-8b",
            trace: "azure-like",
            weight_bits,
            slo: ServiceLevel {
                tpot: Some(tpot / 1e3),
                ttft: Some(ttft / 1e3),
            },
            policies: policies.into_iter().chain([Policy::Ridge]).collect(),
            rates: (rate, 7),
        };
        let rates = lab.curves(&case)?;
        let rates: Vec<_> = rates.iter().map(Curve::within_slo).collect();
        let (ridge, fixed) = rates.split_last().expect("there are policies");
        let best = fixed.iter().flatten().copied().fold(0.0, f64::max);
        let device = format!("{hardware}, {weight_bits}");
        let _ = write!(text, "  {device:15} {tpot:>6.0}, {ttft:>6.0}   ");
        for rate in &rates {
            let _ = write!(text, "{:>12}", shown(*rate));
        }
        let share = ridge
            .filter(|_| best > 0.0)
            .map(|ridge| ridge / best * 100.0);
        let _ = writeln!(
            text,
            "{:>16}",
            share.map_or("-".to_owned(), |s| format!("{s:.0} %"))
        );
    }
    Ok(text)
}
