//! What the fuzz targets call: one function a parser of foreign bytes, which may refuse them and may
//! not panic, hang or take more memory than the bytes are worth. Knows no fuzzer and nothing else of
//! this crate: the one in `tests/fuzz` takes this file and its folder as they are and has one target a function, and a
//! test replays their corpora on any toolchain.

use std::io;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use twoclock_core::sample::grammar::{Constraint, GrammarCompiler, TokenText};
use twoclock_core::text::{ChatTemplate, Detokenizer, Tokenizer};
use twoclock_core::types::{SamplingParams, StructuredOutput, TokenId};
use twoclock_core::weights::repack::pack_rows;
use twoclock_core::weights::text_assets::gguf_vocabulary;
use twoclock_core::weights::{ByteSource, Checkpoint, ModelFiles, Quantization};

// By its path, as this file is taken from another folder too.
#[path = "fuzz/answer.rs"]
mod answer;

pub use answer::answer;

/// A target: its name, which is its corpus folder's too, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 12] = [
    ("gguf", gguf),
    ("gguf_split", gguf_split),
    ("safetensors", safetensors),
    ("safetensors_index", safetensors_index),
    ("config", config),
    ("tokenizer_json", tokenizer_json),
    ("gguf_tokenizer", gguf_tokenizer),
    ("template", template),
    ("encode", encode),
    ("detokenize", detokenize),
    ("structured_output", structured_output),
    ("answer", answer),
];

const TEXT: &str = "Hello <|im_end|> 123\n\u{65e5}\u{672c} \u{1f680} aaaa";

fn use_it(tokenizer: &Tokenizer) {
    for parse_special in [false, true] {
        if let Ok(ids) = tokenizer.encode(TEXT, true, parse_special) {
            let _ = tokenizer.decode(&ids, true);
        }
    }
}

/// A model's files, in memory.
struct Files(Vec<(&'static str, Vec<u8>)>);

impl ModelFiles for Files {
    fn name(&self) -> &str {
        "fuzz"
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        let found = self.0.iter().find(|(name, _)| *name == file);
        Ok(found.map(|(name, bytes)| -> Arc<dyn ByteSource> {
            Arc::new(((*name).to_owned(), bytes.clone()))
        }))
    }
}

/// Reads a checkpoint's weights, as a device would. Its vocabulary has a target of its own: making a
/// tokenizer takes a hundred times as long as all of this.
fn load(checkpoint: &Checkpoint) {
    for tensor in checkpoint.tensors.values() {
        let rows = 0..tensor.rows().min(4);
        if let Ok(raw) = tensor.load_rows(rows) {
            let _ = pack_rows(tensor.loaded_dtype(), tensor.cols(), &raw);
        }
        let _ = tensor.read_f32();
    }
}

/// The bytes are a GGUF file.
pub fn gguf(bytes: &[u8]) {
    let source = Arc::new(("fuzz.gguf".to_owned(), bytes.to_vec()));
    if let Ok(mut checkpoint) = Checkpoint::from_gguf(source) {
        load(&checkpoint);
        if checkpoint.quantize(Quantization::Q4_0).is_ok() {
            load(&checkpoint);
        }
    }
}

/// The first two bytes say how long the first part of a GGUF file in two parts is.
pub fn gguf_split(bytes: &[u8]) {
    const NAMES: [&str; 2] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    let Some(([low, high], parts)) = bytes.split_first_chunk() else {
        return;
    };
    let at = usize::from(u16::from_le_bytes([*low, *high])).min(parts.len());
    let (first, second) = parts.split_at(at);
    let files = Files(vec![
        (NAMES[0], first.to_vec()),
        (NAMES[1], second.to_vec()),
    ]);
    for name in NAMES {
        if let Ok(checkpoint) = Checkpoint::from_gguf_parts(&files, name) {
            load(&checkpoint);
        }
    }
}

const CONFIG: &[u8] = include_bytes!("../fuzz/corpus/config/tiny.json");
const TENSORS: &[u8] = include_bytes!("../fuzz/corpus/safetensors/tiny");

fn hf(files: Vec<(&'static str, Vec<u8>)>) {
    if let Ok(checkpoint) = Checkpoint::from_hf(&Files(files)) {
        load(&checkpoint);
    }
}

/// The bytes are a `model.safetensors`.
pub fn safetensors(bytes: &[u8]) {
    hf(vec![
        ("config.json", CONFIG.to_vec()),
        ("model.safetensors", bytes.to_vec()),
    ]);
}

/// The bytes are a `model.safetensors.index.json`.
pub fn safetensors_index(bytes: &[u8]) {
    hf(vec![
        ("config.json", CONFIG.to_vec()),
        ("model.safetensors.index.json", bytes.to_vec()),
        ("tiny.safetensors", TENSORS.to_vec()),
    ]);
}

/// The bytes are a `config.json` and, each after a NUL where it is not empty, a
/// `generation_config.json`, a `modules.json` and a pooling's configuration.
pub fn config(bytes: &[u8]) {
    let mut parts = bytes.splitn(4, |&byte| byte == 0);
    let config = parts.next().unwrap_or_default().to_vec();
    let mut files = vec![
        ("config.json", config),
        ("model.safetensors", TENSORS.to_vec()),
    ];
    let others = [
        "generation_config.json",
        "modules.json",
        "1_Pooling/config.json",
    ];
    let others = others.into_iter().zip(parts);
    let there = others.filter(|(_, part)| !part.is_empty());
    files.extend(there.map(|(name, part)| (name, part.to_vec())));
    hf(files);
}

/// The bytes are a `tokenizer.json`.
pub fn tokenizer_json(bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json(bytes, Some("a"), Some("</s>")) {
        use_it(&tokenizer);
    }
}

/// The bytes are a GGUF file with a vocabulary.
pub fn gguf_tokenizer(bytes: &[u8]) {
    let source = Arc::new(("fuzz.gguf".to_owned(), bytes.to_vec()));
    if let Ok(Some(vocabulary)) = gguf_vocabulary(source)
        && let Ok(tokenizer) = Tokenizer::from_vocabulary(&vocabulary)
    {
        use_it(&tokenizer);
    }
}

/// The bytes are a chat template and, after a NUL, a JSON object of variables.
pub fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (source, variables) = text.split_once('\0').unwrap_or((text, ""));
    let mut variables: Map<String, Value> = serde_json::from_str(variables).unwrap_or_default();
    let messages = variables.remove("messages").unwrap_or_else(
        || serde_json::json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}]),
    );
    let token = || Some("<s>".to_owned());
    let now = Arc::new(str::to_owned);
    if let Ok(template) = ChatTemplate::new(source, token(), token(), Some(now)) {
        let _ = template.render(&messages, true, &variables);
    }
}

