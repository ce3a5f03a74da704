//! Where Jinja in Python does otherwise than the template library: filters, tests and the type of
//! safe texts. Owns, too, how deep a value may grow; knows no template.

use minijinja::value::{ArgType, Kwargs, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

use super::template_json::to_json;
use super::template_tags::{ASSIGNED, ASSIGNED_MEMBER, VERBATIM};

/// Deepest nesting of a value that is assigned. Values are dropped, compared and printed by
/// recursion, and a stack that overflows ends the process.
const MAX_VALUE_DEPTH: usize = 200;
/// Key that marks a namespace; no name of the language.
const NAMESPACE: &str = "\0namespace";
/// How many values a look at an assigned one visits for one unit of fuel.
const VISITS_PER_FUEL: u64 = 8;

/// Adds all of it to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(write_value);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_filter("indent", indent);
    environment.add_filter("safe", |value: &Value| {
        Value::from_safe_string(value.to_string())
    });
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    environment.add_filter(ASSIGNED, assigned);
    environment.add_filter(ASSIGNED_MEMBER, assigned_member);
    environment.add_filter(VERBATIM, verbatim);
    environment.add_function("namespace", namespace);
    environment.add_test("iterable", is_iterable);
}

/// Python's `iter(x)`: not of nothing, as the library has it.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Jinja's `indent(width=4, first=False, blank=False)`. A line break at the end is kept.
fn indent(
    state: &State,
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => kwargs.get::<Option<Value>>("width")?,
    };
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank: Option<bool> = kwargs.get("blank")?;
    kwargs.assert_all_used()?;
    let wanted = |_| {
        Error::new(
            ErrorKind::InvalidOperation,
            "indent takes a width or a text",
        )
    };
    let indention = match width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let width = usize::try_from(width).map_err(wanted)?;
                state.consume_fuel(width as u64 / 64)?;
                " ".repeat(width)
            }
        },
    };
    let lines = lines(text);
    state.consume_fuel((indention.len() as u64).saturating_mul(lines.len() as u64) / 64)?;
    let mut out = String::with_capacity(text.len());
    for (index, line) in lines.into_iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let wanted = if index == 0 {
            first
        } else {
            !line.is_empty() || blank == Some(true)
        };
        if wanted {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// The lines of a text as Python's `splitlines` tells them apart; a break at the end opens one more.
fn lines(text: &str) -> Vec<&str> {
    let is_break = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_break) {
        let (line, after) = rest.split_at(at);
        lines.push(line);
        rest = after.strip_prefix("\r\n").unwrap_or_else(|| {
            let mut chars = after.chars();
            chars.next();
            chars.as_str()
        });
    }
    lines.push(rest);
    lines
}

/// Outputs are texts as they are; inside the tags that [`adapt`](super::template_tags::adapt) adds,
/// a text joined to a safe one is escaped.
fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.is_safe() || matches!(state.auto_escape(), AutoEscape::None) {
        write!(out, "{value}")?;
    } else {
        out.write_str(&escaped(&value.to_string()))?;
    }
    Ok(())
}

/// The `escape` filter: a safe text.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        value.clone()
    } else {
        Value::from_safe_string(escaped(&value.to_string()))
    }
}

fn verbatim(value: &Value) -> Value {
    if value.is_safe() {
        value.clone()
    } else {
        Value::from_safe_string(value.to_string())
    }
}

/// As `MarkupSafe` writes the five characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

/// The `namespace` function, with a mark by which a namespace is known.
fn namespace(defaults: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let defaults = defaults.map(ValueOrKwargs::into_value);
    let mut marked: Vec<(Value, Value)> = vec![(NAMESPACE.into(), true.into())];
    if let Some(defaults) = &defaults {
        if defaults.kind() != ValueKind::Map {
            let what = "namespace takes keyword arguments or an object";
            return Err(Error::new(ErrorKind::InvalidOperation, what));
        }
        for key in defaults.try_iter()? {
            let value = defaults.get_item(&key)?;
            marked.push((key, value));
        }
    }
    let marked = Value::from_pairs(marked);
    let arguments = ValueOrKwargs::from_value(Some(&marked))?;
    minijinja::functions::namespace(Some(arguments))
}

/// Lets a value through that is not nested too deep to be handled. No container may hold a
/// namespace, which could come to hold itself.
fn assigned(state: &State, value: &Value) -> Result<Value, Error> {
    let mut visits = 0;
    let is_namespace = value.kind() == ValueKind::Map && is_namespace(value);
    look(state, value, is_namespace, 0, &mut visits)?;
    state.consume_fuel(visits / VISITS_PER_FUEL)?;
    Ok(value.clone())
}

/// The same for what becomes part of a namespace.
fn assigned_member(state: &State, value: &Value) -> Result<Value, Error> {
    let mut visits = 0;
    look(state, value, false, 0, &mut visits)?;
    if value.kind() == ValueKind::Plain {
        let what = "a macro or a loop cannot be kept in a namespace";
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    state.consume_fuel(visits / VISITS_PER_FUEL)?;
    Ok(value.clone())
}

fn is_namespace(value: &Value) -> bool {
    value.get_attr(NAMESPACE).is_ok_and(|mark| mark.is_true())
}

fn look(
    state: &State,
    value: &Value,
    may_be_namespace: bool,
    depth: usize,
    visits: &mut u64,
) -> Result<(), Error> {
    *visits += 1;
    if *visits > 4096 {
        state.consume_fuel(*visits / VISITS_PER_FUEL)?;
        *visits = 0;
    }
    let refused = |what: String| Err(Error::new(ErrorKind::InvalidOperation, what));
    if depth > MAX_VALUE_DEPTH {
        return refused(format!(
            "a value nested deeper than {MAX_VALUE_DEPTH} levels cannot be assigned"
        ));
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable if object.enumerator_len().is_some() => {
            for item in value.try_iter()? {
                look(state, &item, false, depth + 1, visits)?;
            }
        }
        ValueKind::Map => {
            if !may_be_namespace && is_namespace(value) {
                return refused("a namespace cannot be kept in another value".to_owned());
            }
            for key in value.try_iter()? {
                look(state, &value.get_item(&key)?, false, depth + 1, visits)?;
            }
        }
        _ => {}
    }
    Ok(())
}
