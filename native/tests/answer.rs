//! Answers over a model that recites: text in pieces, an interruption, a device that fails; and files of
//! requests over it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use twoclock::answer::{answer, as_json};
use twoclock::batch::answers::Answers;
use twoclock::batch::input::Input;
use twoclock::batch::job::Job;
use twoclock::batch::summary::Summary;
use twoclock_core::clock::ManualClock;
use twoclock_core::config::{LayerConfig, ModelConfig, RopeParameters};
use twoclock_core::engine::{EngineCore, LlmEngine, Prompt};
use twoclock_core::error::{Error, Result};
use twoclock_core::runner::ExecuteModel;
use twoclock_core::sched::{ModelRunnerOutput, SchedulerConfig, SchedulerOutput, SequenceOutput};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{RequestId, SamplingParams, TokenId};
use twoclock_core::weights::GenerationDefaults;
use twoclock_shaders::executor::ExecutorError;

/// Says its ids one after the other. Its device is lost once at number `fails_at`; no step with the
/// token `refuses` works.
struct Reciter {
    ids: Vec<TokenId>,
    fails_at: usize,
    refuses: Option<TokenId>,
    num_prompt_tokens: BTreeMap<RequestId, usize>,
}

type Engine = LlmEngine<Reciter, ManualClock>;

impl ExecuteModel for Reciter {
    type Launched = ModelRunnerOutput;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<ModelRunnerOutput> {
        let mut sequences = Vec::new();
        for share in &step.scheduled {
            let end = share.end_position();
            let prompt = self.num_prompt_tokens.entry(share.request_id);
            let said = end - *prompt.or_insert(end);
            if said == self.fails_at {
                self.fails_at = usize::MAX;
                return Err(Error::Executor(ExecutorError::DeviceLost("a test".into())));
            }
            if self.refuses.is_some_and(|id| share.token_ids.contains(&id)) {
                return Err(Error::Executor(ExecutorError::Invalid("a test".into())));
            }
            sequences.push(SequenceOutput {
                request_id: share.request_id,
                token_id: Some(self.ids[said % self.ids.len()]),
                logprobs: None,
                prompt_logprobs: Vec::new(),
                pooled: None,
                error: None,
            });
        }
        Ok(ModelRunnerOutput { sequences })
    }

    async fn finish_step(&mut self, launched: ModelRunnerOutput) -> Result<ModelRunnerOutput> {
        Ok(launched)
    }
}

fn engine(text: &str, fails_at: usize) -> (Engine, Vec<TokenId>) {
    engine_that_refuses(text, fails_at, None)
}

fn engine_that_refuses(
    text: &str,
    fails_at: usize,
    refuses: Option<TokenId>,
) -> (Engine, Vec<TokenId>) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer/tokenizer.json");
    let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap(), None, None).unwrap();
    let ids = tokenizer.encode(text, false, false).unwrap();
    let model = ModelConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: 64,
        intermediate_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 64,
        max_position_embeddings: 512,
        rms_norm_eps: 1e-5,
        embedding_scale: 1.0,
        attention_scale: 1.0,
        layers: vec![LayerConfig::default(); 1],
        rotary_dim: 64,
        rope: RopeParameters {
            theta: 1e4,
            ..RopeParameters::default()
        },
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    let config = SchedulerConfig {
        max_model_len: 512,
        max_num_seqs: 2,
        ..SchedulerConfig::default()
    };
    let reciter = Reciter {
        ids: ids.clone(),
        fails_at,
        refuses,
        num_prompt_tokens: BTreeMap::new(),
    };
    let core = EngineCore::new(reciter, ManualClock::default(), &model, config).unwrap();
    (LlmEngine::new(core, tokenizer), ids)
}

fn params(max_tokens: usize) -> SamplingParams {
    SamplingParams {
        max_tokens,
        ..SamplingParams::default()
    }
}

#[test]
fn text_comes_in_pieces_and_the_json_has_it_all() {
    let text = " Zwölf Uhr: 🕛, 十二時";
    let (mut engine, ids) = engine(text, usize::MAX);
    let mut pieces = String::new();
    let prompt = Prompt::TokenIds(vec![1, 2, 3]);
    let answer = answer(
        &mut engine,
        prompt,
        params(ids.len()),
        || false,
        |piece| pieces += piece,
    );
    let answer = answer.unwrap();
    assert_eq!(answer.text, text);
    assert_eq!(pieces, text);
    let json = as_json(&answer);
    assert_eq!(json["prompt_ids"], serde_json::json!([1, 2, 3]));
    assert_eq!(json["ids"], serde_json::json!(ids));
    assert_eq!(json["finish_reason"], "length");
    assert!(json["ttft_ms"].is_number() && json["tpot_ms"].is_number());
}

