//! SmolLM2-135M-Instruct from its real file on the device under test: held against llama.cpp's
//! float32 run of the same weights, and against itself however it is served.
//!
//! The model's path comes from `TWOCLOCK_SMOLLM2`; `tests/run.sh` fetches it and sets that.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod loss;
mod same_tokens;

use serde_json::Value;
use std::time::Instant;
use twoclock_core::chat::{ChatSession, Message};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{EngineCore, LlmEngine, Prompt};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::types::{
    FinishReason, PoolingParams, PoolingType, SamplingParams, StructuredOutput,
};
use twoclock_core::weights::Checkpoint;
use twoclock_tests::{LogitsBits, Reference, Share, generate, gpu, model_of_variable};

fn checkpoint() -> Checkpoint {
    model_of_variable("TWOCLOCK_SMOLLM2", "twoclock pull smollm2")
}

#[test]
fn agrees_with_the_float32_reference() {
    let reference = Reference::read("smollm2.json");
    reference.assert_agrees(&mut *gpu(), &checkpoint(), Share::ALL, 0.02);
}

#[test]
fn the_same_bits_however_served() {
    let checkpoint = checkpoint();
    let text = Reference::read("smollm2.json").text();
    let mut prompts = vec![text[..530].to_vec()];
    prompts.extend([1, 2, 8, 15, 24, 31, 39].map(|n| text[n..2 * n].to_vec()));
    let request = |prompt: &Vec<u32>| {
        let params = SamplingParams {
            max_tokens: 4,
            ignore_eos: true,
            temperature: 0.8,
            seed: prompt.len() as u64,
            logprobs: Some(checkpoint.config.vocab_size),
            ..SamplingParams::default()
        };
        (prompt.clone(), params)
    };
    let together: Vec<Vec<_>> = vec![prompts.iter().map(request).collect()];
    let alone: Vec<Vec<_>> = prompts.iter().map(|p| vec![request(p)]).collect();
    let mut runs = [
        (&together, 512, 32),
        (&alone, 64, 16),
        (&together, 7, 16),
        (&alone, 512, 32),
    ]
    .into_iter()
    .map(|(waves, chunk, block_size)| {
        let config = SchedulerConfig {
            block_size,
            max_prefill_chunk: Some(chunk),
            num_blocks: 1 + 1024 / block_size,
            ..SchedulerConfig::default()
        };
        let mut gpu = gpu();
        let (executor, logits) = LogitsBits::new(&mut *gpu, checkpoint.config.vocab_size);
        let run = generate(
            executor,
            &checkpoint,
            &config,
            RunnerOptions::default(),
            waves.clone(),
        );
        // One row a drawn token, in whatever order they were computed.
        let mut logits = logits.take();
        logits.sort_unstable();
        assert_eq!(logits.len(), 4 * run.len());
        (chunk, block_size, run, logits)
    });
    let (_, _, first, first_logits) = runs.next().expect("four runs");
    for (chunk, block_size, run, logits) in runs {
        assert!(
            logits == first_logits,
            "chunks of {chunk}, pages of {block_size}: other bits of logits"
        );
        for (ours, theirs) in run.iter().zip(&first) {
            let what = format!(
                "prompt of {}, chunks of {chunk}, pages of {block_size}",
                ours.prompt_token_ids.len()
            );
            assert_eq!(ours.token_ids, theirs.token_ids, "{what}");
            assert_eq!(ours.logprobs, theirs.logprobs, "{what}");
        }
    }
}

