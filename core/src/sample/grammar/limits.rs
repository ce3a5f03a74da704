//! How much grammar is taken, and how much work one token may cost. What is bounded here was found by
//! trying: each of these, unbounded, held a processor for seconds, filled memory, or ran over a stack
//! of a mebibyte.

use crate::types::StructuredOutputError;

/// Longest JSON schema, bytes.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Longest Lark grammar, bytes.
pub const MAX_GRAMMAR_BYTES: usize = 16 << 10;
/// Longest regular expression, bytes.
pub const MAX_REGEX_BYTES: usize = 4 << 10;
/// Longest list of choices, bytes of all texts and one more for each.
pub const MAX_CHOICE_BYTES: usize = 32 << 10;

/// Members of one object of a schema.
pub const MAX_MEMBERS: usize = 1000;
/// Elements of one array of a schema, such as an `enum`.
pub const MAX_ELEMENTS: usize = 4000;
/// Patterns of `patternProperties` in one object: each is held against each.
pub const MAX_PATTERN_PROPERTIES: usize = 32;
/// Bytes of all `pattern`s of a schema.
pub const MAX_PATTERN_BYTES: usize = 8 << 10;
/// Patterns and formats that one string may have to meet at once (`allOf`, `$ref` beside others), and
/// intersections (`&`) in a Lark grammar: the work is exponential in them.
pub const MAX_INTERSECTIONS: usize = 6;
/// The least common multiple of all `multipleOf`s of a schema, in units of their last decimal: an
/// automaton has so many states.
pub const MAX_MULTIPLE: usize = 10_000;
/// Levels of a schema, one inside another or by reference.
pub const MAX_SCHEMA_LEVELS: usize = 300;
/// Rules, terminals and brackets of a Lark grammar that stand one inside another; the rules of a
/// circle count together.
pub const MAX_GRAMMAR_LEVELS: usize = 200;
/// Brackets of a regular expression inside each other.
pub const MAX_REGEX_NESTING: u32 = 100;

/// Ids of a vocabulary.
pub const MAX_VOCAB: usize = 1 << 22;
/// Bytes of all tokens: the trie has at most so many nodes.
pub const MAX_VOCAB_BYTES: usize = (1 << 22) - 2;
/// Bytes of a token; longer ones are never part of an answer of a given form.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Alternatives that are open at one byte.
pub const MAX_ITEMS_IN_ROW: usize = 2000;
/// Nodes of regular expressions when a grammar is compiled.
pub const INITIAL_LEXER_FUEL: u64 = 1_000_000;
/// Nodes of regular expressions that one mask may make: some 15 ms.
pub const STEP_LEXER_FUEL: u64 = 200_000;
/// Alternatives that one mask may look at.
pub const STEP_MAX_ITEMS: usize = 50_000;
/// States of an answer's lexer, each one or two kilobytes.
pub const MAX_LEXER_STATES: usize = 20_000;
/// Symbols of a compiled grammar.
pub const MAX_GRAMMAR_SIZE: usize = 100_000;

/// Holds a size against its limit.
///
/// # Errors
/// [`StructuredOutputError::TooLarge`].
pub(super) fn check(
    name: &'static str,
    what: &'static str,
    found: usize,
    limit: usize,
) -> Result<(), StructuredOutputError> {
    match found <= limit {
        true => Ok(()),
        false => Err(StructuredOutputError::TooLarge {
            name,
            what,
            found,
            limit,
        }),
    }
}
