//! The tags of a template, looked at and adapted before it is compiled. Owns how much one may hold,
//! and what is written differently for a compiler that is not Python's; knows no more of the language
//! than where a tag ends and what is a word.
//!
//! A template's compiler recurses once for every operator of an expression (`a.b.c`, `1 + 1 + 1`,
//! `not not x`) and every branch of an `if`, without a limit of its own, and a stack that overflows
//! ends the process.

use std::ops::Range;

/// Most lexemes of one tag. Templates in use have some hundred; a level takes a few hundred bytes
/// of stack.
const MAX_LEXEMES: usize = 2000;
/// Most `elif` branches of a template.
const MAX_BRANCHES: usize = 1000;
/// Lists and objects inside one another in one expression. Templates in use have three.
const MAX_LITERAL_DEPTH: usize = 16;

/// The filter through which every assignment goes.
pub(super) const ASSIGNED: &str = "__assigned";
/// The same for what becomes part of a namespace.
pub(super) const ASSIGNED_MEMBER: &str = "__assigned_member";
/// The filter that keeps what it is given from being escaped.
pub(super) const VERBATIM: &str = "__verbatim";

/// The source as the compiler takes it:
/// - `generation` tags, which only mark the answer for training, are blocks that always apply, so
///   that their whitespace control stays as it is;
/// - what is assigned goes through the filter [`ASSIGNED`], which bounds how deep a value grows;
/// - an output that marks a text as safe and adds others to it is one that escapes, as in Python:
///   there a safe text is of a type whose `+` escapes. The whole is not escaped ([`VERBATIM`]). What
///   mixes `+` and `~`, which does not escape, stays as it is.
///
/// # Errors
/// What is too long or too deep, in words.
pub(super) fn adapt(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0;
    let mut branches = 0;
    let mut at = 0;
    while let Some(tag) = next_tag(source, at) {
        let line = || 1 + source[..tag.start].matches('\n').count();
        let inside = &source[tag.start..];
        let end = match tag.opening {
            "{#" => inside
                .find("#}")
                .map_or(source.len(), |end| tag.start + end + 2),
            "{%" if is_named(inside, "raw") => source.len() - after_raw(inside).len(),
            opening => {
                let closing = if opening == "{%" { "%}" } else { "}}" };
                let read = read_tag(inside, closing)
                    .map_err(|what| format!("{what}, which is not supported (line {})", line()))?;
                let (from, to) = (tag.start, tag.start + read.length);
                let rewritten = if opening == "{%" {
                    branches += usize::from(body(inside).starts_with("elif"));
                    statement(&source[from..to], read.assignment)
                } else if read.marks_safe && read.adds && !read.joins {
                    escaping_output(&source[from..to])
                } else {
                    None
                };
                if let Some(rewritten) = rewritten {
                    // An output's braces are replaced too.
                    let braces = if opening == "{{" { 2 } else { 0 };
                    out.push_str(&source[copied..from - braces]);
                    out.push_str(&rewritten);
                    copied = to + braces;
                }
                (to + 2).min(source.len())
            }
        };
        if branches > MAX_BRANCHES {
            return Err(format!(
                "it has more than {MAX_BRANCHES} elif branches, which is not supported"
            ));
        }
        at = end;
    }
    out.push_str(source.get(copied..).unwrap_or_default());
    Ok(out)
}

/// Where a tag opens.
struct Opening<'a> {
    opening: &'a str,
    /// Behind the opening.
    start: usize,
}

/// The leftmost opening from a place on.
fn next_tag(source: &str, from: usize) -> Option<Opening<'_>> {
    let text = source.get(from..)?;
    let at = text
        .match_indices('{')
        .map(|(at, _)| at)
        .find(|&at| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))?;
    Some(Opening {
        opening: &text[at..at + 2],
        start: from + at + 2,
    })
}

/// What stands in a tag behind its whitespace control.
fn body(inside: &str) -> &str {
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    inside.trim_start()
}

/// Whether a tag holds this one word.
fn is_named(inside: &str, name: &str) -> bool {
    body(inside).strip_prefix(name).is_some_and(|after| {
        let after = after.trim_start();
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        after.starts_with("%}")
    })
}

