//! The tags of a template, looked at before it is compiled. Owns how much one may hold; knows no
//! more of the language than where a tag ends.
//!
//! A template's compiler recurses once for every operator of an expression (`a.b.c`, `1 + 1 + 1`,
//! `not not x`) and every branch of an `if`, without a limit of its own, and a stack that overflows
//! ends the process.

/// Most lexemes of one tag. Templates in use have some hundred; a level takes a few hundred bytes
/// of stack.
const MAX_LEXEMES: usize = 2000;
/// Most `elif` branches of a template.
const MAX_BRANCHES: usize = 1000;

/// Checks that no tag is too long to be compiled.
///
/// # Errors
/// What is too long, in words.
pub(super) fn check(source: &str) -> Result<(), String> {
    let mut rest = source;
    let mut branches = 0;
    while let Some((opening, inside)) = next_tag(rest) {
        if opening == "{#" {
            rest = inside.find("#}").map_or("", |end| skip(inside, end + 2));
            continue;
        }
        if opening == "{%" && is_named(inside, "raw") {
            rest = after_raw(inside);
            continue;
        }
        if opening == "{%" && body(inside).starts_with("elif") {
            branches += 1;
        }
        if branches > MAX_BRANCHES {
            return Err(format!(
                "it has more than {MAX_BRANCHES} elif branches, which is not supported"
            ));
        }
        let closing = if opening == "{%" { "%}" } else { "}}" };
        rest = after_tag(inside, closing).ok_or_else(|| {
            let line = 1 + source[..source.len() - inside.len()].matches('\n').count();
            format!(
                "one tag has more than {MAX_LEXEMES} words and signs, which is not supported (line {line})"
            )
        })?;
    }
    Ok(())
}

/// The leftmost opening, and what follows it.
fn next_tag(text: &str) -> Option<(&str, &str)> {
    let at = text
        .match_indices('{')
        .map(|(at, _)| at)
        .find(|&at| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))?;
    Some((&text[at..at + 2], &text[at + 2..]))
}

fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
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
        rest = skip(rest, at + 2);
        if is_named(rest, "endraw") {
            return rest;
        }
    }
    ""
}

/// What follows the end of a tag; `None` if the tag is too long. An end counts only where no bracket
/// is open, as in the compiler.
fn after_tag<'a>(inside: &'a str, closing: &str) -> Option<&'a str> {
    let bytes = inside.as_bytes();
    let (mut at, mut lexemes, mut open) = (0, 0, 0_isize);
    while let Some(&byte) = bytes.get(at) {
        if open == 0 && bytes[at..].starts_with(closing.as_bytes()) {
            return Some(skip(inside, at + 2));
        }
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
        let length = match byte {
            b'\'' | b'"' => string_length(&bytes[at..]),
            _ if is_word(&byte) => bytes[at..].iter().take_while(|b| is_word(b)).count(),
            _ => 1,
        };
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            lexemes += 1;
        }
        if lexemes > MAX_LEXEMES {
            return None;
        }
        at += length;
    }
    Some("")
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
        ] {
            assert_eq!(check(&fine), Ok(()), "{}", &fine[..20]);
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
        ] {
            assert!(check(&bad).is_err(), "{}", &bad[..20]);
        }
    }
}
