//! The rules by which byte-level vocabularies split text before merging, under the names GGUF gives
//! them. Each rule is a list of patterns applied one after the other; what a pattern leaves over
//! stays a part of its own. Knows no vocabulary.

use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::TextError;
use super::split_patterns::{
    BLOOM, CASED, DEEPSEEK3, EAST_ASIAN, GPT2, GPT4O, IDEOGRAPHS, KIMI, LINES, LLAMA3, QWEN2,
    QWEN35, TEKKEN, THOUSANDS,
};

/// One named rule.
pub(super) struct Rule {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// A whole part that is a token is taken as it is, without merging.
    pub(super) ignore_merges: bool,
    /// Texts begin with the beginning-of-sequence token where the file does not say.
    pub(super) add_bos: bool,
    /// Tokens are spelled in UTF-8, a space as `▁`, and not in the byte-level alphabet.
    pub(super) plain: bool,
}

const fn rule(names: &'static [&'static str], patterns: &'static [&'static str]) -> Rule {
    Rule {
        names,
        patterns,
        ignore_merges: false,
        add_bos: false,
        plain: false,
    }
}

const fn whole(names: &'static [&'static str], patterns: &'static [&'static str]) -> Rule {
    Rule {
        ignore_merges: true,
        ..rule(names, patterns)
    }
}

const RULES: [Rule; 31] = [
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
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
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
            "mellum2",
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
                "midm-2.0",
                "jina-v5-nano",
            ],
            &[LLAMA3],
        )
    },
    rule(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    whole(&["glm4", "glm5"], &[LLAMA3]),
    rule(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
            "f2llmv2",
        ],
        &[QWEN2],
    ),
    rule(&["qwen35"], &[QWEN35]),
    rule(&["laguna"], &[LINES, QWEN2]),
    rule(
        &["ufakzeka"],
        &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    rule(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[GPT4O],
    ),
    whole(&["granite-embed-multi-97m"], &[GPT4O]),
    Rule {
        ignore_merges: true,
        add_bos: true,
        ..rule(&["tekken"], &[TEKKEN])
    },
    rule(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            CASED,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            EAST_ASIAN,
            r"\p{N}+",
        ],
    ),
    rule(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, r"\p{N}"],
    ),
    rule(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[r"\p{N}{1,3}", IDEOGRAPHS, DEEPSEEK3],
    ),
    rule(
        &["spark2_5"],
        &[
            r"\p{N}{1,3}",
            IDEOGRAPHS,
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
            r"\p{N}",
        ],
    ),
    whole(
        &["youtu"],
        &[
            r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    rule(
        &["afmoe"],
        &[
            r"\p{N}+",
            THOUSANDS,
            r"[一-鿿㐀-䶿\u{F900}-\u{FAFF}぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
            DEEPSEEK3,
        ],
    ),
    rule(
        &["tiny_aya", "cohere2moe"],
        &[r"(?<!\d)(?>\d+)\b", THOUSANDS, GPT4O],
    ),
    rule(
        &["falcon"],
        &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    ),
    rule(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    rule(&["viking"], &[BLOOM, r"\p{N}"]),
    Rule {
        add_bos: true,
        ..rule(
            &["chameleon"],
            &[
                r"<sentinel:[0-9]+>",
                r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ],
        )
    },
    rule(&["kimi-k2"], &[KIMI]),
    rule(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    rule(
        &["seed-coder"],
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    rule(
        &["exaone-moe"],
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    whole(
        &["minicpm5"],
        &[
            r"\p{N}{1,3}",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    rule(
        &["jais-2"],
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        ],
    ),
    Rule {
        plain: true,
        ..rule(
            &["gemma4", "granite-embed-multi-311m", "sarvam-moe"],
            &[LINES],
        )
    },
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
        if !self.plain {
            steps.push(ByteLevel::new(false, false, false).into());
        }
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

    fn parts(name: &str, text: &str) -> Vec<String> {
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};
        let mut pieces = PreTokenizedString::from(text);
        find(name)
            .unwrap()
            .build()
            .unwrap()
            .pre_tokenize(&mut pieces)
            .unwrap();
        pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .iter()
            .map(|(_, (from, to), _)| text[*from..*to].to_owned())
            .collect()
    }

    #[test]
    fn rules_split_where_their_models_do() {
        for (name, text, expected) in [
            (
                "gpt-2",
                "I'll pay 1234 €!  ok",
                "I|'ll| pay| 1234| €!| | ok",
            ),
            ("smollm", "a 12", "a| |1|2"),
            (
                "llama-bpe",
                "HELLO'S 12345\n\n x",
                "HELLO|'S| |123|45|\n\n| x",
            ),
            ("qwen2", "don't 12", "don|'t| |1|2"),
            (
                "gpt-4o",
                "camelCase don't HTTPServer 1234 a/b\n",
                "camel|Case| don't| HTTPServer| |123|4| a|/b|\n",
            ),
            ("tekken", "camelCase don't 12", "camel|Case| don|'t| |1|2"),
            ("kimi-k2", "你好world 12345", "你好|world| |123|45"),
            (
                "deepseek-v3",
                "x=foo(1234) 漢字かな a+b",
                "x|=foo|(|123|4|)| |漢字かな| a|+b",
            ),
            ("deepseek-llm", "ab 12\ncd!", "ab| |12|\n|cd|!"),
            (
                "tiny_aya",
                "1234567 x 12 123 1234abc",
                "1|234|567| x| |12| |123| |123|4|abc",
            ),
            ("afmoe", "1234567 x", "1|234|567| x"),
            ("bloom", "a b, c", "a| b|,| c"),
            ("viking", "a12", "a|1|2"),
            (
                "chameleon",
                "IMGIMGABZ <sentinel:3>\n",
                "IMGIMGABZ| |<|sentinel|:|3|>|\n",
            ),
            ("seed-coder", "a ++\nb", "a| ++|\n|b"),
            ("bailingmoe", "a'd\n\nb", "a|'d|\n\n|b"),
            ("ufakzeka", "Ali'nin 12", "Ali|'nin| |1|2"),
            ("youtu", "한글abc漢字", "한글|abc|漢字"),
            ("exaone-moe", "a b 1", "a b| |1"),
            ("minicpm5", "1234 a", "123|4| a"),
            ("laguna", "a \n b", "a| |\n| b"),
            ("jais-2", "a   b", "a|  | b"),
            ("falcon", "a`b 1234", "a|`|b| |123|4"),
            ("gemma4", "a b\n\nc", "a b|\n\n|c"),
            ("default", "a=b 1234", "a|=|b| |123|4"),
        ] {
            assert_eq!(parts(name, text).join("|"), expected, "{name}");
        }
    }

    #[test]
    fn no_rule_loses_text() {
        let text = "I'll \u{2028}don'T 12345 ½²  \r\n\t é日本語\u{300} 한글 ¿x? <|im_end|>\u{0}🚀🚀 a/b\n ";
        for name in RULES.iter().flat_map(|rule| rule.names) {
            assert_eq!(parts(name, text).concat(), text, "{name}");
        }
    }
}
