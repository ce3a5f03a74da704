//! Answers of a given form through the whole engine, on both executors: they have it, whatever the
//! logits and however they are served; the others in the batch are as if alone.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use serde_json::Value;
use std::slice::from_ref;
use std::sync::OnceLock;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{EngineCore, LlmEngine, Prompt, TextCompletion};
use twoclock_core::error::{Error, Result};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, RequestError, SchedulerConfig};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{FinishReason, SamplingParams, StructuredOutput, StructuredOutputError};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{GoldenDir, golden, gpu};

const SCHEMA: &str = r#"{
  "x-guidance": {"whitespace_flexible": false},
  "type": "object",
  "properties": {
    "name": {"type": "string", "maxLength": 6},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["a", "bc", 7]}, "minItems": 1, "maxItems": 3},
    "more": {"type": "boolean"}
  },
  "required": ["name", "age", "tags"],
  "additionalProperties": false
}"#;
const CHOICES: [&str; 3] = ["yes", "no, never", "日本 \"quoted\"\n"];

fn checkpoint() -> &'static Checkpoint {
    static CHECKPOINT: OnceLock<Checkpoint> = OnceLock::new();
    CHECKPOINT.get_or_init(|| {
        let dir = GoldenDir {
            dir: "models/qwen3",
            config: "config.json",
        };
        Checkpoint::from_hf(&dir).expect("a checkpoint")
    })
}

fn tokenizer() -> Tokenizer {
    let json = std::fs::read(golden("tokenizer/tokenizer.json")).expect("golden data");
    Tokenizer::from_json(&json, None, Some("<|im_end|>")).expect("a tokenizer")
}

fn limits() -> SchedulerConfig {
    SchedulerConfig {
        max_model_len: 160,
        max_num_batched_tokens: 64,
        block_size: 16,
        num_blocks: 161,
        ..SchedulerConfig::default()
    }
}

/// Waves of requests, one after the other; the preemptions it took.
fn serve(
    executor: impl Executor,
    config: &SchedulerConfig,
    waves: &[Vec<SamplingParams>],
) -> (Vec<Result<TextCompletion>>, u64) {
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, checkpoint(), config, options, |_| ());
    let clock = ManualClock::default();
    let config = config.clone();
    let core = EngineCore::new(runner.expect("loads"), clock, &checkpoint().config, config);
    let mut engine = LlmEngine::new(core.expect("an engine"), tokenizer());
    let mut answers = Vec::new();
    for wave in waves {
        let prompt =
            |i: usize| Prompt::TokenIds((0..7 + i as u32).map(|t| 30 + 7 * t % 90).collect());
        // Each seed has its prompt, whatever comes with it.
        let asked = wave
            .iter()
            .map(|p| (prompt(p.seed as usize % 5), p.clone()));
        let given = pollster::block_on(engine.generate(asked.collect()));
        answers.extend(given.expect("a device"));
    }
    let metrics = engine.core().scheduler().cache_metrics();
    let preemptions = metrics.num_preemptions_recompute + metrics.num_preemptions_swap;
    (answers, preemptions)
}

fn ask(seed: u64, form: Option<StructuredOutput>) -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        seed,
        max_tokens: 120,
        structured_output: form,
        ..SamplingParams::default()
    }
}

/// Every kind, and two without a form.
fn asks() -> Vec<SamplingParams> {
    let grammar =
        "start: pair (\";\" pair)~0..2\npair: WORD \"=\" /[0-9]{1,3}/\nWORD: /[a-z]{1,5}/";
    vec![
        SamplingParams {
            n: 2,
            ..ask(1, Some(StructuredOutput::Json(SCHEMA.into())))
        },
        SamplingParams {
            ignore_eos: true,
            max_tokens: 100,
            ..ask(2, None)
        },
        ask(3, Some(StructuredOutput::JsonObject)),
        SamplingParams {
            top_k: 7,
            repetition_penalty: 1.3,
            logprobs: Some(2),
            ..ask(
                4,
                Some(StructuredOutput::Regex(r"[A-Z][a-z]{2,6}-\d{2}".into())),
            )
        },
        SamplingParams {
            temperature: 0.0,
            ..ask(5, Some(StructuredOutput::Grammar(grammar.into())))
        },
        SamplingParams {
            top_p: 0.8,
            presence_penalty: 0.5,
            max_tokens: 90,
            ignore_eos: true,
            ..ask(6, None)
        },
        ask(
            7,
            Some(StructuredOutput::Choice(
                CHOICES.map(str::to_owned).to_vec(),
            )),
        ),
    ]
}

fn assert_whole(answer: &TextCompletion) {
    let reason = answer.completion.finish_reason;
    assert_eq!(reason, Some(FinishReason::Stop), "{}", answer.text);
}

