//! The tags of a template, looked at and adapted before it is compiled. Owns how much one may hold,
//! and what is written differently for a compiler that is not Python's; knows no more of the language
//! than where a tag ends and what is a word.
//!
//! A template's compiler recurses once for every operator of an expression (`a.b.c`, `1 + 1 + 1`,
//! `not not x`) and every branch of an `if`, without a limit of its own, and a stack that overflows
//! ends the process.

use std::ops::Range;

use super::template_operands::{MEMBER, NESTED, Operands, VERBATIM};

/// Most lexemes of one tag. Templates in use have some hundred; a level takes a few hundred bytes
/// of stack.
const MAX_LEXEMES: usize = 2000;
/// Most `elif` branches of a template.
const MAX_BRANCHES: usize = 1000;
/// Lists and objects inside one another in one expression. Templates in use have three.
const MAX_LITERAL_DEPTH: usize = 16;

/// Filters of one tag. Templates in use have some ten.
const MAX_FILTERS: usize = 100;

/// The source as the compiler takes it:
/// - `generation` tags, which only mark the answer for training, are blocks that always apply, so
///   that their whitespace control stays as it is;
/// - values that an expression makes of others are bounded where they are made
///   ([`template_operands`](super::template_operands));
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
                branches += usize::from(opening == "{%" && body(inside).starts_with("elif"));
                let closed = read.length < inside.len();
                let (from, to) = (tag.start, tag.start + read.length);
                // What is not closed is no tag, and the compiler says so.
                if closed {
                    out.push_str(&source[copied..from - 2]);
                    if opening == "{%" {
                        out.push_str(&statement(&source[from..to], &read));
                    } else {
                        out.push_str(&output(&source[from..to], &read));
                    }
                    copied = to + 2;
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
    operands: Operands,
}

/// Walks over a tag. An end counts only where no bracket is open, as in the compiler.
fn read_tag(inside: &str, closing: &str) -> Result<Read, String> {
    let bytes = inside.as_bytes();
    let mut length = inside.len();
    let start = usize::from(inside.starts_with(['-', '+']));
    let (mut at, mut lexemes) = (start, 0);
    let mut operands = Operands::new(start, closing == "%}");
    while let Some(&byte) = bytes.get(at) {
        // The sign of whitespace control belongs to the end.
        let signed = usize::from(matches!(byte, b'-' | b'+'));
        if operands.is_outside_brackets() && bytes[at + signed..].starts_with(closing.as_bytes()) {
            length = at + signed;
            break;
        }
        let lexeme = lexeme(&inside[at..]);
        if !byte.is_ascii_whitespace() {
            lexemes += 1;
            operands.take(at, lexeme);
        }
        if lexemes > MAX_LEXEMES {
            return Err(format!(
                "one tag has more than {MAX_LEXEMES} words and signs"
            ));
        }
        if operands.literal_depth() > MAX_LITERAL_DEPTH {
            return Err(format!(
                "one tag has lists or objects nested deeper than {MAX_LITERAL_DEPTH}"
            ));
        }
        if operands.filters() > MAX_FILTERS {
            return Err(format!("one tag has more than {MAX_FILTERS} filters"));
        }
        at += lexeme.len();
    }
    operands.finish();
    Ok(Read { length, operands })
}

