//! The fuzz targets' corpora on a stable toolchain: what was once found, or is worth starting from.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::path::Path;

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
