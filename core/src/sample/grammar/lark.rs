//! What of a Lark grammar is looked at before it is compiled: only whether compiling it is bounded.
//! Its words are read here and its syntax is not: whatever is wrong with that, the library says.

use super::chain::heaviest_chain;
use super::limits::{self, check as hold};
use super::schema::check_schema;
use crate::types::StructuredOutputError;
use serde_json::{Deserializer, Value};
use std::collections::HashMap;

/// Holds a grammar against the limits, the schemas inside it too.
///
/// # Errors
/// [`StructuredOutputError::TooLarge`], and [`StructuredOutputError::Refused`] for another language.
pub(super) fn check(name: &'static str, text: &str) -> Result<(), StructuredOutputError> {
    hold(
        name,
        "its length in bytes",
        text.len(),
        limits::MAX_GRAMMAR_BYTES,
    )?;
    // Only outside strings would it mean anything in Lark, and there it means nothing.
    if text.lines().any(is_gbnf_rule) {
        return Err(StructuredOutputError::Refused {
            name,
            message:
                "this looks like GBNF: write it as Lark, whose rules are `name: …`, the first \
                      of them `start`"
                    .to_owned(),
        });
    }
    let words = Words::read(text);
    let what = "the number of intersections (&)";
    hold(name, what, words.intersections, limits::MAX_INTERSECTIONS)?;
    let what = "the depth of rules, terminals and brackets";
    let depth = heaviest_chain(&words.weights, &words.next);
    hold(name, what, depth, limits::MAX_GRAMMAR_LEVELS)?;
    words
        .schemas
        .iter()
        .try_for_each(|schema| check_schema(name, schema))
}

/// Definitions, and what they refer to.
#[derive(Default)]
struct Words<'a> {
    names: HashMap<&'a str, usize>,
    /// One, and the brackets of a definition inside each other.
    weights: Vec<usize>,
    next: Vec<Vec<usize>>,
    intersections: usize,
    schemas: Vec<Value>,
}

impl<'a> Words<'a> {
    fn read(text: &'a str) -> Self {
        let mut words = Self::default();
        // Statements belong to no definition.
        let mut current = words.name("%");
        let mut brackets = 0usize;
        let mut line_begins = true;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '\n' => 1,
                '#' => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                '/' | '"' => quoted(rest, first),
                '%' => match json(rest) {
                    Some((schema, length)) => {
                        words.schemas.push(schema);
                        length
                    }
                    None => {
                        if line_begins {
                            current = words.name("%");
                        }
                        1
                    }
                },
                '(' | '[' | '{' => {
                    brackets += 1;
                    words.weights[current] = words.weights[current].max(1 + brackets);
                    1
                }
                ')' | ']' | '}' => {
                    brackets = brackets.saturating_sub(1);
                    1
                }
                '&' => {
                    words.intersections += 1;
                    1
                }
                letter if letter.is_ascii_alphabetic() => {
                    let in_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                    let length = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
                    let name = words.name(&rest[..length]);
                    match line_begins {
                        true => (current, brackets) = (name, 0),
                        false => words.next[current].push(name),
                    }
                    length
                }
                other => other.len_utf8(),
            };
            // A name may have marks before it, which are not counted as a part of it.
            line_begins = first == '\n' || line_begins && " \t\r!?_".contains(first);
            rest = &rest[length..];
        }
        words
    }

    fn name(&mut self, name: &'a str) -> usize {
        *self.names.entry(name).or_insert_with(|| {
            self.weights.push(1);
            self.next.push(Vec::new());
            self.weights.len() - 1
        })
    }
}

/// Length of a text or an expression with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The JSON behind a word that takes some, and the length of both.
fn json(text: &str) -> Option<(Value, usize)> {
    let word = ["%json", "%regex", "%llguidance"]
        .into_iter()
        .find(|word| text.starts_with(word))?;
    let mut values = Deserializer::from_str(&text[word.len()..]).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, word.len() + values.byte_offset()))
}

/// `name ::= …`, as llama.cpp's grammars have it.
fn is_gbnf_rule(line: &str) -> bool {
    let name = line.split_once("::=").map(|(name, _)| name.trim());
    name.is_some_and(|name| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        !name.is_empty() && name.chars().all(fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_refer_to_each_other() {
        let grammar = r#"
            // start: nothing & here
            start: ("a (b" rule)* | /c (d\/ rule/ T
                 | %json {"const": "rule ("}
            !rule[lazy]: T & "x" # & T
            ?_other: start
            T: "t"
            %ignore T
        "#;
        let words = Words::read(grammar);
        assert_eq!(words.intersections, 1);
        assert_eq!(words.schemas.len(), 1);
        let depth = |name: &str| words.weights[words.names[name]];
        assert_eq!(["start", "rule", "other", "T"].map(depth), [2, 2, 1, 1]);
        // other → start → rule → T
        assert_eq!(heaviest_chain(&words.weights, &words.next), 1 + 2 + 2 + 1);
    }
}
