//! Texts that are hard on a tokenizer: one character without end. They take time in proportion to
//! their length, and none of them is lost.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::{Duration, Instant};

use support::source;
use twoclock_core::text::Tokenizer;
use twoclock_core::weights::text_assets::gguf_vocabulary;

fn takes_and_gives_back(tokenizer: &Tokenizer, name: &str, unit: &str, bytes: usize, most: u64) {
    let text = unit.repeat(bytes / unit.len());
    let start = Instant::now();
    let ids = tokenizer.encode(&text, false, false).unwrap();
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(most),
        "{name}: {unit:?}: {took:?}"
    );
    assert_eq!(
        tokenizer.decode(&ids, false).unwrap(),
        text,
        "{name}: {unit:?}"
    );
}

#[test]
fn sentencepiece_joins_a_million_characters() {
    let vocabulary = gguf_vocabulary(source("tokenizer_suites/llama-spm.gguf"))
        .unwrap()
        .unwrap();
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    // Some tenths of a second.
    for unit in ["a", " ", "1", "\n", "漢", "aA"] {
        takes_and_gives_back(&tokenizer, "llama", unit, 1 << 20, 20);
    }
}

#[test]
fn every_rule_splits_long_runs() {
    let vocabulary = gguf_vocabulary(source("gguf/F16.gguf")).unwrap().unwrap();
    for pre in [
        "gpt-2",
        "smollm",
        "llama-bpe",
        "qwen2",
        "qwen35",
        "laguna",
        "gpt-4o",
        "tekken",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "spark2_5",
        "youtu",
        "afmoe",
        "tiny_aya",
        "falcon",
        "bloom",
        "viking",
        "chameleon",
        "kimi-k2",
        "bailingmoe",
        "seed-coder",
        "exaone-moe",
        "minicpm5",
        "jais-2",
        "ufakzeka",
        "default",
    ] {
        let mut vocabulary = vocabulary.clone();
        vocabulary.pre = Some(pre.into());
        let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
        // Some hundredths of a second, and a square of it if a rule looks ahead again and again.
        for unit in ["a", " ", "1", "\n", "ーa", "A", "e\u{300}", " \n"] {
            takes_and_gives_back(&tokenizer, pre, unit, 1 << 16, 4);
        }
    }
}
