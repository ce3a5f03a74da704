//! Real models against what llama.cpp computed with the same weights in float32: greedy tokens, the
//! best log-probabilities of each step, and every log-probability of a text.

use crate::golden;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;

/// The GGUF file that an environment variable names.
///
/// # Panics
/// When it names none, with what to do.
pub fn model_of_variable(variable: &str, remedy: &str) -> Checkpoint {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!(
            "{variable} must name a model's GGUF file; `bash tests/run.sh` fetches what the tests \
             need and sets the variables, or: {remedy}"
        )
    });
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{variable}: {e}"));
    Checkpoint::from_gguf(Arc::new((variable.to_owned(), bytes))).expect("a checkpoint")
}

/// Serves waves of requests, one after the other; completions in order.
///
/// # Panics
/// When a device or a request fails.
pub fn generate(
    executor: impl Executor,
    checkpoint: &Checkpoint,
    config: &SchedulerConfig,
    options: RunnerOptions,
    waves: Vec<Vec<(Vec<u32>, SamplingParams)>>,
) -> Vec<Completion> {
    let started = Instant::now();
    let runner = ModelRunner::load(executor, checkpoint, config, options, |_| ()).expect("loads");
    eprintln!("loaded in {:.2?}", started.elapsed());
    let clock = ManualClock::default();
    let mut engine =
        EngineCore::new(runner, clock, &checkpoint.config, config.clone()).expect("an engine");
    let mut completions = Vec::new();
    for wave in waves {
        let answers = pollster::block_on(engine.generate(wave)).expect("a device");
        completions.extend(answers.into_iter().map(|answer| answer.expect("an answer")));
    }
    eprintln!("{config:?}: {:.2?}", started.elapsed());
    completions
}

/// How much of a reference is computed.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Prompts, from the first on.
    pub prompts: usize,
    /// Tokens after each.
    pub tokens: usize,
    /// Tokens of the text.
    pub text: usize,
}

impl Share {
    /// All there is.
    pub const ALL: Self = Self {
        prompts: usize::MAX,
        tokens: usize::MAX,
        text: usize::MAX,
    };
}

/// What llama.cpp computed.
#[derive(Clone, Debug)]
pub struct Reference(Value);

impl Reference {
    /// Reads a file of `tests/golden`.
    ///
    /// # Panics
    /// When it is not what the golden README says.
    pub fn read(name: &str) -> Self {
        let text = std::fs::read(golden(name)).expect("golden data");
        Self(serde_json::from_slice(&text).expect("JSON"))
    }

    /// Ids of the text whose log-probabilities there are; empty where there is none.
    pub fn text(&self) -> Vec<u32> {
        self.0
            .get("perplexity")
            .map_or(Vec::new(), |text| ids(&text["ids"]))
    }

    /// Computes a share of it and compares; `tolerance` is the largest difference of a
    /// log-probability.
    ///
    /// # Panics
    /// Where something differs by more.
    pub fn assert_agrees(
        &self,
        executor: impl Executor,
        checkpoint: &Checkpoint,
        share: Share,
        tolerance: f64,
    ) {
        let prompts = array(&self.0["prompts"]);
        let prompts = &prompts[..prompts.len().min(share.prompts)];
        let mut requests: Vec<_> = prompts
            .iter()
            .map(|prompt| {
                let greedy = ids(&prompt["greedy"]["f32"]["ids"]);
                let params = SamplingParams {
                    max_tokens: greedy.len().min(share.tokens),
                    ignore_eos: true,
                    logprobs: Some(5),
                    ..SamplingParams::default()
                };
                (ids(&prompt["ids"]), params)
            })
            .collect();
        let mut text = self.text();
        text.truncate(share.text);
        if !text.is_empty() {
            // The text joins the batch; it generates one token that nobody looks at.
            let params = SamplingParams {
                max_tokens: 1,
                prompt_logprobs: Some(0),
                ..SamplingParams::default()
            };
            requests.push((text.clone(), params));
        }
        let config = SchedulerConfig {
            num_blocks: 1 + 64,
            ..SchedulerConfig::default()
        };
        let mut completions = generate(
            executor,
            checkpoint,
            &config,
            RunnerOptions::exact(),
            vec![requests],
        );

        let mut worst = 0f64;
        if !text.is_empty() {
            let scored = completions.pop().expect("the text");
            worst = self.compare_text(&scored, tolerance);
        }
        for (prompt, ours) in prompts.iter().zip(&completions) {
            worst = worst.max(compare_greedy(prompt, ours, tolerance));
        }
        eprintln!("largest difference of a log-probability {worst:.1e}");
    }