/// The lexeme a text begins with: a word, a number, a quoted text, a sign, or a space.
fn lexeme(text: &str) -> &str {
    let bytes = text.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
    let run = |from: usize| bytes[from..].iter().take_while(|b| is_word(b)).count();
    let length = match bytes[0] {
        b'\'' | b'"' => string_length(bytes),
        first if is_word(&first) => {
            let mut length = run(0);
            let has_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
            if first.is_ascii_digit() {
                if bytes.get(length) == Some(&b'.') && has_digit(length + 1) {
                    length += 1 + run(length + 1);
                }
                let exponent = matches!(bytes.get(length - 1), Some(b'e' | b'E'));
                if exponent
                    && matches!(bytes.get(length), Some(b'-' | b'+'))
                    && has_digit(length + 1)
                {
                    length += 1 + run(length + 1);
                }
            }
            length
        }
        b'=' | b'!' | b'<' | b'>' if bytes.get(1) == Some(&b'=') => 2,
        b'*' | b'/' if bytes.get(1) == Some(&bytes[0]) => 2,
        _ => 1,
    };
    text.get(..length).unwrap_or(text)
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

/// A statement's tag, given without its signs.
fn statement(tag: &str, read: &Read) -> String {
    let inner = between_controls(tag);
    let (before, after) = (&tag[..inner.start], &tag[inner.end..]);
    let words = &tag[inner.clone()];
    let whole = |words: &str| format!("{{%{before}{words}{after}%}}");
    match words.trim() {
        "generation" => return whole(" if true "),
        "endgeneration" => return whole(" endif "),
        _ => {}
    }
    let head = words.split_whitespace().next().unwrap_or_default();
    if head == "macro" {
        // What it is called with is looked at before it is used.
        let arguments: String = read
            .operands
            .parameters()
            .iter()
            .map(|range| &tag[range.clone()])
            .map(|name| format!("{{%- set {name} = {name}|{NESTED} -%}}"))
            .collect();
        if arguments.is_empty() {
            return whole(&read.operands.rewritten(tag, inner));
        }
        // The tags behind it take its whitespace control over.
        let arguments = arguments
            .strip_suffix("-%}")
            .map(|arguments| format!("{arguments}{after}%}}"))
            .unwrap_or_default();
        return format!(
            "{{%{before}{}-%}}{arguments}",
            read.operands.rewritten(tag, inner)
        );
    }
    let assignment = read.operands.assignment().filter(|at| {
        let is_set = head == "set" || words.trim_start().starts_with("set(");
        is_set && inner.contains(at)
    });
    let Some(at) = assignment else {
        return whole(&read.operands.rewritten(tag, inner));
    };
    let target = &tag[inner.start..at];
    let value = read.operands.rewritten(tag, at + 1..inner.end);
    let looked_at = if read.operands.makes_values() {
        format!("|{NESTED}")
    } else {
        String::new()
    };
    let kept = if target.contains('.') && !read.operands.is_made() {
        format!("|{MEMBER}")
    } else {
        String::new()
    };
    if looked_at.is_empty() && kept.is_empty() {
        return whole(&format!("{target}={value}"));
    }
    whole(&format!("{target}=({value}){looked_at}{kept} "))
}

/// An output's tag, given without its braces. One that escapes what is not safe before it is joined
/// stands between tags whose `+` keeps the white space around them.
fn output(tag: &str, read: &Read) -> String {
    let inner = between_controls(tag);
    let (before, after) = (&tag[..inner.start], &tag[inner.end..]);
    let value = read.operands.rewritten(tag, inner);
    if !read.operands.escapes() {
        return format!("{{{{{before}{value}{after}}}}}");
    }
    let control = |sign: &str| if sign.is_empty() { "+" } else { sign }.to_owned();
    let (before, after) = (control(before), control(after));
    format!(
        "{{%{before} autoescape true %}}{{{{ ({value})|{VERBATIM} }}}}{{% endautoescape {after}%}}"
    )
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
            assert!(adapt(&fine).is_ok(), "{}", &fine[..20]);
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
            format!("{{{{ x{} }}}}", "|f".repeat(101)),
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
            ("{% set x %}a{% endset %}", "{% set x %}a{% endset %}"),
            (
                "{% raw %}{% set x = f() %}{% endraw %}",
                "{% raw %}{% set x = f() %}{% endraw %}",
            ),
            (
                " {{ 'a'|safe + b -}} {{ safe }}",
                " {%+ autoescape true %}{{ ( 'a'|safe +( b if  b is string else  b|__nested) )|__verbatim }}{% endautoescape -%} {{ safe }}",
            ),
            ("{{ a|safe }}", "{{ a|safe }}"),
            (
                "{{ '|safe' }}{{ 'set x = 1' }}",
                "{{ '|safe' }}{{ 'set x = 1' }}",
            ),
            ("{# {{ a + b }} #}{{ a + ", "{# {{ a + b }} #}{{ a + "),
        ] {
            assert_eq!(adapt(source).as_deref(), Ok(adapted));
        }
    }
}