/// Answers of every form beside two without, in one batch: each has its form, and the free ones are as
/// if alone.
#[test]
fn forms_and_free_answers_in_one_batch() {
    let checkpoint = checkpoint();
    let template = ChatTemplate::from_assets(&checkpoint.text, None).expect("a template");
    let config = SchedulerConfig {
        num_blocks: 1 + 64,
        max_model_len: 256,
        ..SchedulerConfig::default()
    };
    let mut gpu = gpu();
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(&mut *gpu, &checkpoint, &config, options, |_| ());
    let (runner, clock) = (runner.expect("loads"), ManualClock::default());
    let core = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let tokenizer = Tokenizer::from_assets(&checkpoint.text).expect("a tokenizer");
    let mut engine = LlmEngine::new(core, tokenizer);
    let schema = r#"{"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{1,15}$"},
        "people": {"type": "integer", "minimum": 1, "maximum": 99999999}}, "required": ["city", "people"],
        "x-guidance": {"whitespace_flexible": false}}"#;
    let forms = [
        Some(StructuredOutput::Json(schema.into())),
        None,
        Some(StructuredOutput::JsonObject),
        Some(StructuredOutput::Regex(
            r"[A-Z][a-z]+, [0-9]{4}-[0-9]{2}".into(),
        )),
        Some(StructuredOutput::Grammar(
            "start: (\"la\" \" \")~2..4 \"!\"".into(),
        )),
        Some(StructuredOutput::Choice(vec![
            "Rome".into(),
            "Paris".into(),
        ])),
        None,
    ];
    let questions = [
        "Name a city and say how many people live there.",
        "What is rain?",
        "Describe a cat as JSON.",
        "When was Paris founded?",
        "Sing!",
        "What is the capital of France?",
        "Count to five.",
    ];
    let mut asked = Vec::new();
    for (i, (form, question)) in forms.iter().zip(questions).enumerate() {
        let mut session = ChatSession::with_system("You answer in one short sentence.");
        session.push(Message::user(question));
        let prompt = session.render(&template, engine.tokenizer());
        let params = SamplingParams {
            temperature: if i == 5 { 0.0 } else { 0.7 },
            seed: i as u64,
            max_tokens: if form.is_some() { 40 } else { 12 },
            n: if i == 0 { 2 } else { 1 },
            structured_output: form.clone(),
            ..SamplingParams::default()
        };
        asked.push((Prompt::Templated(prompt.expect("renders")), params));
    }
    let mut serve = |asked: &[_]| {
        let answers = pollster::block_on(engine.generate(asked.to_vec())).expect("a device");
        let answers = answers.into_iter().map(|answer| answer.expect("an answer"));
        answers.collect::<Vec<_>>()
    };
    let together = serve(&asked);
    for answer in &together {
        println!("{:?} {:?}", answer.completion.finish_reason, answer.text);
    }
    for (free, place) in [(1, 2), (6, 7)] {
        let alone = serve(&asked[free..=free]);
        assert_eq!(
            alone[0].completion.token_ids,
            together[place].completion.token_ids
        );
    }
    for city in &together[..2] {
        let value: Value = serde_json::from_str(&city.text).expect("JSON");
        let people = value["people"].as_u64().expect("a number");
        assert!(value["city"].as_str().expect("a text").len() <= 16 && people > 0);
        assert_eq!(city.completion.finish_reason, Some(FinishReason::Stop));
    }
    let [object, date, song, capital] = [3, 4, 5, 6].map(|i| together[i].text.as_str());
    assert!(object.trim_start().starts_with('{'));
    let (word, rest) = date.split_once(", ").expect("a comma");
    assert!(word.chars().all(char::is_alphabetic) && rest.len() == 7);
    assert!(song.starts_with("la la ") && song.ends_with('!') && song.len() <= 13);
    assert_eq!(capital, "Paris");
}

/// A prompt of 512 shared and 32 own tokens is answered in a fraction of the time the first takes.
#[test]
fn a_shared_beginning_is_not_waited_for() {
    let checkpoint = checkpoint();
    let config = SchedulerConfig {
        max_num_batched_tokens: 544,
        ..SchedulerConfig::default()
    };
    let mut gpu = gpu();
    let runner = ModelRunner::load(
        &mut *gpu,
        &checkpoint,
        &config,
        RunnerOptions::default(),
        |_| (),
    );
    let (runner, clock) = (runner.expect("loads"), ManualClock::default());
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let text = Reference::read("smollm2.json").text();
    let shared: Vec<u32> = text.iter().copied().cycle().take(512).collect();
    // The first one of another beginning, for what only the first step takes.
    let mut first_token = |shared: &[u32], own: u32| {
        let params = SamplingParams {
            max_tokens: 1,
            ..SamplingParams::default()
        };
        let ids = [shared, &[own; 32]].concat();
        let start = Instant::now();
        let answers = pollster::block_on(engine.generate(vec![(ids, params)]));
        let seconds = start.elapsed().as_secs_f64();
        let answer = answers.expect("a device").remove(0).expect("an answer");
        (seconds, answer.num_cached_tokens)
    };
    first_token(&text[100..200], 9);
    let (first, none) = first_token(&shared, 10);
    let again: Vec<_> = (11..14).map(|own| first_token(&shared, own)).collect();
    assert_eq!(none, 0);
    assert!(again.iter().all(|(_, cached)| *cached == 512));
    let best = again.iter().map(|(seconds, _)| *seconds);
    let best = best.fold(f64::INFINITY, f64::min);
    println!("first token after {first:.3} s, then after {best:.3} s");
    assert!(best <= 0.15 * first, "{best} s of {first} s");
}