/// What follows the `endraw` tag.
fn after_raw(inside: &str) -> &str {
    let mut rest = inside;
    while let Some(at) = rest.find("{%") {
        rest = rest.get(at + 2..).unwrap_or_default();
        if is_named(rest, "endraw") {
            return rest;
        }
    }
    ""
}

/// What a walk over a tag's lexemes finds.
struct Read {
    /// Bytes up to the closing, or to the end of the source.
    length: usize,
    /// Where the first `=` of its own stands that is no part of a comparison, outside brackets.
    assignment: Option<usize>,
    /// A filter marks or makes a safe text.
    marks_safe: bool,
    /// There is a `+`.
    adds: bool,
    /// There is a `~`, which joins without escaping.
    joins: bool,
}

/// Walks over a tag. An end counts only where no bracket is open, as in the compiler.
fn read_tag(inside: &str, closing: &str) -> Result<Read, String> {
    let bytes = inside.as_bytes();
    let mut read = Read {
        length: inside.len(),
        assignment: None,
        marks_safe: false,
        adds: false,
        joins: false,
    };
    let (mut at, mut lexemes, mut literals) = (0, 0, 0_usize);
    // Open brackets, and whether each is a list's or an object's.
    let mut open: Vec<bool> = Vec::new();
    let mut last = b' ';
    while let Some(&byte) = bytes.get(at) {
        if open.is_empty() && bytes[at..].starts_with(closing.as_bytes()) {
            read.length = at;
            break;
        }
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
        let length = match byte {
            b'\'' | b'"' => string_length(&bytes[at..]),
            _ if is_word(&byte) => bytes[at..].iter().take_while(|b| is_word(b)).count(),
            b'=' | b'!' | b'<' | b'>' if bytes.get(at + 1) == Some(&b'=') => 2,
            _ => 1,
        };
        match byte {
            b'(' | b'[' | b'{' => {
                // Behind a value a bracket is an index or a call.
                let behind_value =
                    is_word(&last) || matches!(last, b')' | b']' | b'}' | b'\'' | b'"');
                let literal = byte != b'(' && !(behind_value && byte == b'[');
                literals += usize::from(literal);
                open.push(literal);
                if literals > MAX_LITERAL_DEPTH {
                    return Err(format!(
                        "one tag has lists or objects nested deeper than {MAX_LITERAL_DEPTH}"
                    ));
                }
            }
            b')' | b']' | b'}' => literals -= usize::from(open.pop() == Some(true)),
            b'=' if length == 1 && open.is_empty() && read.assignment.is_none() => {
                read.assignment = Some(at);
            }
            b'+' => read.adds = true,
            b'~' => read.joins = true,
            _ if last == b'|' && is_word(&byte) => {
                let word = inside.get(at..at + length).unwrap_or_default();
                read.marks_safe |= matches!(word, "safe" | "escape" | "e" | "forceescape");
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            lexemes += 1;
            last = byte;
        }
        if lexemes > MAX_LEXEMES {
            return Err(format!(
                "one tag has more than {MAX_LEXEMES} words and signs"
            ));
        }
        at += length;
    }
    Ok(read)
}

/// Bytes of a quoted string, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            _ if *byte == bytes[0] => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The part of a tag between its signs of whitespace control.
fn between_controls(tag: &str) -> Range<usize> {
    let start = usize::from(tag.starts_with(['-', '+']));
    let end = tag.len() - usize::from(tag.len() > start && tag.ends_with(['-', '+']));
    start..end
}

/// What stands in a statement's tag, if it is to stand there otherwise.
fn statement(tag: &str, assignment: Option<usize>) -> Option<String> {
    let inner = between_controls(tag);
    let (before, after) = (&tag[..inner.start], &tag[inner.end..]);
    let words = tag.get(inner.clone())?;
    match words.trim() {
        "generation" => return Some(format!("{before} if true {after}")),
        "endgeneration" => return Some(format!("{before} endif {after}")),
        _ => {}
    }
    let is_set = words
        .trim_start()
        .strip_prefix("set")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_whitespace() || c == '('));
    let at = assignment.filter(|at| is_set && inner.contains(at))?;
    let target = &tag[inner.start..at];
    let value = &tag[at + 1..inner.end];
    let filter = if target.contains('.') {
        ASSIGNED_MEMBER
    } else {
        ASSIGNED
    };
    Some(format!("{before}{target}=({value})|{filter} {after}"))
}