/// The bytes are a text. What is encoded comes back.
///
/// # Panics
/// It does not.
pub fn encode(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for tokenizer in tokenizers() {
        for parse_special in [false, true] {
            let ids = tokenizer.encode(text, false, parse_special);
            let ids = ids.expect("a built tokenizer takes every text");
            let back = tokenizer.decode(&ids, false).expect("its own ids");
            // SentencePiece puts a space before each part between special tokens, and writes
            // spaces as this character.
            let same = back == text || back == text.replace('▁', " ");
            assert!(parse_special || same, "{ids:?} of {text:?}");
        }
    }
}

/// The bytes are ids, two bytes each. Piece by piece gives what all at once does.
///
/// # Panics
/// It does not.
pub fn detokenize(bytes: &[u8]) {
    for tokenizer in tokenizers() {
        let size = TokenId::try_from(tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
        let ids: Vec<TokenId> = bytes
            .chunks_exact(2)
            .map(|pair| TokenId::from(u16::from_le_bytes([pair[0], pair[1]])) % size)
            .collect();
        for skip_special in [false, true] {
            let mut stream = Detokenizer::new(skip_special);
            let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
            text += &stream.finish();
            let whole = tokenizer.decode(&ids, skip_special);
            assert_eq!(whole.expect("ids of the vocabulary"), text);
        }
    }
}

/// The first byte says what form an answer has, the rest is it. Some tokens of one are drawn.
///
/// # Panics
/// It does not.
pub fn structured_output(bytes: &[u8]) {
    static COMPILER: OnceLock<GrammarCompiler> = OnceLock::new();
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let form = match kind {
        b'j' => StructuredOutput::Json(text.to_owned()),
        b'r' => StructuredOutput::Regex(text.to_owned()),
        b'g' => StructuredOutput::Grammar(text.to_owned()),
        _ => StructuredOutput::Choice(text.lines().map(str::to_owned).collect()),
    };
    let [tokenizer, _] = tokenizers();
    let compiler = COMPILER.get_or_init(|| {
        let token = |id| TokenText {
            bytes: tokenizer.token_bytes(id),
            special: tokenizer.is_special(id),
        };
        let compiler = GrammarCompiler::new(tokenizer.vocab_size(), tokenizer.eog(), token);
        compiler.expect("a small vocabulary")
    });
    let (params, eos) = (SamplingParams::default(), tokenizer.eog());
    let matcher = compiler.compile(&form);
    let Ok(mut answer) = matcher.and_then(|matcher| Constraint::new(matcher, &params, eos)) else {
        return;
    };
    let size = TokenId::try_from(tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
    for step in 0..16 {
        let mut ids = (0..size).filter(|id| answer.mask().allows(*id) && !eos.contains(id));
        let some = ids.by_ref().take(1 + step * 37 % 100).last();
        let Some(Ok(false)) = some.map(|id| answer.accept(id)) else {
            return;
        };
    }
}

/// A byte-level and a SentencePiece vocabulary.
fn tokenizers() -> &'static [Tokenizer; 2] {
    static TOKENIZERS: OnceLock<[Tokenizer; 2]> = OnceLock::new();
    TOKENIZERS.get_or_init(|| {
        let files: [&[u8]; 2] = [
            include_bytes!("../golden/gguf_archs/llama.gguf"),
            include_bytes!("../golden/tokenizer_suites/llama-spm.gguf"),
        ];
        files.map(|bytes| {
            let source = Arc::new(("golden.gguf".to_owned(), bytes));
            let vocabulary = gguf_vocabulary(source);
            let vocabulary = vocabulary
                .expect("a golden file")
                .expect("with a vocabulary");
            Tokenizer::from_vocabulary(&vocabulary).expect("that can be used")
        })
    })
}
