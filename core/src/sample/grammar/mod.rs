//! Answers of a given form: a grammar is walked with an answer's tokens, and says before each draw which
//! tokens may come. The grammars themselves are the `llguidance` crate's; here
//! are what is taken ([`limits`]), what a vocabulary looks like to it, and its errors. Knows no
//! engine, no tokenizer but its tokens' bytes, and no device.
//!
//! `llguidance` reads a clock for statistics that nobody here asks for, writes nothing and starts no
//! thread. Where a grammar makes it panic it catches that itself (a target that aborts cannot).

mod ascii_classes;
mod chain;
mod constraint;
mod integer_bounds;
mod lark;
pub mod limits;
mod schema;

#[cfg(test)]
mod tests;

pub use constraint::Constraint;

use crate::types::{StructuredOutput, StructuredOutputError, TokenId, TokenMask};
use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokRxInfo, TokTrie,
};
use llguidance::{Matcher, ParserFactory};
use regex_syntax::ast::Span;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenText<'a> {
    /// Its bytes, not always UTF-8; none for an id without a token.
    pub bytes: &'a [u8],
    /// It is structure rather than text, and spells nothing of an answer.
    pub special: bool,
}

/// A form, and its beginning where it was compiled more than once.
type Last = Option<(StructuredOutput, Option<GrammarMatcher>)>;

/// Compiles the grammars of one vocabulary. Made once a model; holds its tokens as a trie.
pub struct GrammarCompiler {
    factory: ParserFactory,
    vocab_size: usize,
    /// The last form compiled, as a program tends to ask for one again and again. Its beginning is kept
    /// from the second time on, as a grammar may take much memory.
    last: Mutex<Last>,
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrammarCompiler of {} tokens", self.vocab_size)
    }
}

impl GrammarCompiler {
    /// For the ids below `vocab_size`, of which `eos` end a generation.
    ///
    /// # Errors
    /// [`StructuredOutputError::Vocabulary`] where there are more tokens than a trie holds.
    pub fn new<'a>(
        vocab_size: usize,
        eos: &[TokenId],
        token: impl Fn(TokenId) -> TokenText<'a>,
    ) -> Result<Self, StructuredOutputError> {
        let refused = |why: String| StructuredOutputError::Vocabulary(why);
        let size = u32::try_from(vocab_size).unwrap_or(u32::MAX);
        if vocab_size > limits::MAX_VOCAB {
            let limit = limits::MAX_VOCAB;
            return Err(refused(format!("{vocab_size} ids are more than {limit}")));
        }
        let words = (0..size).map(|id| {
            let token = token(id);
            // Whatever else it may be: as text it would end an answer that is not whole.
            word(token.bytes, token.special || eos.contains(&id))
        });
        let words: Vec<Vec<u8>> = words.collect();
        let bytes: usize = words.iter().map(Vec::len).sum();
        if bytes > limits::MAX_VOCAB_BYTES {
            let limit = limits::MAX_VOCAB_BYTES;
            return Err(refused(format!("{bytes} bytes are more than {limit}")));
        }
        let eos: Vec<TokenId> = eos.iter().copied().filter(|&id| id < size).collect();
        let first = eos.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(size, first), &words);
        if !eos.is_empty() {
            trie = trie.with_eos_tokens(&eos);
        }
        let mut factory = ParserFactory::new(
            // Text is not forced to be split as the tokenizer would: any spelling is allowed.
            &(Arc::new(ApproximateTokEnv::new(trie)) as _),
            InferenceCapabilities::default(),
            &SlicedBiasComputer::general_slices(),
        )
        .map_err(|error| refused(short(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_items_in_row: limits::MAX_ITEMS_IN_ROW,
            initial_lexer_fuel: limits::INITIAL_LEXER_FUEL,
            step_lexer_fuel: limits::STEP_LEXER_FUEL,
            step_max_items: limits::STEP_MAX_ITEMS,
            max_lexer_states: limits::MAX_LEXER_STATES,
            max_grammar_size: limits::MAX_GRAMMAR_SIZE,
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(Self {
            factory,
            vocab_size,
            last: Mutex::new(None),
        })
    }

    /// A form's grammar, at its beginning. One that is asked for again and again is
    /// compiled twice.
    ///
    /// # Errors
    /// What is wrong with it, or of what it has too much.
    pub fn compile(
        &self,
        form: &StructuredOutput,
    ) -> Result<GrammarMatcher, StructuredOutputError> {
        let again = {
            let mut last = self.last();
            let again = last.as_ref().is_some_and(|(compiled, _)| compiled == form);
            if let Some((_, Some(matcher))) = last.as_ref().filter(|_| again) {
                return Ok(matcher.clone());
            }
            *last = None;
            again
        };
        // Nobody waits for another's form.
        let matcher = self.compile_anew(form)?;
        let kept = again.then(|| matcher.clone());
        *self.last() = Some((form.clone(), kept));
        Ok(matcher)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // Only whole values are ever put there.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile_anew(
        &self,
        form: &StructuredOutput,
    ) -> Result<GrammarMatcher, StructuredOutputError> {
        let name = form.name();
        let grammar = match form {
            StructuredOutput::Json(text) => {
                TopLevelGrammar::from_json_schema(schema::parse(name, text)?)
            }
            StructuredOutput::JsonObject => {
                TopLevelGrammar::from_json_schema(serde_json::json!({"type": "object"}))
            }
            StructuredOutput::Regex(regex) => {
                limits::check(
                    name,
                    "its length in bytes",
                    regex.len(),
                    limits::MAX_REGEX_BYTES,
                )?;
                TopLevelGrammar::from_regex(&read_regex(name, regex)?)
            }
            StructuredOutput::Grammar(text) => {
                lark::check(name, text)?;
                TopLevelGrammar::from_lark(text.clone())
            }
            StructuredOutput::Choice(choices) => TopLevelGrammar::from_regex(&any_of(choices)?),
        };
        let refused = |message: &str| StructuredOutputError::Refused {
            name,
            message: short(message),
        };
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(refused(&error)),
            None => Ok(GrammarMatcher {
                matcher,
                name,
                vocab_size: self.vocab_size,
            }),
        }
    }
}

