//! Answers over a model that recites: text in pieces, an interruption, a device that fails.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use twoclock::answer::{answer, as_json};
use twoclock_core::clock::ManualClock;
use twoclock_core::config::{LayerConfig, ModelConfig, RopeParameters};
use twoclock_core::engine::{EngineCore, LlmEngine, Prompt};
use twoclock_core::error::{Error, Result};
use twoclock_core::runner::ExecuteModel;
use twoclock_core::sched::{ModelRunnerOutput, SchedulerConfig, SchedulerOutput, SequenceOutput};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{RequestId, SamplingParams, TokenId};
use twoclock_shaders::executor::ExecutorError;

/// Says its ids one after the other, and fails once at number `fails_at`.
struct Reciter {
    ids: Vec<TokenId>,
    fails_at: usize,
    num_prompt_tokens: BTreeMap<RequestId, usize>,
}

impl ExecuteModel for Reciter {
    type Launched = ModelRunnerOutput;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<ModelRunnerOutput> {
        let share = &step.scheduled[0];
        let end = share.end_position();
        let prompt = self.num_prompt_tokens.entry(share.request_id);
        let said = end - *prompt.or_insert(end);
        if said == self.fails_at {
            self.fails_at = usize::MAX;
            return Err(Error::Executor(ExecutorError::DeviceLost("a test".into())));
        }
        let token_id = self.ids[said % self.ids.len()];
        Ok(ModelRunnerOutput {
            sequences: vec![SequenceOutput {
                request_id: share.request_id,
                token_id: Some(token_id),
                logprobs: None,
                prompt_logprobs: Vec::new(),
                pooled: None,
                error: None,
            }],
        })
    }

    async fn finish_step(&mut self, launched: ModelRunnerOutput) -> Result<ModelRunnerOutput> {
        Ok(launched)
    }
}

fn engine(text: &str, fails_at: usize) -> (LlmEngine<Reciter, ManualClock>, Vec<TokenId>) {
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
        ..SchedulerConfig::default()
    };
    let reciter = Reciter {
        ids: ids.clone(),
        fails_at,
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
