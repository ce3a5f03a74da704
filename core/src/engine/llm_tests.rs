//! Text through the engine, with one token a byte so that characters come in pieces. Knows no
//! device: the model recites.

use super::core::EngineCore;
use super::llm::{LlmEngine, Prompt};
use super::metrics::MetricValue;
use super::paged_hash::model;
use crate::clock::ManualClock;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::runner::ExecuteModel;
use crate::sched::{
    ModelRunnerOutput, RequestError, SchedulerConfig, SchedulerOutput, SequenceOutput,
};
use crate::text::Tokenizer;
use crate::types::{FinishReason, SamplingParams, StopReason, TokenId};
use pollster::block_on;
use std::collections::BTreeMap;

const EOS: TokenId = 256;
const BOS: TokenId = 257;
const ANSWER: &str = " Zwölf Uhr: 🕛, 十二時";

/// Says `ANSWER` from wherever the prompt ended, then `EOS`.
struct Reciter {
    num_prompt_tokens: BTreeMap<crate::types::RequestId, usize>,
}

impl ExecuteModel for Reciter {
    type Launched = ModelRunnerOutput;

    async fn launch_step(&mut self, step: &SchedulerOutput) -> Result<ModelRunnerOutput> {
        let recite = |share: &crate::sched::ScheduledSequence| {
            let end = share.end_position();
            let start = *self
                .num_prompt_tokens
                .entry(share.request_id)
                .or_insert(end);
            let byte = ANSWER.as_bytes().get(end - start);
            SequenceOutput {
                request_id: share.request_id,
                token_id: Some(byte.map_or(EOS, |b| TokenId::from(*b))),
                logprobs: None,
                prompt_logprobs: Vec::new(),
                pooled: None,
                error: None,
            }
        };
        Ok(ModelRunnerOutput {
            sequences: step.scheduled.iter().map(recite).collect(),
        })
    }

    async fn finish_step(&mut self, launched: ModelRunnerOutput) -> Result<ModelRunnerOutput> {
        Ok(launched)
    }
}

