//! The fuzz targets' corpora on a stable toolchain: what was once found, or is worth starting from.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::path::Path;
use std::sync::Arc;

use twoclock_core::weights::Checkpoint;
use twoclock_tests::MemoryFiles;
use twoclock_tests::fuzz::TARGETS;

#[test]
fn every_corpus_is_taken_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, target) in TARGETS {
        let folder = corpus.join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).expect("a readable file"));
        }
    }
}

/// Damage spreads from what is whole: a corpus of what is refused at once would teach a fuzzer
/// nothing.
#[test]
fn the_files_to_start_from_are_models() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let read = |file: &str| std::fs::read(corpus.join(file)).expect("a readable file");
    for file in ["llama_q8_0", "gemma3_q4_0", "qwen3moe_f16"] {
        let bytes = read(&format!("gguf/{file}.gguf"));
        let source = Arc::new((file.to_owned(), bytes));
        Checkpoint::from_gguf(source).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut files = MemoryFiles::default();
    for (name, seed) in [
        ("config.json", "config/tiny.json"),
        ("model.safetensors", "safetensors/tiny"),
    ] {
        files.0.insert(name.to_owned(), read(seed));
    }
    Checkpoint::from_hf(&files).unwrap_or_else(|e| panic!("{e}"));
    let tensors = files.0.remove("model.safetensors").expect("just put there");
    files.0.insert("tiny.safetensors".to_owned(), tensors);
    let index = read("safetensors_index/tiny.json");
    files
        .0
        .insert("model.safetensors.index.json".to_owned(), index);
    Checkpoint::from_hf(&files).unwrap_or_else(|e| panic!("{e}"));
    let split = read("gguf_split/llama");
    let (length, parts) = split.split_at(2);
    let (first, second) = parts.split_at(usize::from(length[0]) | usize::from(length[1]) << 8);
    let mut files = MemoryFiles::default();
    for (name, bytes) in [
        ("m-00001-of-00002.gguf", first),
        ("m-00002-of-00002.gguf", second),
    ] {
        files.0.insert(name.to_owned(), bytes.to_vec());
    }
    Checkpoint::from_gguf_parts(&files, "m-00002-of-00002.gguf").unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn every_target_has_its_function() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(&targets)
        .expect("the targets' folder")
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| {
            path.file_stem()
                .expect("a file")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort();
    let mut names: Vec<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    assert_eq!(files, names);
}