/// Where an answer stands in its grammar.
pub struct GrammarMatcher {
    matcher: Matcher,
    /// Of the form.
    name: &'static str,
    vocab_size: usize,
}

impl fmt::Debug for GrammarMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrammarMatcher of {}", self.name)
    }
}

/// Another answer that stands where this one does, and has nothing in common with it.
impl Clone for GrammarMatcher {
    fn clone(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            ..*self
        }
    }
}

impl GrammarMatcher {
    /// Goes on by a token, which the mask must have allowed.
    ///
    /// # Errors
    /// [`StructuredOutputError::TooComplex`], or a token that does not go on.
    pub fn accept(&mut self, id: TokenId) -> Result<(), StructuredOutputError> {
        let accepted = self.matcher.consume_token(id);
        accepted.map_err(|error| self.failed(&error.to_string()))
    }

    /// Whether the answer is whole and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }

    /// Whether the answer is whole as it stands.
    ///
    /// # Errors
    /// [`StructuredOutputError::TooComplex`].
    pub fn accepts(&mut self) -> Result<bool, StructuredOutputError> {
        let accepting = self.matcher.is_accepting();
        accepting.map_err(|error| self.failed(&error.to_string()))
    }

    /// The tokens that may follow, as words of a [`TokenMask`]: those of text that goes on, special
    /// tokens the grammar names, and where the answer is whole the vocabulary's end-of-generation ids.
    ///
    /// # Errors
    /// [`StructuredOutputError::TooComplex`]; [`StructuredOutputError::NothingAllowed`].
    pub fn mask(&mut self) -> Result<Vec<u32>, StructuredOutputError> {
        let set = match self.matcher.compute_mask() {
            Ok(set) => set,
            Err(error) => return Err(self.failed(&error.to_string())),
        };
        let mut words = set.as_slice().to_vec();
        words.resize(TokenMask::num_words(self.vocab_size), 0);
        Ok(words)
    }

    fn failed(&self, message: &str) -> StructuredOutputError {
        let name = self.name;
        // Once it has failed, the library keeps only the words of the reason.
        let nothing = message.starts_with("NoExtension")
            || self.matcher.stop_reason() == StopReason::NoExtensionBias;
        match nothing {
            true => StructuredOutputError::NothingAllowed { name },
            false => StructuredOutputError::TooComplex {
                name,
                message: short(message),
            },
        }
    }
}

/// A token as the trie takes it. One so long that a trie cannot hold it spells nothing.
fn word(bytes: &[u8], special: bool) -> Vec<u8> {
    if bytes.is_empty() || bytes.len() > limits::MAX_TOKEN_BYTES {
        return Vec::new();
    }
    match special {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        false => bytes.to_vec(),
    }
}

/// Refuses what is no regular expression in the words of its own parser, and says the place; gives the
/// expression with classes of ASCII.
fn read_regex(name: &'static str, regex: &str) -> Result<String, StructuredOutputError> {
    // The parser draws the place below the expression, which is nothing for one line.
    let refused = |kind: &dyn fmt::Display, span: &Span| {
        let at = regex.get(..span.start.offset).unwrap_or(regex);
        StructuredOutputError::Refused {
            name,
            message: format!(
                "this is no regular expression: {kind}, at its character {}",
                at.chars().count() + 1
            ),
        }
    };
    let mut parser = regex_syntax::ParserBuilder::new();
    let mut parser = parser.nest_limit(limits::MAX_REGEX_NESTING).build();
    parser.parse(regex).map_err(|error| match &error {
        regex_syntax::Error::Parse(e) => refused(e.kind(), e.span()),
        regex_syntax::Error::Translate(e) => refused(e.kind(), e.span()),
        e => StructuredOutputError::Refused {
            name,
            message: short(&e.to_string()),
        },
    })?;
    ascii_classes::ascii_classes(regex, limits::MAX_REGEX_NESTING)
        .map_err(|e| refused(e.kind(), e.span()))
}

fn any_of(choices: &[String]) -> Result<String, StructuredOutputError> {
    let name = "choice";
    if choices.is_empty() {
        return Err(StructuredOutputError::Refused {
            name,
            message: "there is nothing to choose from: give at least one text".to_owned(),
        });
    }
    // An empty text is work too.
    let bytes = choices.iter().map(|text| text.len() + 1).sum();
    let what = "the length of all texts in bytes, and one more for each";
    limits::check(name, what, bytes, limits::MAX_CHOICE_BYTES)?;
    let texts = choices.iter().map(|text| regex_syntax::escape(text));
    Ok(texts.collect::<Vec<_>>().join("|"))
}

/// The library's message without its state and traces, and not longer than a screen.
fn short(message: &str) -> String {
    const MOST: usize = 600;
    let end = ["<state>", "<non-verbose/>", "<backtrace>"]
        .iter()
        .filter_map(|mark| message.find(mark))
        .min()
        .unwrap_or(message.len());
    let message = message[..end].trim_end();
    match message.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} …", &message[..at]),
        None => message.to_owned(),
    }
}