/// An output tag, given without its braces, as one that escapes what is not safe before it is
/// joined. `+` keeps the white space around the new tags.
fn escaping_output(tag: &str) -> Option<String> {
    let inner = between_controls(tag);
    let control = |sign: &str| if sign.is_empty() { "+" } else { sign }.to_owned();
    let (before, after) = (control(&tag[..inner.start]), control(&tag[inner.end..]));
    let value = tag.get(inner)?;
    Some(format!(
        "{{%{before} autoescape true %}}{{{{ ({value})|{VERBATIM} }}}}{{% endautoescape {after}%}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_pass_and_long_tags_do_not() {
        let words = "a + ".repeat(3000);
        let long = format!("{{{{ {words} 1 }}}}");
        for fine in [
            words.clone(),
            format!("{{# {words} #}}"),
            format!("{{% raw %}}{{{{ ' {words}{{%- endraw -%}}"),
            format!("{{{{ '{words}' ~ \"\\\"{words}\" }}}}"),
            "{{ a + b }}{% if {'x': {}} %}}}{% endif %}".repeat(3000),
            "{{ a[b[c[d]]] }}{{ f(g(h((((((((((((((((((1)))))))))))))))))))) }}".to_owned(),
        ] {
            assert_eq!(adapt(&fine).as_ref(), Ok(&fine), "{}", &fine[..20]);
        }
        for bad in [
            long.clone(),
            format!("\n\n{{%- if {words} 1 %}}"),
            format!("{{{{ {{'a': {{}}}} }}}}{{{{ [{{}}, {words} 1] }}}}"),
            format!("{{{{ '}}}}' + {words} }}}}"),
            format!("{{# {{{{ ' #}}{long}"),
            format!("{{% raw %}} endraw {{{{ ' {{% endraw %}}{long}"),
            format!("{{{{ {}1 }}}}", "not ".repeat(3000)),
            format!("{{{{ {}1 }}}}", "-".repeat(3000)),
            format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(3000)),
            format!("{{{{ {}1{} }}}}", "[".repeat(17), "]".repeat(17)),
            format!("{{{{ {}1{} }}}}", "{1:".repeat(17), "}".repeat(17)),
        ] {
            assert!(adapt(&bad).is_err(), "{}", &bad[..20]);
        }
    }

    #[test]
    fn tags_are_adapted_and_nothing_else() {
        for (source, adapted) in [
            (
                "{% generation %}{%- endgeneration -%}",
                "{% if true %}{%- endif -%}",
            ),
            (
                "{% set x = a == b -%}",
                "{% set x =( a == b )|__assigned -%}",
            ),
            (
                "{%- set ns.x=f(y=1) %}",
                "{%- set ns.x=(f(y=1) )|__assigned_member %}",
            ),
            ("{% set x %}a{% endset %}", "{% set x %}a{% endset %}"),
            (
                "{% settle x = 1 %}{% for x in y if z == 1 %}",
                "{% settle x = 1 %}{% for x in y if z == 1 %}",
            ),
            (
                "{% raw %}{% set x = 1 %}{% endraw %}",
                "{% raw %}{% set x = 1 %}{% endraw %}",
            ),
            (
                " {{ 'a'|safe + b -}} {{ safe }}",
                " {%+ autoescape true %}{{ ( 'a'|safe + b )|__verbatim }}{% endautoescape -%} {{ safe }}",
            ),
            (
                "{{ '|safe' }}{{ 'set x = 1' }}",
                "{{ '|safe' }}{{ 'set x = 1' }}",
            ),
        ] {
            assert_eq!(adapt(source).as_deref(), Ok(adapted));
        }
    }
}
