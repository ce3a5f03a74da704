//! Published suites: texts, and the ids that llama.cpp makes of them.

use std::path::Path;

use crate::ids;
use crate::support::{golden, json, memory};
use serde_json::Value;
use twoclock_core::config::{TokenKind, Vocabulary};
use twoclock_core::text::{Detokenizer, Tokenizer};
use twoclock_core::types::TokenId;
use twoclock_core::weights::text_assets::gguf_vocabulary;

/// Runs a suite of llama.cpp: `.inp` holds texts, `.out` their ids a line. Gives the number of
/// cases.
fn suite(dir: &Path, name: &str) -> usize {
    let read = |path: String| {
        let path = dir.join(path);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let vocabulary = gguf_vocabulary(memory(name, read(format!("{name}.gguf"))))
        .unwrap()
        .unwrap();
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    let texts = String::from_utf8(read(format!("{name}.inp"))).unwrap();
    let mut texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    if texts.last() == Some(&"") {
        texts.pop();
    }
    let lines = String::from_utf8(read(format!("{name}.out"))).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(texts.len(), lines.len(), "{name}");
    for (text, line) in texts.iter().zip(&lines) {
        let expected: Vec<TokenId> = line
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        check_case(&tokenizer, name, text, &expected);
    }
    texts.len()
}

fn check_case(tokenizer: &Tokenizer, name: &str, text: &str, expected: &[TokenId]) {
    let encoded = tokenizer.encode(text, false, false).unwrap();
    assert_eq!(encoded, expected, "{name}: {text:?}");
    assert_eq!(tokenizer.decode(&encoded, false).unwrap(), text, "{name}");
    let mut stream = Detokenizer::new(true);
    let mut streamed: String = encoded
        .iter()
        .map(|&id| stream.push(tokenizer, id))
        .collect();
    streamed += &stream.finish();
    assert_eq!(streamed, text, "{name}");
}

/// A vocabulary of which only those tokens and merges are kept that its suite's texts can reach:
/// every other id is a token of its own that no text spells.
fn reduced(file: &Value) -> Vocabulary {
    let number = |key: &str| file[key].as_u64().map(|id| TokenId::try_from(id).unwrap());
    let size = number("size").unwrap();
    let mut tokens: Vec<String> = (0..size).map(|id| format!("\u{f0000}{id}")).collect();
    let mut kinds = vec![TokenKind::Unused; tokens.len()];
    for token in file["tokens"].as_array().unwrap() {
        let id = usize::try_from(token[0].as_u64().unwrap()).unwrap();
        tokens[id] = token[1].as_str().unwrap().to_owned();
        kinds[id] = match token[2].as_u64().unwrap() {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            other => panic!("a token of type {other}"),
        };
    }
    Vocabulary {
        model: file["model"].as_str().unwrap().to_owned(),
        pre: file["pre"].as_str().map(str::to_owned),
        tokens,
        kinds,
        merges: serde_json::from_value(file["merges"].clone()).unwrap(),
        bos: number("bos"),
        eos: number("eos"),
        unk: number("unk"),
        add_bos: file["add_bos"].as_bool(),
        ..Vocabulary::default()
    }
}

#[test]
fn suites_of_reduced_vocabularies() {
    let mut names = 0;
    for entry in std::fs::read_dir(golden("tokenizer_suites")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = json(&format!("tokenizer_suites/{name}.json"));
        let tokenizer = Tokenizer::from_vocabulary(&reduced(&file)).unwrap();
        let cases = file["cases"].as_array().unwrap();
        assert!(cases.len() >= 46, "{name}");
        for case in cases {
            check_case(&tokenizer, name, case[0].as_str().unwrap(), &ids(&case[1]));
        }
        names += 1;
    }
    assert_eq!(names, 11);
}

/// The same vocabularies as their models' makers publish them.
#[test]
fn the_same_model_is_the_same_as_tokenizer_json() {
    for (name, numbers) in [("qwen2", r"\p{N}"), ("llama-bpe", r"\p{N}{1,3}")] {
        let suite = json(&format!("tokenizer_suites/{name}.json"));
        let tokens = suite["tokens"].as_array().unwrap();
        let vocab: serde_json::Map<String, Value> = tokens
            .iter()
            .filter(|token| token[2] == 1)
            .map(|token| (token[1].as_str().unwrap().to_owned(), token[0].clone()))
            .collect();
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        let file = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "byte_fallback": false, "ignore_merges": name == "llama-bpe",
                "vocab": vocab, "merges": suite["merges"]},
        });
        let tokenizer = Tokenizer::from_json(file.to_string().as_bytes(), None, None).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            check_case(&tokenizer, name, case[0].as_str().unwrap(), &ids(&case[1]));
        }
    }
}

#[test]
fn suite_of_sentencepiece() {
    assert_eq!(suite(&golden("tokenizer_suites"), "llama-spm"), 46);
}

#[test]
fn suite_of_phi_3() {
    assert_eq!(suite(&golden("tokenizer_suites"), "phi-3"), 46);
}

#[test]
fn suite_of_gpt_2() {
    assert_eq!(suite(&golden("tokenizer_suites"), "gpt-2"), 46);
}

/// The vocabularies too large to be kept here. `TWOCLOCK_TOKENIZER_SUITES` names a folder of
/// `NAME.gguf`, `NAME.inp`, `NAME.out`.
#[test]
#[ignore = "needs the folder TWOCLOCK_TOKENIZER_SUITES"]
fn suites_of_a_folder() {
    let dir = std::env::var("TWOCLOCK_TOKENIZER_SUITES")
        .expect("set TWOCLOCK_TOKENIZER_SUITES to a folder of NAME.gguf, NAME.inp, NAME.out");
    let dir = Path::new(&dir);
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "inp") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            match std::panic::catch_unwind(|| suite(dir, name)) {
                Ok(cases) => println!("{name}: {cases} cases equal"),
                Err(_) => failed.push(name.to_owned()),
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