    fn compare_text(&self, scored: &Completion, tolerance: f64) -> f64 {
        let reference = &self.0["perplexity"]["f32"];
        let all = array(&reference["logprobs"]);
        let theirs = &all[..scored.prompt_logprobs.len()];
        assert_eq!(theirs.len() + 1, scored.prompt_token_ids.len());
        let mut worst = 0f64;
        let (mut our_sum, mut their_sum) = (0.0, 0.0);
        for (i, (ours, theirs)) in scored.prompt_logprobs.iter().zip(theirs).enumerate() {
            let (ours, theirs) = (f64::from(ours.logprob), number(theirs));
            let difference = (ours - theirs).abs();
            assert!(difference < tolerance, "text position {i}: {difference}");
            worst = worst.max(difference);
            our_sum += ours;
            their_sum += theirs;
        }
        let [ours, expected] = [our_sum, their_sum].map(|sum| (-sum / theirs.len() as f64).exp());
        eprintln!("perplexity {ours:.5}, reference {expected:.5}");
        assert!((ours / expected - 1.0).abs() < 1e-3, "perplexity {ours}");
        if theirs.len() == all.len() {
            let stated = number(&reference["ppl"]);
            assert!((ours / stated - 1.0).abs() < 1e-3, "perplexity {ours}");
        }
        worst
    }
}

/// Greedy tokens of one prompt, up to where the reference's best two are nearly equal.
fn compare_greedy(prompt: &Value, ours: &Completion, tolerance: f64) -> f64 {
    let name = &prompt["name"];
    let theirs = &prompt["greedy"]["f32"];
    let mut expected = ids(&theirs["ids"]);
    expected.truncate(ours.token_ids.len());
    let steps = theirs["steps"].as_array();
    let (mut compared, mut worst) = (0, 0f64);
    for (step, &id) in expected.iter().enumerate() {
        if let Some(steps) = steps {
            let top: Vec<(u64, f64)> = array(&steps[step]["top"])
                .iter()
                .map(|pair| (pair[0].as_u64().expect("an id"), number(&pair[1])))
                .collect();
            for (rank, &(id, expected)) in top.iter().enumerate() {
                let mut best = ours.logprobs[step].top.iter();
                let found = best.find(|(i, _)| u64::from(*i) == id);
                // Near ties may order the last of five differently.
                assert!(
                    found.is_some() || rank + 1 == top.len(),
                    "{name} step {step}: id {id} is not among our best five"
                );
                if let Some((_, logprob)) = found {
                    let difference = (f64::from(*logprob) - expected).abs();
                    assert!(
                        difference < tolerance,
                        "{name} step {step} id {id}: {difference}"
                    );
                    worst = worst.max(difference);
                }
            }
            if top[0].1 - top[1].1 <= 0.05 {
                break;
            }
        }
        assert_eq!(ours.token_ids[step], id, "{name} step {step}");
        compared += 1;
    }
    eprintln!("{name}: {compared} of {} tokens compared", expected.len());
    assert!(compared > 0, "{name}");
    worst
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn ids(value: &Value) -> Vec<u32> {
    array(value)
        .iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect()
}