fn assert_forms(answers: &[&TextCompletion]) {
    let [
        first,
        second,
        free,
        object,
        regex,
        grammar,
        also_free,
        choice,
    ] = answers
    else {
        panic!("{} answers", answers.len());
    };
    for answer in [first, second] {
        assert_whole(answer);
        let value: Value = serde_json::from_str(&answer.text).expect("JSON");
        let members = value.as_object().expect("an object");
        assert!(
            members
                .keys()
                .all(|key| SCHEMA.contains(&format!("\"{key}\"")))
        );
        let name = value["name"].as_str().expect("a text");
        let age = value["age"].as_i64().expect("a number");
        assert!(name.chars().count() <= 6 && (0..=150).contains(&age));
        let tags = value["tags"].as_array().expect("a list");
        assert!((1..=3).contains(&tags.len()));
        assert!(tags.iter().all(|tag| tag == "a" || tag == "bc" || tag == 7));
        assert!(value.get("more").is_none_or(Value::is_boolean));
    }
    assert_ne!(first.text, second.text);
    assert!(object.text.trim_start().starts_with('{'), "{}", object.text);
    match object.completion.finish_reason {
        Some(FinishReason::Length) => assert_eq!(object.completion.token_ids.len(), 120),
        _ => assert!(serde_json::from_str::<Value>(&object.text).is_ok()),
    }
    assert_whole(regex);
    let (word, digits) = regex.text.split_once('-').expect("a dash");
    assert!(digits.chars().count() == 2 && digits.chars().all(char::is_numeric));
    let mut letters = word.chars();
    assert!(letters.next().is_some_and(|c| c.is_ascii_uppercase()));
    assert!(word.len() <= 7 && word.len() >= 3 && letters.all(|c| c.is_ascii_lowercase()));
    assert_eq!(
        regex.completion.logprobs.len(),
        regex.completion.token_ids.len()
    );
    assert_whole(grammar);
    for pair in grammar.text.split(';') {
        let (word, number) = pair.split_once('=').expect("a pair");
        assert!(!word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()));
        assert!(number.parse::<u32>().is_ok_and(|n| n < 1000), "{pair}");
    }
    assert_whole(choice);
    assert!(CHOICES.contains(&choice.text.as_str()), "{}", choice.text);
    assert_eq!(free.completion.token_ids.len(), 100);
    assert_eq!(also_free.completion.token_ids.len(), 90);
}

fn forms_are_kept(mut executor: impl Executor, servings: &[SchedulerConfig]) {
    let alone: Vec<_> = asks().into_iter().map(|params| vec![params]).collect();
    let (alone, _) = serve(&mut executor, &limits(), &alone);
    let alone: Vec<_> = alone
        .iter()
        .map(|a| a.as_ref().expect("an answer"))
        .collect();
    assert_forms(&alone);
    for (which, config) in servings.iter().enumerate() {
        let (together, preemptions) = serve(&mut executor, config, &[asks()]);
        let small = config.num_blocks < limits().num_blocks;
        assert_eq!(preemptions > 0, small, "serving {which}");
        for (alone, together) in alone.iter().zip(together) {
            let together = together.expect("an answer");
            assert_eq!(alone.text, together.text, "serving {which}");
            assert_eq!(alone.completion.token_ids, together.completion.token_ids);
            assert_eq!(alone.completion.logprobs, together.completion.logprobs);
            let reason = together.completion.finish_reason;
            assert_eq!(alone.completion.finish_reason, reason);
        }
    }
}

#[test]
fn the_reference_keeps_forms_however_it_serves() {
    let small = |preemption_mode| SchedulerConfig {
        num_blocks: 12,
        max_num_batched_tokens: 24,
        preemption_mode,
        ..limits()
    };
    let servings = [
        limits(),
        small(PreemptionMode::Recompute),
        small(PreemptionMode::Swap),
    ];
    forms_are_kept(CpuExecutor::default(), &servings);
}

/// The head computes at most 64 rows at a time.
#[test]
fn every_group_of_rows_has_its_masks() {
    let digits = |i: u64| (100 + i).to_string();
    let asks = (0..70).map(|i| match i % 3 {
        0 => SamplingParams {
            max_tokens: 3,
            ignore_eos: true,
            ..ask(i, None)
        },
        _ => ask(i, Some(StructuredOutput::Choice(vec![digits(i)]))),
    });
    let config = SchedulerConfig {
        max_num_seqs: 70,
        max_num_batched_tokens: 70 * 11,
        ..limits()
    };
    let (answers, _) = serve(CpuExecutor::default(), &config, &[asks.collect()]);
    for (i, answer) in answers.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
        assert_eq!(answer.as_ref().expect("an answer").text, digits(i as u64));
    }
}

