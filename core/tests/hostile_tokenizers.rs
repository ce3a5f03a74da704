//! Tokenizer files made to hurt: each is refused with the name of what is wrong, or does its work, in
//! bounded time and memory. One test a process, as it watches the allocator.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/memory_peak.rs"]
mod memory_peak;
mod support;

use std::time::{Duration, Instant};

use memory_peak::bounded;
use serde_json::{Value, json};
use support::{json, source};
use twoclock_core::config::TokenKind;
use twoclock_core::text::Tokenizer;
use twoclock_core::weights::text_assets::gguf_vocabulary;

const TEXT: &str = "Hello aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 12345 <|im_end|> 日本 ";

/// Builds it and reads a text with it; whether it is refused, and in which words.
fn tried(name: &str, file: &[u8]) -> Option<String> {
    let start = Instant::now();
    let refused = bounded(100 << 20, || match Tokenizer::from_json(file, None, None) {
        Err(e) => Some(e.to_string()),
        Ok(tokenizer) => {
            for parse_special in [false, true] {
                if let Ok(ids) = tokenizer.encode(TEXT, true, parse_special) {
                    let _ = tokenizer.decode(&ids, true).unwrap();
                }
            }
            None
        }
    });
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    refused
}

/// The small tokenizer with one part replaced.
fn with(pointer: &str, value: Value) -> Vec<u8> {
    let mut file = json("tokenizer/tokenizer.json");
    *file.pointer_mut(pointer).unwrap() = value;
    serde_json::to_vec(&file).unwrap()
}

fn split(regex: &str) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})
}

