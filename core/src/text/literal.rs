//! What a person wrote, told apart from what a chat template did: in a rendered prompt, the texts
//! of special tokens that came with a message stay text. Knows no template language and no ids.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tokenizers::AddedToken;

use super::{TextError, Tokenizer};

/// A prompt out of a chat template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The text.
    pub text: String,
    /// Bytes of it that spell special tokens and are none, ascending.
    pub literal: Vec<Range<usize>>,
}

impl RenderedPrompt {
    /// Goes on with what a person wrote: special tokens it spells are text.
    ///
    /// # Errors
    /// The tokenizer's.
    pub fn push_literal(&mut self, text: &str, tokenizer: &Tokenizer) -> Result<(), TextError> {
        let start = self.text.len();
        let found = tokenizer.special_texts()?.matcher.find_iter(text);
        let ranges = found.map(|found| start + found.start()..start + found.end());
        self.literal.extend(ranges);
        self.text.push_str(text);
        Ok(())
    }

    /// Takes away what is behind so many bytes.
    pub fn truncate(&mut self, len: usize) {
        self.text.truncate(len);
        self.literal.retain(|literal| literal.end <= len);
    }
}

/// A text whose special tokens are all meant.
impl From<String> for RenderedPrompt {
    fn from(text: String) -> Self {
        Self {
            text,
            literal: Vec::new(),
        }
    }
}

impl From<&str> for RenderedPrompt {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The texts of a tokenizer's special tokens, to be found in others.
pub(super) struct SpecialTexts {
    matcher: AhoCorasick,
    tokens: Vec<AddedToken>,
}

impl SpecialTexts {
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, TextError> {
        let tokens: Vec<AddedToken> = tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .values()
            .filter(|token| token.special && !token.content.is_empty())
            .cloned()
            .collect();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.content))
            .map_err(|e| TextError::Tokenizer(e.to_string()))?;
        Ok(Self { matcher, tokens })
    }

    /// Whether a text, or one within a list or an object, spells one.
    pub(super) fn occur_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.matcher.is_match(text),
            Value::Array(items) => items.iter().any(|v| self.occur_in(v)),
            Value::Object(fields) => fields
                .iter()
                .any(|(key, v)| self.matcher.is_match(key) || self.occur_in(v)),
            _ => false,
        }
    }

    /// The parts of a text between special tokens that hold literal ones.
    pub(super) fn parts_with(&self, text: &str, literal: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut literal = literal.iter().peekable();
        let mut start = 0;
        let meant = {
            let literal: Vec<_> = literal.clone().collect();
            self.matcher.find_iter(text).filter(move |found| {
                // The first that does not end before it.
                let at = literal.partition_point(|l| l.end <= found.start());
                literal.get(at).is_none_or(|l| l.start >= found.end())
            })
        };
        let mut close = |part: Range<usize>| {
            let mut holds = false;
            while literal.next_if(|l| l.start < part.end).is_some() {
                holds = true;
            }
            if holds {
                parts.push(part);
            }
        };
        for found in meant {
            let token = &self.tokens[found.pattern().as_usize()];
            // White space that a token takes with it stays with it.
            let before = &text[start..found.start()];
            let kept = if token.lstrip {
                before.trim_end().len()
            } else {
                before.len()
            };
            close(start..start + kept);
            let after = &text[found.end()..];
            let taken = if token.rstrip {
                after.len() - after.trim_start().len()
            } else {
                0
            };
            start = found.end() + taken;
        }
        close(start.min(text.len())..text.len());
        parts
    }
}

/// Two characters around every special token's text in a message, which come through a template
/// and are taken out again.
pub(super) struct Marks {
    open: char,
    close: char,
}

impl Marks {
    /// Private-use characters that occur in none of these texts.
    pub(super) fn unlike(source: &str, values: &[&Value]) -> Result<Self, TextError> {
        let mut used = std::collections::BTreeSet::new();
        let mut note = |text: &str| used.extend(text.chars().filter(|c| *c >= '\u{e000}'));
        note(source);
        for value in values {
            each_text(value, &mut note);
        }
        let mut free = ('\u{e000}'..='\u{f8ff}')
            .chain('\u{f0000}'..='\u{ffffd}')
            .filter(|c| !used.contains(c));
        match (free.next(), free.next()) {
            (Some(open), Some(close)) => Ok(Self { open, close }),
            _ => Err(TextError::TemplateFailed(
                "the messages use every private-use character, and two are needed".to_owned(),
            )),
        }
    }

    /// The value with marks.
    pub(super) fn mark(&self, value: Value, specials: &SpecialTexts) -> Value {
        match value {
            Value::String(text) => self.mark_text(text, specials).into(),
            Value::Array(items) => items.into_iter().map(|v| self.mark(v, specials)).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(key, v)| (self.mark_text(key, specials), self.mark(v, specials)))
                .collect(),
            other => other,
        }
    }

    fn mark_text(&self, text: String, specials: &SpecialTexts) -> String {
        let mut out = String::with_capacity(text.len());
        let mut last = 0;
        for found in specials.matcher.find_iter(&text) {
            out.push_str(&text[last..found.start()]);
            out.push(self.open);
            out.push_str(&text[found.range()]);
            out.push(self.close);
            last = found.end();
        }
        out.push_str(&text[last..]);
        out
    }

    /// The rendered text without marks. A template may have cut a text: only what is still whole
    /// between its marks spells a special token.
    pub(super) fn take(&self, marked: &str, specials: &SpecialTexts) -> RenderedPrompt {
        let mut prompt = RenderedPrompt::default();
        let mut open = None;
        for c in marked.chars() {
            if c == self.open {
                open = Some(prompt.text.len());
            } else if c == self.close {
                if let Some(start) = open.take() {
                    let whole = specials.matcher.find(&prompt.text[start..]);
                    if whole.is_some_and(|w| w.range() == (0..prompt.text.len() - start)) {
                        prompt.literal.push(start..prompt.text.len());
                    }
                }
            } else {
                prompt.text.push(c);
            }
        }
        prompt
    }
}

fn each_text(value: &Value, f: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => f(text),
        Value::Array(items) => items.iter().for_each(|v| each_text(v, f)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            f(key);
            each_text(v, f);
        }),
        _ => {}
    }
}