/// A byte-level tokenizer without merges: id = byte. Byte-level vocabularies write a byte as a
/// printable character (GPT-2's `bytes_to_unicode`).
fn tokenizer() -> Tokenizer {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    let vocab = (0..256u32).map(|byte| {
        let code = if printable(byte) {
            byte
        } else {
            next += 1;
            next - 1
        };
        (char::from_u32(code).unwrap().to_string(), byte)
    });
    let special = |id: TokenId, content: &str| {
        serde_json::json!({ "id": id, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false })
    };
    let byte_level = serde_json::json!({ "type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true });
    let json = serde_json::json!({
        "version": "1.0",
        "added_tokens": [special(EOS, "<end>"), special(BOS, "<begin>")],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": { "type": "BPE", "vocab": vocab.collect::<BTreeMap<_, _>>(), "merges": [] },
    });
    Tokenizer::from_json(json.to_string().as_bytes(), Some("<begin>"), Some("<end>")).unwrap()
}

fn engine() -> LlmEngine<Reciter, ManualClock> {
    engine_that_ends_at(&[EOS])
}

fn engine_that_ends_at(ids: &[TokenId]) -> LlmEngine<Reciter, ManualClock> {
    let model = ModelConfig {
        vocab_size: 258,
        eos_token_ids: ids.to_vec(),
        ..model()
    };
    let config = SchedulerConfig {
        max_model_len: 200,
        ..SchedulerConfig::default()
    };
    let runner = Reciter {
        num_prompt_tokens: BTreeMap::new(),
    };
    let core = EngineCore::new(runner, ManualClock::default(), &model, config).unwrap();
    LlmEngine::new(core, tokenizer())
}

#[test]
fn text_comes_in_whole_characters() {
    let mut engine = engine();
    let prompt = Prompt::Text("Wie spät?".into());
    engine
        .add_request(prompt, SamplingParams::default())
        .unwrap();
    let (mut parts, mut reason) = (Vec::new(), None);
    while engine.has_unfinished_requests() {
        for output in block_on(engine.step()).unwrap() {
            parts.push(output.text);
            reason = output.output.finished;
        }
    }
    assert_eq!(parts.concat(), ANSWER);
    assert_eq!(reason, Some(Ok(FinishReason::Stop)));
    assert!(parts.contains(&"🕛".to_owned()), "{parts:?}");
}

#[test]
fn an_unfinished_character_is_marked_at_the_end() {
    let mut engine = engine();
    let cut = ANSWER.find('🕛').unwrap() + 2;
    let params = SamplingParams {
        max_tokens: cut,
        ..SamplingParams::default()
    };
    let answers = block_on(engine.generate(vec![(Prompt::TokenIds(vec![65]), params)])).unwrap();
    let answer = answers[0].as_ref().unwrap();
    assert_eq!(answer.text, " Zwölf Uhr: \u{fffd}");
    assert_eq!(answer.completion.token_ids.len(), cut);
    assert_eq!(answer.completion.finish_reason, Some(FinishReason::Length));
}

#[test]
fn answers_keep_their_places_beside_refused_prompts() {
    let mut engine = engine();
    let prompts = ["A", "", "<begin>B"].map(|text| {
        let prompt = Prompt::Templated(text.into());
        (prompt, SamplingParams::default())
    });
    let answers = block_on(engine.generate(prompts.to_vec())).unwrap();
    let first = answers[0].as_ref().unwrap();
    assert_eq!(first.text, ANSWER);
    assert_eq!(first.completion.prompt_token_ids, [65]);
    assert!(matches!(
        answers[1],
        Err(Error::Request(RequestError::EmptyPrompt))
    ));
    let third = answers[2].as_ref().unwrap();
    assert_eq!(third.completion.prompt_token_ids, [BOS, 66]);
}

#[test]
fn an_end_that_only_the_tokenizer_knows_ends() {
    for ends in [&[][..], &[BOS]] {
        let mut engine = engine_that_ends_at(ends);
        let params = SamplingParams {
            max_tokens: 60,
            ..SamplingParams::default()
        };
        let prompt = Prompt::TokenIds(vec![65]);
        let answers = block_on(engine.generate(vec![(prompt, params)])).unwrap();
        let answer = answers[0].as_ref().unwrap();
        assert_eq!(answer.text, ANSWER);
        assert_eq!(answer.completion.finish_reason, Some(FinishReason::Stop));
    }
}

#[test]
fn a_stop_string_ends_the_text_and_the_request() {
    let ask = |stop: &str, include: bool, min_tokens: usize| SamplingParams {
        stop: vec!["never".into(), stop.into()],
        include_stop_str_in_output: include,
        min_tokens,
        max_tokens: 60,
        ..SamplingParams::default()
    };
    let uhr = ANSWER.find("Uhr").unwrap() + 3;
    for (params, expected, tokens) in [
        (ask("Uhr", false, 0), " Zwölf ", uhr),
        (ask("Uhr", true, 0), " Zwölf Uhr", uhr),
        (
            ask("🕛, 十", true, 0),
            " Zwölf Uhr: 🕛, 十",
            ANSWER.find('二').unwrap(),
        ),
        // Not looked for so early; what came before cannot become a part of one.
        (ask("Zw", false, 9), ANSWER, ANSWER.len()),
        (ask("二時!", false, 0), ANSWER, ANSWER.len()),
    ] {
        let prompt = Prompt::TokenIds(vec![65]);
        let asked = vec![
            (prompt.clone(), params.clone()),
            (prompt.clone(), SamplingParams::default()),
        ];
        let answers = block_on(engine().generate(asked)).unwrap();
        let answer = answers[0].as_ref().unwrap();
        assert_eq!(answer.text, expected);
        assert_eq!(answer.completion.token_ids.len(), tokens, "{expected}");
        assert_eq!(answer.completion.finish_reason, Some(FinishReason::Stop));
        let stopped = expected.len() < ANSWER.len();
        let reason = stopped.then(|| StopReason::Text(params.stop[1].clone()));
        assert_eq!(answer.completion.stop_reason, reason);
        assert_eq!(
            answers[1].as_ref().unwrap().text,
            ANSWER,
            "the other goes on"
        );

        let mut engine = engine();
        engine.add_request(prompt, params).unwrap();
        let (mut text, mut reason) = (String::new(), None);
        while engine.has_unfinished_requests() {
            for output in block_on(engine.step()).unwrap() {
                text.push_str(&output.text);
                reason = output.output.finished;
            }
        }
        assert_eq!(
            (text.as_str(), reason),
            (expected, Some(Ok(FinishReason::Stop)))
        );
    }
}

/// Its tokens came while another call was waited for: none of them is told behind the stop string.
#[test]
fn nothing_follows_a_stop_string_whoever_stepped() {
    let mut engine = engine();
    let prompt = Prompt::TokenIds(vec![65]);
    let params = SamplingParams {
        stop: vec!["Uhr".into()],
        ..SamplingParams::default()
    };
    engine.add_request(prompt.clone(), params).unwrap();
    let other = vec![(prompt, SamplingParams::default())];
    block_on(engine.generate(other)).unwrap();
    let outputs = block_on(engine.step()).unwrap();
    let text: String = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(text, " Zwölf ");
    let ends = outputs.iter().filter(|o| o.output.finished.is_some());
    assert_eq!(ends.count(), 1);
    assert!(!engine.has_unfinished_requests());
}

/// Counts of the answers that ended, and how many of them kept the service level.
fn ends(engine: &LlmEngine<Reciter, ManualClock>) -> (Vec<(&'static str, u64)>, u64) {
    let families = engine.core().metrics().families(&engine.core().gauges());
    let found = families.iter().find(|f| f.name == "vllm:request_success");
    let MetricValue::LabelledCounter(_, reasons) = &found.unwrap().value else {
        panic!("no counts by reason");
    };
    let good = engine.core().metrics().num_within_slo();
    (reasons.clone(), good)
}

#[test]
fn a_stop_string_counts_as_an_end_and_not_as_an_abort() {
    let prompt = Prompt::TokenIds(vec![65]);
    let params = SamplingParams {
        stop: vec!["Uhr".into()],
        n: 2,
        max_tokens: 60,
        ..SamplingParams::default()
    };
    let expected = vec![("stop", 2), ("length", 0), ("abort", 0), ("error", 0)];
    let mut stepped = engine();
    stepped.add_request(prompt.clone(), params.clone()).unwrap();
    while stepped.has_unfinished_requests() {
        block_on(stepped.step()).unwrap();
    }
    assert_eq!(ends(&stepped), (expected.clone(), 2));
    let mut generated = engine();
    block_on(generated.generate(vec![(prompt, params)])).unwrap();
    assert_eq!(ends(&generated), (expected, 2));
}
