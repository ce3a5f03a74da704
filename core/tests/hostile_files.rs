//! Damaged files never panic and never make the reader allocate beyond a small multiple of their
//! length. One test a process, as it watches the allocator.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/memory_peak.rs"]
mod memory_peak;
mod support;

use memory_peak::bounded;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::{MemoryFiles, memory, read};
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::weights::Checkpoint;
use twoclock_core::weights::source::ByteSource;
use twoclock_core::weights::text_assets::gguf_vocabulary;

/// A cut and some overwritten bytes, most of them near the start.
fn damage(len: usize, head: usize) -> impl Strategy<Value = (usize, Vec<(usize, u8)>)> {
    let cut = prop_oneof![3 => Just(len), 1 => 0..=len, 1 => 0..=head];
    let at = prop_oneof![4 => 0..head, 1 => 0..len];
    let byte = prop_oneof![
        any::<u8>(),
        Just(0),
        Just(0xff),
        Just(0x7f),
        Just(b'['),
        Just(b'"')
    ];
    (cut, prop::collection::vec((at, byte), 0..6))
}

/// Runs `f` on as many cases as a property test has by default. A runner counts its successes over
/// all its runs, so each has its own.
fn each<S: Strategy>(strategy: S, f: impl Fn(S::Value)) {
    let cases = std::cell::Cell::new(0_u32);
    TestRunner::deterministic()
        .run(&strategy, |value| {
            cases.set(cases.get() + 1);
            f(value);
            Ok(())
        })
        .unwrap();
    assert!(cases.get() >= 256);
}

fn damaged(bytes: &[u8], (cut, flips): (usize, Vec<(usize, u8)>)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in flips {
        bytes[at] = byte;
    }
    bytes.truncate(cut);
    bytes
}

/// A file that begins so and holds nothing but zeros from there on.
struct Holes(Vec<u8>);

impl ByteSource for Holes {
    fn len(&self) -> u64 {
        1 << 40
    }

    fn name(&self) -> &str {
        "holes.gguf"
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        buf.fill(0);
        let begun = self.0.get(offset as usize..).unwrap_or_default();
        let shared = begun.len().min(buf.len());
        buf[..shared].copy_from_slice(&begun[..shared]);
        Ok(())
    }
}

/// The head of a file with so many keys, the first of which holds so many items of a type.
fn keys_head(keys: u64, types: &[u8], items: u64) -> Vec<u8> {
    let name = "the vocabulary";
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    for number in [0, keys, name.len() as u64] {
        head.extend(number.to_le_bytes());
    }
    head.extend(name.as_bytes());
    head.extend(types);
    head.extend(items.to_le_bytes());
    head
}

#[test]
fn damaged_files_cost_nothing() {
    let gguf = read("gguf/Q4_0.gguf");
    let accepted = std::cell::Cell::new(0);
    each(damage(gguf.len(), 16 << 10), |d| {
        let bytes = damaged(&gguf, d);
        let most = 8 * bytes.len() + (256 << 10);
        let source = memory("damaged.gguf", bytes);
        if bounded(most, || Checkpoint::from_gguf(source)).is_ok() {
            accepted.set(accepted.get() + 1);
        }
    });
    // Some damage falls on weights: the reader is not simply refusing everything.
    assert!(accepted.get() > 0);

    // A count in 1 kB that claims the moon.
    let mut small = gguf[..1024].to_vec();
    for count in [u64::MAX, 1 << 60, 1 << 32, 1 << 20] {
        for at in [8, 16] {
            small[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let source = memory("small.gguf", small.clone());
            assert!(bounded(16 << 10, || Checkpoint::from_gguf(source)).is_err());
        }
    }

    // A file of holes, as long as a disk: a billion empty texts are not read out of it.
    for (head, field) in [
        (
            keys_head(1, &[9, 0, 0, 0, 8, 0, 0, 0], 1 << 34),
            "the vocabulary",
        ),
        (keys_head(u64::from(u32::MAX), &[], 0), "the key count"),
    ] {
        let source = std::sync::Arc::new(Holes(head));
        let said = bounded(1 << 20, || Checkpoint::from_gguf(source));
        let said = said.unwrap_err().to_string();
        assert!(
            said.contains(field) && said.contains("holes.gguf"),
            "{said}"
        );
    }

    let files = MemoryFiles::of("models/llama_bias");
    let sharded = MemoryFiles::of("models/llama");
    for (files, name) in [
        (&files, "model.safetensors"),
        (&files, "config.json"),
        (&sharded, "model.safetensors.index.json"),
        (&sharded, "config_v5.json"),
    ] {
        let mut files = files.clone();
        if name == "config_v5.json" {
            let v5 = files.0["config_v5.json"].clone();
            files.0.insert("config.json".into(), v5);
        }
        let name = if name == "config_v5.json" {
            "config.json"
        } else {
            name
        };
        let whole = files.0[name].clone();
        let head = whole.len().min(4 << 10);
        each(damage(whole.len(), head), |d| {
            let mut files = files.clone();
            files.0.insert(name.into(), damaged(&whole, d));
            let total: usize = files.0.values().map(Vec::len).sum();
            let _ = bounded(8 * total + (256 << 10), || Checkpoint::from_hf(&files));
        });
    }

    damaged_text_costs_nothing(&gguf);
}

/// Tokenizers and templates of damaged files; the fixed part of the bound is compiled patterns.
fn damaged_text_costs_nothing(gguf: &[u8]) {
    const TEXT: &str = "in the beginning\n\n  <|im_start|> 日本語 🚀 don't 12345\0";
    const MOST: usize = 16 << 20;
    let accepted = std::cell::Cell::new(0);
    let try_out = |tokenizer: Result<Tokenizer, _>| {
        let Ok(tokenizer) = tokenizer else {
            return;
        };
        accepted.set(accepted.get() + 1);
        for parse_special in [false, true] {
            if let Ok(ids) = tokenizer.encode(TEXT, true, parse_special) {
                let _ = tokenizer.decode(&ids, false);
            }
        }
    };
    let json = read("tokenizer/tokenizer.json");
    each(damage(json.len(), json.len()), |d| {
        let json = damaged(&json, d);
        bounded(MOST, || try_out(Tokenizer::from_json(&json, None, None)));
    });
    each(damage(12 << 10, 12 << 10), |(_, flips)| {
        let source = memory("damaged.gguf", damaged(gguf, (gguf.len(), flips)));
        bounded(gguf.len() + MOST, || {
            if let Ok(Some(vocabulary)) = gguf_vocabulary(source) {
                try_out(Tokenizer::from_vocabulary(&vocabulary));
            }
        });
    });
    assert!(accepted.get() > 0);

    let template = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}{% endfor %}{% if add_generation_prompt %}{{ x|tojson }}{% endif %}";
    let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
    each(damage(template.len(), template.len()), |d| {
        let source = String::from_utf8_lossy(&damaged(template.as_bytes(), d)).into_owned();
        bounded(MOST, || {
            if let Ok(template) = ChatTemplate::new(&source, None, None, None) {
                let _ = template.render(&messages, true, &serde_json::Map::new());
            }
        });
    });
}
