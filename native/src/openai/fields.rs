//! The fields of a request's body, each read once and refused by its name.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use twoclock_core::types::TokenId;

use super::refusal::Refusal;

/// The fields of a body. One that is `null` is not there.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a Map<String, Value>);

/// A value as an error shows it.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl<'a> Fields<'a> {
    /// The fields of this body.
    ///
    /// # Errors
    /// It is no object.
    pub fn of(body: &'a Value) -> Result<Self, Refusal> {
        let object = body.as_object().map(Self);
        object.ok_or_else(|| Refusal::of("body", "must be a JSON object"))
    }

    /// Whether it is there, which is to be refused: what is read is asked for by [`Self::get`] and the others.
    pub fn gives(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether it is a list of nothing, which asks for nothing.
    pub fn gives_nothing(&self, name: &str) -> bool {
        let list = self.0.get(name).and_then(Value::as_array);
        list.is_some_and(Vec::is_empty)
    }

    /// The field as it is.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        #[cfg(test)]
        asked_for::note(name);
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        name: &str,
        must: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => {
                let said = format!("is {}, but must be {must}", shown(value));
                Err(Refusal::of(name, said))
            }
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<Option<f32>, Refusal> {
        self.read(name, "a number", |v| Some(v.as_f64()? as f32))
    }

    /// A whole number from 0.
    pub fn count(&self, name: &str) -> Result<Option<usize>, Refusal> {
        self.count_or(name, "")
    }

    /// As [`Self::count`], where `others` may be given too, which the caller reads.
    pub fn count_or(&self, name: &str, others: &str) -> Result<Option<usize>, Refusal> {
        let most = usize::MAX;
        let must = match self.get(name).and_then(Value::as_f64) {
            Some(number) if number >= most as f64 => format!("a whole number from 0 to {most}"),
            _ => format!("a whole number, 0 or more{others}"),
        };
        let read = |v: &Value| usize::try_from(v.as_u64()?).ok();
        self.read(name, &must, read)
    }

    /// A whole number, below 0 too.
    pub fn signed(&self, name: &str) -> Result<Option<i32>, Refusal> {
        self.within(name, i32::MIN..=i32::MAX)
    }

    /// A whole number of these.
    pub fn within(&self, name: &str, range: RangeInclusive<i32>) -> Result<Option<i32>, Refusal> {
        let must = format!("a whole number from {} to {}", range.start(), range.end());
        let read = |v: &Value| i32::try_from(v.as_i64()?).ok();
        self.read(name, &must, |v| read(v).filter(|i| range.contains(i)))
    }

    /// A whole number, of which the bits count.
    pub fn seed(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let must = format!("a whole number from {} to {}", i64::MIN, u64::MAX);
        let read = |v: &Value| v.as_u64().or_else(|| v.as_i64().map(|i| i as u64));
        self.read(name, &must, read)
    }

    /// True or false.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        self.read(name, "a string", Value::as_str)
    }

    /// Texts; one may stand alone.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let texts = self.read(name, "a string or a list of strings", |v| match v {
            Value::String(text) => Some(vec![text.clone()]),
            _ => v.as_array()?.iter().map(string).collect(),
        })?;
        Ok(texts.unwrap_or_default())
    }

    /// Token ids.
    pub fn ids(&self, name: &str) -> Result<Vec<TokenId>, Refusal> {
        let ids = self.read(name, "a list of token ids", ids)?;
        Ok(ids.unwrap_or_default())
    }

    /// An object.
    pub fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, Refusal> {
        self.read(name, "an object", Value::as_object)
    }

    /// A list.
    pub fn list(&self, name: &str) -> Result<Option<&'a Vec<Value>>, Refusal> {
        self.read(name, "a list", Value::as_array)
    }
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// A list of ids, if it is one.
pub(super) fn ids(value: &Value) -> Option<Vec<TokenId>> {
    let id = |v: &Value| TokenId::try_from(v.as_u64()?).ok();
    value.as_array()?.iter().map(id).collect()
}

/// Which fields were asked for, by the tests that hold them against what is said of them.
#[cfg(test)]
pub mod asked_for {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static NAMES: RefCell<BTreeSet<String>> = RefCell::default();
    }

    pub(super) fn note(name: &str) {
        NAMES.with_borrow_mut(|names| names.insert(name.to_owned()));
    }

    /// Those that `read` asks for.
    pub fn by(read: impl FnOnce()) -> BTreeSet<String> {
        NAMES.take();
        read();
        NAMES.take()
    }
}