#[test]
fn no_tokenizer_takes_more_than_it_is_given() {
    // Refused, and for what.
    for (name, file, because) in [
        (
            "id beyond all",
            with("/model/vocab/a", json!(u32::MAX)),
            "vocabulary",
        ),
        (
            "id too far",
            with("/model/vocab/a", json!(16_777_215)),
            "vocabulary",
        ),
        (
            "negative id",
            with("/model/vocab/a", json!(-1)),
            "vocabulary",
        ),
        (
            "fractional id",
            with("/model/vocab/a", json!(1.5)),
            "vocabulary",
        ),
        (
            "id of text",
            with("/model/vocab/a", json!("1")),
            "vocabulary",
        ),
        (
            "no vocabulary",
            with("/model/vocab", json!([])),
            "vocabulary",
        ),
        (
            "added id",
            with("/added_tokens/0/id", json!(4_000_000_000_u32)),
            "vocabulary",
        ),
        (
            "added id of 64 bits",
            with("/added_tokens/0/id", json!(1_u64 << 40)),
            "tokenizer.json",
        ),
        (
            "merge of one",
            with("/model/merges/0", json!("a")),
            "merges",
        ),
        (
            "merge to nothing",
            with("/model/merges/0", json!("q q")),
            "merges",
        ),
        (
            "merges of numbers",
            with("/model/merges", json!([1, 2])),
            "tokenizer.json",
        ),
        ("unigram", with("/model/type", json!("Unigram")), "Unigram"),
        (
            "nested arrays",
            [b"[".repeat(1 << 20), vec![]].concat(),
            "tokenizer.json",
        ),
        (
            "nested objects",
            b"{\"a\":".repeat(1 << 18),
            "tokenizer.json",
        ),
        (
            "nested regex",
            with("/pre_tokenizer", split(&"(".repeat(100_000))),
            "pre_tokenizer",
        ),
        (
            "nested groups",
            with(
                "/pre_tokenizer",
                split(&format!("{}a{}", "(".repeat(50_000), ")".repeat(50_000))),
            ),
            "pre_tokenizer",
        ),
        (
            "huge regex",
            with(
                "/pre_tokenizer",
                split("(?:(?:(?:\\pL{999}){999}){999}){999}"),
            ),
            "pre_tokenizer",
        ),
        (
            "regex of nothing known",
            with("/pre_tokenizer", split("\\p{NoSuch}")),
            "pre_tokenizer",
        ),
        ("not JSON", b"\xff\xfe".to_vec(), "tokenizer.json"),
        ("empty", Vec::new(), "tokenizer.json"),
    ] {
        let said = tried(name, &file).unwrap_or_else(|| panic!("{name} was accepted"));
        assert!(said.contains(because), "{name}: {said:?} lacks {because:?}");
        assert!(said.len() < 1000, "{name} says too much: {}", said.len());
    }
    // Taken or not, but harmless.
    for (name, file) in [
        (
            "empty token",
            with("/model/vocab", json!({"": 0, "a": 1, "H": 2})),
        ),
        (
            "backtracking",
            with("/pre_tokenizer", split("(?=(a+)+$)b|(a|a)*(?!a)c")),
        ),
        (
            "look-ahead everywhere",
            with("/pre_tokenizer", split("(?=(?:.*)*x)")),
        ),
        ("matches nothing", with("/pre_tokenizer", split(""))),
        (
            "matches nothing everywhere",
            with("/pre_tokenizer", split("x*")),
        ),
        (
            "long padding",
            with(
                "/padding",
                json!({"strategy": {"Fixed": 1_u64 << 40}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}),
            ),
        ),
        (
            "short truncation",
            with(
                "/truncation",
                json!({"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}),
            ),
        ),
        (
            "unknown token that is none",
            with("/model/unk_token", json!("nowhere")),
        ),
        (
            "bytes that are none",
            with("/model/byte_fallback", json!(true)),
        ),
        (
            "empty added token",
            with("/added_tokens/0/content", json!("")),
        ),
        (
            "added token of a space",
            with("/added_tokens/0/content", json!(" ")),
        ),
        (
            "long added token",
            with("/added_tokens/0/content", json!("a".repeat(1 << 16))),
        ),
    ] {
        let _ = tried(name, &file);
    }
    vocabularies();
}

/// The same for what GGUF files list.
fn vocabularies() {
    let small = gguf_vocabulary(source("gguf/F16.gguf")).unwrap().unwrap();
    let long = |n: usize| "a".repeat(n);
    for (name, model, pieces) in [
        ("empty pieces", "llama", vec![String::new(), String::new()]),
        ("a piece as long as may be", "llama", vec![long(512)]),
        (
            "pieces that join in many ways",
            "llama",
            (1..512).map(long).collect(),
        ),
        (
            "pieces that join by merges",
            "gpt2",
            (1..512).map(long).collect(),
        ),
        (
            "pieces without spaces",
            "gemma4",
            vec![" ".to_owned(), "\n".to_owned()],
        ),
    ] {
        let mut vocabulary = small.clone();
        vocabulary.model = model.to_owned();
        vocabulary.tokens.extend(pieces);
        let size = vocabulary.tokens.len();
        vocabulary.kinds.resize(size, TokenKind::Normal);
        vocabulary.scores = vec![0.0; size];
        vocabulary.bos = Some(u32::MAX);
        let start = Instant::now();
        bounded(100 << 20, || {
            if let Ok(tokenizer) = Tokenizer::from_vocabulary(&vocabulary) {
                let text = long(100_000);
                let ids = tokenizer.encode(&text, false, true).unwrap();
                assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{name}");
            }
        });
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    }

    // Each of these ends a generation.
    let mut vocabulary = small;
    let size = 1 << 20;
    vocabulary.tokens = vec!["<|im_end|>".to_owned(); size];
    vocabulary.kinds = vec![TokenKind::Control; size];
    vocabulary.merges.clear();
    vocabulary.eog = (0..size as u32).collect();
    let start = Instant::now();
    let tokenizer = bounded(1 << 30, || Tokenizer::from_vocabulary(&vocabulary));
    assert_eq!(tokenizer.unwrap().eog().len(), size);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}