#[test]
fn an_interruption_keeps_what_was_said_and_the_engine_goes_on() {
    let (mut engine, ids) = engine("one two three four five six", usize::MAX);
    let steps = Cell::new(0);
    let interrupted = || {
        steps.set(steps.get() + 1);
        steps.get() == 4
    };
    let prompt = Prompt::TokenIds(vec![1]);
    let cut = answer(
        &mut engine,
        prompt.clone(),
        params(100),
        interrupted,
        |_| (),
    )
    .unwrap();
    assert_eq!(cut.completion.token_ids, ids[..3]);
    assert_eq!(as_json(&cut)["finish_reason"], "abort");
    assert!(!engine.has_unfinished_requests());
    let next = answer(&mut engine, prompt, params(2), || false, |_| ()).unwrap();
    assert_eq!(next.completion.token_ids.len(), 2);
}

#[test]
fn a_failed_device_gives_the_request_up() {
    let (mut engine, _) = engine("one two three four", 2);
    let prompt = Prompt::TokenIds(vec![1]);
    let failed = answer(&mut engine, prompt, params(100), || false, |_| ());
    assert!(matches!(failed, Err(Error::Executor(_))), "{failed:?}");
    assert!(!engine.has_unfinished_requests());
}

fn line(id: &str, prompt: Value) -> Value {
    let body = json!({"prompt": prompt, "max_tokens": 3});
    json!({"custom_id": id, "method": "POST", "url": "/v1/completions", "body": body})
}

/// Answers `lines` into a file of `folder`, as `twoclock batch` does.
fn work(
    engine: &mut Engine,
    folder: &Path,
    lines: &[Value],
    interrupted: &dyn Fn() -> bool,
    told: &dyn Fn(usize),
) -> (anyhow::Result<()>, Summary) {
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    let input = folder.join("in.jsonl");
    std::fs::write(&input, text.concat()).unwrap();
    let (mut answers, done) = Answers::open(&folder.join("out.jsonl")).unwrap();
    let input = Input::scan(&input, &done).unwrap();
    answers.drop_failed().unwrap();
    let mut summary = Summary::new(input.num_done());
    let job = Job {
        engine,
        template: None,
        defaults: &GenerationDefaults::default(),
        model: "reciter",
        interrupted,
        rest: &|| (),
        told,
    };
    let ran = job.run(input, &mut answers, &mut summary);
    (ran, summary)
}

/// By custom id.
fn statuses(folder: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(folder.join("out.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).unwrap() });
    let status = |line: Value| {
        let id = line["custom_id"].as_str().unwrap().to_owned();
        (id, line["response"]["status_code"].as_u64().unwrap())
    };
    lines.map(status).collect()
}

#[test]
fn a_step_that_fails_is_the_answer_of_its_lines_and_they_are_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = engine_that_refuses("one two three", usize::MAX, Some(250));
    let lines: Vec<_> = (0..9)
        .map(|i| line(&i.to_string(), json!([if i == 4 { 250 } else { 7 + i }])))
        .collect();
    let (ran, summary) = work(&mut engine, folder.path(), &lines, &|| false, &|_| ());
    ran.unwrap();
    let first = statuses(folder.path());
    assert_eq!(first["4"], 500);
    // It runs beside one other at most.
    assert!((1..=2).contains(&summary.failed), "{first:?}");
    assert_eq!((first.len(), summary.completed), (9, 9 - summary.failed));
    assert!(!engine.has_unfinished_requests());
    let (mut engine, _) = engine_that_refuses("one two three", usize::MAX, None);
    let (ran, again) = work(&mut engine, folder.path(), &lines, &|| false, &|_| ());
    ran.unwrap();
    assert_eq!(
        (again.skipped, again.completed),
        (summary.completed, summary.failed)
    );
    assert!(
        statuses(folder.path())
            .values()
            .all(|status| *status == 200)
    );
}

#[test]
fn a_lost_device_ends_a_file_of_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = engine("one two three", 1);
    let (ran, _) = work(
        &mut engine,
        folder.path(),
        &[line("a", json!([1]))],
        &|| false,
        &|_| (),
    );
    assert!(ran.unwrap_err().to_string().contains("lost"));
    assert!(statuses(folder.path()).is_empty());
}

#[test]
fn a_body_of_many_prompts_can_be_stopped_before_all_are_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = engine("one two three", usize::MAX);
    let asked = Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 100
    };
    let lines = [
        line("many", json!(vec![[1]; 300])),
        line("next", json!([1])),
    ];
    let (ran, summary) = work(&mut engine, folder.path(), &lines, &interrupted, &|_| ());
    ran.unwrap();
    assert_eq!((summary.interrupted, summary.completed), (2, 0));
    assert_eq!(asked.get(), 100);
    let computed = &engine.core().runner().num_prompt_tokens;
    assert!(computed.is_empty(), "{} were computed", computed.len());
    assert!(!engine.has_unfinished_requests());
    assert!(statuses(folder.path()).is_empty());
}

#[test]
fn what_has_come_waits_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = engine("one two three", usize::MAX);
    let mut lines: Vec<_> = (0..30).map(|i| line(&i.to_string(), json!([7]))).collect();
    for line in &mut lines {
        line["arrival_s"] = json!(0);
    }
    let taken = Cell::new(0);
    let told = |over| taken.set(taken.get() + usize::from(over == 0));
    let (ran, summary) = work(&mut engine, folder.path(), &lines, &|| false, &told);
    ran.unwrap();
    assert_eq!(summary.completed, 30);
    assert_eq!(taken.get(), 4, "twice as many as are computed together");
}