/// A conversation's second turn computes what is new in it, but for the part of a page.
#[test]
fn a_second_turn_computes_only_what_is_new() {
    let checkpoint = checkpoint();
    let tokenizer = Tokenizer::from_assets(&checkpoint.text).expect("a tokenizer");
    let template = ChatTemplate::from_assets(&checkpoint.text, None).expect("a template");
    let config = SchedulerConfig {
        block_size: 16,
        num_blocks: 1 + 1024 / 16,
        max_model_len: 1024,
        ..SchedulerConfig::default()
    };
    let mut gpu = gpu();
    let runner = ModelRunner::load(
        &mut *gpu,
        &checkpoint,
        &config,
        RunnerOptions::default(),
        |_| (),
    );
    let (runner, clock) = (runner.expect("loads"), ManualClock::default());
    let core = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let mut engine = LlmEngine::new(core, tokenizer);
    let mut session = ChatSession::with_system("You answer in one short sentence.");
    let mut before: Vec<u32> = Vec::new();
    for question in ["What is the capital of France?", "And of Italy?"] {
        session.push(Message::user(question));
        let prompt = session.render(&template, engine.tokenizer());
        let prompt = Prompt::Templated(prompt.expect("renders"));
        let params = SamplingParams {
            max_tokens: 40,
            ..SamplingParams::default()
        };
        let answers = pollster::block_on(engine.generate(vec![(prompt, params)]));
        let answer = answers.expect("a device").remove(0).expect("an answer");
        let completion = answer.completion;
        let ids = &completion.prompt_token_ids;
        let known = before.iter().zip(ids).take_while(|(a, b)| a == b).count();
        assert_eq!(completion.num_cached_tokens, known / 16 * 16);
        if !before.is_empty() {
            // Question and answer are spelled as they were drawn.
            assert_eq!(known, before.len());
            assert!(ids.len() - completion.num_cached_tokens < 16 + 20);
        }
        // The last token drawn is not computed; it may be one that is not kept.
        let drawn = &completion.token_ids;
        let kept = completion.finish_reason == Some(FinishReason::Stop);
        before = [ids, &drawn[..drawn.len() - usize::from(!kept)]].concat();
        session.push(Message::assistant(answer.text));
    }
}

/// Two pairs of sentences that say the same in other words: each is nearest to its like.
#[test]
fn sentences_that_mean_alike_have_near_embeddings() {
    let checkpoint = checkpoint();
    let tokenizer = Tokenizer::from_assets(&checkpoint.text).expect("a tokenizer");
    let config = SchedulerConfig::default();
    let (mut gpu, options) = (gpu(), RunnerOptions::default());
    let runner = ModelRunner::load(&mut *gpu, &checkpoint, &config, options, |_| ());
    let runner = runner.expect("loads");
    let clock = ManualClock::default();
    let core = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let mut engine = LlmEngine::new(core, tokenizer);
    let texts = [
        "A cat sleeps on the warm sofa.",
        "The kitten is napping on the couch.",
        "The central bank raised interest rates again.",
        "Borrowing money became more expensive this month.",
    ];
    for pooling in [PoolingType::Last, PoolingType::Mean] {
        let params = PoolingParams {
            pooling,
            ..PoolingParams::default()
        };
        let prompts = texts.map(|text| (Prompt::Text(text.to_owned()), params.clone()));
        let embeddings = pollster::block_on(engine.embed(prompts.to_vec())).expect("a device");
        let vectors: Vec<Vec<f32>> = embeddings
            .into_iter()
            .map(|e| e.expect("an embedding").values)
            .collect();
        let cosine = |a: usize, b: usize| -> f32 {
            let pairs = vectors[a].iter().zip(&vectors[b]);
            pairs.map(|(x, y)| x * y).sum()
        };
        for (text, like, others) in [
            (0, 1, [2, 3]),
            (1, 0, [2, 3]),
            (2, 3, [0, 1]),
            (3, 2, [0, 1]),
        ] {
            for other in others {
                let (near, far) = (cosine(text, like), cosine(text, other));
                assert!(
                    near > far + 0.02,
                    "{pooling:?}: {near}, {far}: {}",
                    texts[text]
                );
            }
        }
    }
}
