//! The rules by which byte-level vocabularies split text before merging, under the names GGUF gives
//! them. Each rule is a list of patterns applied one after the other; what a pattern leaves over
//! stays a part of its own. Knows no vocabulary.

use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::TextError;

/// GPT-2's pattern.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: as GPT-4's, numbers in groups of up to three digits.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's: as Llama 3's, digits one by one.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5's: as Qwen 2's, with combining marks counted as letters.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One named rule.
pub(super) struct Rule {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// A whole part that is a token is taken as it is, without merging.
    pub(super) ignore_merges: bool,
    /// Texts begin with the beginning-of-sequence token where the file does not say.
    pub(super) add_bos: bool,
}

const fn rule(names: &'static [&'static str], patterns: &'static [&'static str]) -> Rule {
    Rule {
        names,
        patterns,
        ignore_merges: false,
        add_bos: false,
    }
}

const RULES: [Rule; 7] = [
    rule(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "modern-bert",
        ],
        &[GPT2],
    ),
    rule(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        &[r"\p{N}", GPT2],
    ),
    Rule {
        ignore_merges: true,
        add_bos: true,
        ..rule(
            &[
                "llama-bpe",
                "llama3",
                "llama-v3",
                "falcon3",
                "falcon-h1",
                "pixtral",
                "lfm2",
            ],
            &[LLAMA3],
        )
    },
    rule(&["dbrx", "smaug-bpe"], &[LLAMA3]),
    rule(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    rule(&["qwen35"], &[QWEN35]),
    rule(
        &["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    ),
];

/// Finds a rule by the name GGUF gives it (`tokenizer.ggml.pre`).
pub(super) fn find(name: &str) -> Result<&'static Rule, TextError> {
    RULES
        .iter()
        .find(|rule| rule.names.contains(&name))
        .ok_or_else(|| TextError::Unsupported {
            field: "pre-tokenizer (tokenizer.ggml.pre)",
            found: format!("{name:?}"),
            supported: RULES
                .iter()
                .flat_map(|rule| rule.names)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })
}

impl Rule {
    /// The rule as an object of the tokenizers library, ending in the byte-level alphabet.
    pub(super) fn build(&self) -> Result<PreTokenizerWrapper, TextError> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in self.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, Isolated, false)
                .map_err(|e| TextError::Tokenizer(e.to_string()))?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_builds_and_an_unknown_one_is_named() {
        for rule in &RULES {
            rule.build().unwrap();
        }
        let message = find("no-such").err().unwrap().to_string();
        assert!(
            message.contains("\"no-such\"") && message.contains("llama-bpe"),
            "{message}"
        );
    }
}
