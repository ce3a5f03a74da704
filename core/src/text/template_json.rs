//! The `tojson` filter of chat templates. Owns how Python's `json.dumps` writes; knows no template.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{ErrorKind, State, Value};
use serde::Serialize;

use super::template_python::left_for_text;

/// Deepest nesting written, far beyond any schema's.
const MAX_DEPTH: usize = 256;

/// `tojson` as transformers has it: Python's `json.dumps` with `ensure_ascii` off unless asked for
/// and no escapes for HTML.
pub(super) fn to_json(
    state: &State,
    value: &Value,
    kwargs: Kwargs,
) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ensure_ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let sort_keys: Option<bool> = kwargs.get("sort_keys")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    kwargs.assert_all_used()?;
    let invalid = |e: String| minijinja::Error::new(ErrorKind::InvalidOperation, e);
    let [item, key] = match separators.as_deref() {
        Some([item, key]) => [item.clone(), key.clone()],
        Some(_) => return Err(invalid("separators are two texts".to_owned())),
        None if indent.is_some() => [",", ": "].map(str::to_owned),
        None => [", ", ": "].map(str::to_owned),
    };
    let style = JsonStyle {
        item,
        key,
        indent,
        ensure_ascii: ensure_ascii == Some(true),
        depth: 0,
        has_value: false,
    };
    let mut out = Bounded {
        bytes: Vec::new(),
        left: left_for_text(state),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, style);
    if sort_keys == Some(true) {
        let mut json = serde_json::to_value(value).map_err(|e| invalid(e.to_string()))?;
        json.sort_all_objects();
        json.serialize(&mut serializer)
    } else {
        value.serialize(&mut serializer)
    }
    .map_err(|e| invalid(e.to_string()))?;
    state.consume_fuel(out.bytes.len() as u64 / 4)?;
    String::from_utf8(out.bytes)
        .map(Value::from)
        .map_err(|e| invalid(e.to_string()))
}

/// What there is fuel for.
struct Bounded {
    bytes: Vec<u8>,
    left: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or_else(|| io::Error::other("there is no fuel for so long a text"))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Python's `json.dumps`: two separators, and line breaks where an indent is given.
struct JsonStyle {
    item: String,
    key: String,
    indent: Option<usize>,
    ensure_ascii: bool,
    depth: usize,
    has_value: bool,
}

impl JsonStyle {
    fn new_line<W: ?Sized + io::Write>(&self, out: &mut W) -> io::Result<()> {
        match self.indent {
            Some(indent) => write!(out, "\n{:1$}", "", indent.min(64) * self.depth),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(io::Error::other(format!(
                "a value nested deeper than {MAX_DEPTH} levels cannot be written as JSON"
            )));
        }
        self.has_value = false;
        out.write_all(bracket.as_bytes())
    }

    fn close<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.depth -= 1;
        if self.has_value {
            self.new_line(out)?;
        }
        out.write_all(bracket.as_bytes())
    }

    fn next<W: ?Sized + io::Write>(&self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.new_line(out)
    }
}

impl serde_json::ser::Formatter for JsonStyle {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ensure_ascii {
            return out.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if c.is_ascii() && c != '\u{7f}' {
                out.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(out, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

/// A finite number as Python writes it: the shortest digits that give it back, with an exponent
/// below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let short = format!("{value:e}");
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pythons() {
        for (value, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
        ] {
            assert_eq!(float(value), text);
        }
    }
}
