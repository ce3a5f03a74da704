//! Distributions after every filter and penalty against numpy's and transformers', for the plain
//! code of `core`, the reference kernels and the device.

use crate::sample_filter::sample_rows;
use safetensors::SafeTensors;
use serde_json::Value;
use twoclock_core::sample::{LogitEdit, distribution, logit_edits};
use twoclock_core::types::{SamplingHistory, SamplingParams};
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{golden, gpu};

const ROWS: usize = 20;
const VOCAB: usize = 512;

struct Golden {
    logits: Vec<f32>,
    histories: Vec<SamplingHistory>,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    steps: Vec<(String, Vec<f64>)>,
    probs: Vec<f64>,
    /// Rows whose nucleus ends inside a tie: which of the equal tokens stay is not said.
    ambiguous: Vec<usize>,
}

fn read() -> Golden {
    let bytes = std::fs::read(golden("sampling.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let json = std::fs::read(golden("sampling.json")).expect("a file");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let data = |name: &str| file.tensor(name).expect("a tensor").data();
    let words = |name: &str| bytemuck::pod_collect_to_vec::<u8, u32>(data(name));
    let (prompt, output) = (words("prompt_ids"), words("output_ids"));
    let numbers = |value: &Value| match value {
        Value::Array(all) => all.iter().map(|v| v.as_f64().expect("a number")).collect(),
        one => vec![one.as_f64().expect("a number")],
    };
    let cases = json["cases"].as_object().expect("cases").iter();
    Golden {
        logits: words("logits").into_iter().map(f32::from_bits).collect(),
        histories: prompt
            .chunks(prompt.len() / ROWS)
            .zip(output.chunks(output.len() / ROWS))
            .map(|(prompt, output)| SamplingHistory {
                token_ids: [prompt, output].concat(),
                num_prompt_tokens: prompt.len(),
                held_ids: Vec::new(),
            })
            .collect(),
        cases: cases
            .map(|(name, steps)| Case {
                name: name.clone(),
                steps: steps
                    .as_array()
                    .expect("steps")
                    .iter()
                    .map(|step| {
                        (
                            step[0].as_str().expect("a name").to_owned(),
                            numbers(&step[1]),
                        )
                    })
                    .collect(),
                probs: bytemuck::pod_collect_to_vec(data(&format!("probs.{name}"))),
                ambiguous: json["ambiguous_rows"][name]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|row| row.as_u64().expect("a row") as usize)
                    .collect(),
            })
            .collect(),
    }
}

fn penalties(case: &Case) -> SamplingParams {
    let mut params = SamplingParams::default();
    for (name, value) in &case.steps {
        match name.as_str() {
            "repetition_penalty" => params.repetition_penalty = value[0] as f32,
            "frequency_presence" => {
                params.frequency_penalty = value[0] as f32;
                params.presence_penalty = value[1] as f32;
            }
            _ => {}
        }
    }
    params
}

fn edits(golden: &Golden, case: &Case) -> Vec<Vec<LogitEdit>> {
    let params = penalties(case);
    let edits = |history| logit_edits(&params, history);
    golden.histories.iter().map(edits).collect()
}

fn compare(on: &str, case: &Case, row: usize, probs: &[f64]) {
    if case.ambiguous.contains(&row) {
        return;
    }
    let expected = &case.probs[row * VOCAB..][..VOCAB];
    for (id, (got, expected)) in probs.iter().zip(expected).enumerate() {
        let what = format!(
            "{on}: {}, row {row}, token {id}: {got} for {expected}",
            case.name
        );
        assert_eq!(*got > 0.0, *expected > 0.0, "{what}");
        assert!((got - expected).abs() <= 1e-6, "{what}");
    }
}

#[test]
fn the_plain_code_is_what_others_compute() {
    let golden = read();
    assert_eq!(golden.cases.len(), 22);
    for case in &golden.cases {
        for (row, edits) in edits(&golden, case).iter().enumerate() {
            let logits = &golden.logits[row * VOCAB..][..VOCAB];
            let mut logits: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
            distribution::edit(&mut logits, edits);
            for (name, value) in &case.steps {
                let x = &mut logits;
                match name.as_str() {
                    "temperature" => distribution::temperature(x, value[0]),
                    "min_p" => distribution::min_p(x, value[0]),
                    "top_k" => distribution::top_k(x, value[0] as usize),
                    "top_p" => distribution::top_p(x, value[0]),
                    "repetition_penalty" | "frequency_presence" => {}
                    other => panic!("what is {other}?"),
                }
            }
            compare("the plain code", case, row, &distribution::softmax(&logits));
        }
    }
}

/// The kernels filter in vLLM's order. Another order is several runs, each of which narrows what the
/// one before kept; min-p may come after, as it asks the largest logit alone.
fn runs(case: &Case) -> (Vec<SamplingParams>, f32) {
    let plain = SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    };
    let mut runs = vec![plain.clone()];
    let (mut temperature, mut order) = (1.0, 0);
    for (name, value) in &case.steps {
        let place = ["min_p", "top_k", "top_p"].iter().position(|n| n == name);
        if name == "temperature" {
            temperature = value[0] as f32;
        }
        let Some(place) = place.map(|place| place + 1) else {
            continue;
        };
        if place < order {
            assert_eq!(place, 1, "only min-p may come late");
            runs.push(plain.clone());
        }
        order = place;
        let run = runs.last_mut().expect("there is one");
        run.temperature = temperature;
        match place {
            1 => run.min_p = value[0] as f32,
            2 => run.top_k = value[0] as usize,
            _ => run.top_p = value[0] as f32,
        }
    }
    (runs, temperature)
}

fn check(on: &str, executor: &mut impl Executor, kind: DeviceKind) {
    let golden = read();
    for case in &golden.cases {
        let edits = edits(&golden, case);
        let (runs, temperature) = runs(case);
        let mut kept = vec![true; ROWS * VOCAB];
        let mut logits = Vec::new();
        for params in runs {
            let rows: Vec<_> = edits.iter().map(|e| (params.clone(), e.clone())).collect();
            let outcome = sample_rows(executor, kind, &golden.logits, &rows, &[0; ROWS]);
            let cut = |i: usize| outcome.cuts[i / VOCAB];
            let any = params.top_k > 0 || params.top_p < 1.0 || params.min_p > 0.0;
            for (i, x) in outcome.logits.iter().enumerate() {
                kept[i] &= !any || *x >= cut(i);
            }
            logits = outcome.logits;
        }
        for row in 0..ROWS {
            let at = row * VOCAB..(row + 1) * VOCAB;
            let x: Vec<f64> = logits[at.clone()]
                .iter()
                .zip(&kept[at])
                .map(|(&x, &kept)| match kept {
                    true => f64::from(x) / f64::from(temperature),
                    false => f64::NEG_INFINITY,
                })
                .collect();
            compare(on, case, row, &distribution::softmax(&x));
        }
    }
}

#[test]
fn the_kernels_compute_it_too() {
    check(
        "the reference",
        &mut CpuExecutor::default(),
        DeviceKind::Cpu,
    );
    for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
        check(&format!("the device, {kind:?}"), &mut *gpu(), kind);
    }
}