#[test]
fn the_device_keeps_forms() {
    forms_are_kept(&mut *gpu(), &[limits()]);
}

#[test]
fn what_else_is_asked_for_counts_too() {
    let tokenizer = tokenizer();
    let ids = |text: &str| tokenizer.encode(text, false, false).expect("ids");
    let regex = |text: &str| Some(StructuredOutput::Regex(text.into()));
    let choice = |texts: &[&str]| {
        let texts = texts.iter().map(|text| (*text).to_owned());
        Some(StructuredOutput::Choice(texts.collect()))
    };
    let asks = vec![
        SamplingParams {
            max_tokens: 5,
            ..ask(1, regex("a{50}"))
        },
        SamplingParams {
            max_tokens: 1,
            ..ask(2, choice(&["q", "z"]))
        },
        SamplingParams {
            stop: vec!["bb".into()],
            ..ask(3, regex("abbc*"))
        },
        // Nothing may follow, though more is wanted.
        SamplingParams {
            min_tokens: 40,
            ..ask(4, regex("x{1,30}"))
        },
        // As long as it may be, where nothing else ends it.
        SamplingParams {
            ignore_eos: true,
            ..ask(5, regex("x{1,30}"))
        },
        // The one way on is banned: an error, and nobody else's.
        SamplingParams {
            bad_words: vec![ids("d")],
            ..ask(6, regex("cd"))
        },
        SamplingParams {
            logit_bias: vec![(ids("u")[0], 100.0), (ids("v")[0], 50.0)],
            ..ask(7, choice(&["v", "w"]))
        },
        SamplingParams {
            max_tokens: 3,
            ignore_eos: true,
            ..ask(8, None)
        },
    ];
    for executor in 0..2 {
        let (answers, _) = match executor {
            0 => serve(CpuExecutor::default(), &limits(), from_ref(&asks)),
            _ => serve(&mut *gpu(), &limits(), from_ref(&asks)),
        };
        let texts: Vec<_> = answers
            .iter()
            .map(|answer| {
                answer
                    .as_ref()
                    .map(|a| (a.text.as_str(), a.completion.finish_reason.expect("an end")))
            })
            .collect();
        let is = |i: usize, text: &str, reason| {
            assert_eq!(
                texts[i].as_ref().expect("an answer"),
                &(text, reason),
                "{i}"
            );
        };
        is(0, "aaaaa", FinishReason::Length);
        let (text, reason) = texts[1].as_ref().expect("an answer");
        assert!(["q", "z"].contains(text) && *reason == FinishReason::Stop);
        is(2, "a", FinishReason::Stop);
        is(3, &"x".repeat(30), FinishReason::Stop);
        is(4, &"x".repeat(30), FinishReason::Stop);
        let Err(Error::Request(RequestError::StructuredOutput(error))) = &texts[5] else {
            panic!("{:?}", texts[5]);
        };
        assert_eq!(
            error,
            &StructuredOutputError::NothingAllowed { name: "regex" }
        );
        is(6, "v", FinishReason::Stop);
        assert_eq!(
            answers[7]
                .as_ref()
                .expect("an answer")
                .completion
                .token_ids
                .len(),
            3
        );
    }
}

#[test]
fn a_bad_form_is_refused_and_costs_nobody_anything() {
    let bad = [
        StructuredOutput::Json("{".into()),
        StructuredOutput::Regex("(".into()),
        StructuredOutput::Grammar("start: nothing".into()),
        StructuredOutput::Choice(vec![]),
    ];
    let mut asks: Vec<_> = bad.into_iter().map(|form| ask(1, Some(form))).collect();
    asks.push(ask(2, Some(StructuredOutput::Choice(vec!["yes".into()]))));
    let (mut answers, _) = serve(CpuExecutor::default(), &limits(), &[asks]);
    assert_eq!(answers.pop().expect("one").expect("an answer").text, "yes");
    for answer in answers {
        let error = answer.expect_err("it is refused").to_string();
        assert!(error.starts_with("structured_output."), "{error}");
    }
    // Without a tokenizer there is no text.
    let config = limits();
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(
        CpuExecutor::default(),
        checkpoint(),
        &config,
        options,
        |_| (),
    );
    let clock = ManualClock::default();
    let core = EngineCore::new(runner.expect("loads"), clock, &checkpoint().config, config);
    let refused = core
        .expect("an engine")
        .add_request(vec![1], ask(1, Some(StructuredOutput::JsonObject)));
    let no_tokenizer = RequestError::StructuredOutput(StructuredOutputError::NoTokenizer);
    assert_eq!(refused, Err(no_tokenizer));
}
