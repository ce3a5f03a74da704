//! Where Jinja in Python does otherwise than the template library: filters, tests and the type of
//! safe texts. Owns, too, how deep a value may grow; knows no template.

use std::fmt;

use minijinja::value::{ArgType, Kwargs, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

use super::template_json::to_json;
use super::template_operands::{MEMBER, NESTED, SCALAR, TEXT, VERBATIM};

/// Deepest nesting of a value that is made. Values are dropped, compared and printed by
/// recursion, and a stack that overflows ends the process.
const MAX_VALUE_DEPTH: usize = 200;
/// Key that marks a namespace; no name of the language.
const NAMESPACE: &str = "\0namespace";

/// Adds all of it to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(write_value);
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", to_json);
    environment.add_filter("indent", indent);
    environment.add_filter("string", string);
    environment.add_filter("safe", safe);
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    environment.add_filter(NESTED, nested);
    environment.add_filter(MEMBER, member);
    environment.add_filter(SCALAR, scalar);
    environment.add_filter(TEXT, text);
    environment.add_filter(VERBATIM, safe);
    environment.add_function("namespace", namespace);
    environment.add_test("iterable", is_iterable);
}

/// Python's methods. A width that `format` is given is paid for before it is filled.
fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let (Some(text), "format") = (value.as_str(), name) {
        let widths = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .map(|digits| digits.parse().unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add);
        state.consume_fuel(widths / 64)?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments)
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
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&display(state, value)?)?,
        }
    } else {
        out.write_str(&escaped(&display(state, value)?))?;
    }
    Ok(())
}

/// A value as text, if there is fuel for it.
fn display(state: &State, value: &Value) -> Result<String, Error> {
    struct Bounded {
        text: String,
        left: usize,
    }
    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.left = self.left.checked_sub(text.len()).ok_or(fmt::Error)?;
            self.text.push_str(text);
            Ok(())
        }
    }
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut out = Bounded {
        text: String::new(),
        left: left_for_text(state),
    };
    // It fails for want of room only.
    if fmt::write(&mut out, format_args!("{value}")).is_err() {
        return Err(ErrorKind::OutOfFuel.into());
    }
    Ok(out.text)
}

/// Bytes of lists and objects that there is fuel to write out.
pub(super) fn left_for_text(state: &State) -> usize {
    let fuel = state.fuel_levels().map_or(0, |(_, left)| left);
    usize::try_from(fuel)
        .unwrap_or(usize::MAX)
        .saturating_mul(4)
}

fn string(state: &State, value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => display(state, value).map(Value::from),
    }
}

/// Lists and objects as the text they are written as; all else as it is.
fn text(state: &State, value: &Value) -> Result<Value, Error> {
    match value.as_object() {
        Some(_) => display(state, value).map(Value::from),
        None => Ok(value.clone()),
    }
}

fn scalar(value: &Value) -> Result<Value, Error> {
    match value.as_object() {
        Some(_) => Err(Error::new(
            ErrorKind::InvalidOperation,
            "lists are not repeated here",
        )),
        None => Ok(value.clone()),
    }
}

/// A text that is never escaped.
fn safe(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    display(state, value).map(Value::from_safe_string)
}

/// The `escape` filter: a safe text.
fn escape(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let text = display(state, value)?;
    Ok(Value::from_safe_string(escaped(&text)))
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

/// Lets a value through that is neither nested too deep to be handled nor larger than there is fuel
/// to handle it. No container may hold a namespace, which could come to hold itself. What is lazy
/// is made a list, so that it does not hold on to a chain of others.
fn nested(state: &State, value: &Value) -> Result<Value, Error> {
    let lazy = value.kind() == ValueKind::Iterable;
    let list = if lazy {
        let mut items = Vec::new();
        for item in value.try_iter()? {
            state.consume_fuel(1)?;
            items.push(item);
        }
        Some(Value::from(items))
    } else {
        None
    };
    let value = list.unwrap_or_else(|| value.clone());
    if value.as_object().is_some() {
        let own = value.kind() == ValueKind::Map && is_namespace(&value);
        let mut visits = 0;
        look(state, &value, own, 0, &mut visits)?;
        state.consume_fuel(visits)?;
    }
    Ok(value)
}

/// Lets through what may become part of a namespace.
fn member(value: &Value) -> Result<Value, Error> {
    let refused = |what| Err(Error::new(ErrorKind::InvalidOperation, what));
    match value.kind() {
        ValueKind::Plain => refused("a macro or a loop cannot be kept in a namespace"),
        // A macro holds on to what it closes over, which may be the namespace.
        ValueKind::Map
            if value
                .get_attr("caller")
                .is_ok_and(|v| v.kind() == ValueKind::Bool) =>
        {
            refused("a macro or a loop cannot be kept in a namespace")
        }
        ValueKind::Map if is_namespace(value) => {
            refused("a namespace cannot be kept in another value")
        }
        _ => Ok(value.clone()),
    }
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
    *visits += 1 + value.as_str().map_or(0, |text| text.len() as u64 / 64);
    if *visits > 1024 {
        state.consume_fuel(*visits)?;
        *visits = 0;
    }
    let refused = |what: String| Err(Error::new(ErrorKind::InvalidOperation, what));
    if depth > MAX_VALUE_DEPTH {
        return refused(format!(
            "a value is nested deeper than {MAX_VALUE_DEPTH} levels"
        ));
    }
    if value.as_object().is_none() {
        return Ok(());
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
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
