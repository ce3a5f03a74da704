//! Typed access to a JSON object, with errors that name file and field. Knows no field's meaning.

use serde_json::{Map, Value};

use super::WeightsError;
use crate::types::TokenId;

/// A JSON object, with errors that name file and field.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) file: &'a str,
    pub(super) object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(file: &'a str, value: &'a Value) -> Result<Self, WeightsError> {
        match value {
            Value::Object(object) => Ok(Self { file, object }),
            _ => Err(WeightsError::malformed(
                file,
                "the file",
                "no JSON object",
                "it must be one",
            )),
        }
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    pub(super) fn wrong(&self, field: &str, value: &Value, expected: &str) -> WeightsError {
        // Long values are cut: this is a message, not a dump.
        let found: String = value.to_string().chars().take(80).collect();
        WeightsError::malformed(self.file, field, found, expected)
    }

    pub(super) fn missing(&self, field: &str) -> WeightsError {
        WeightsError::MissingField {
            file: self.file.to_owned(),
            field: field.to_owned(),
            remedy: "add it, or take the file as the model was published with it".to_owned(),
        }
    }

    /// Whether the field is there, null or not.
    pub(super) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// A count that `null` switches off, and that has a default where it is absent.
    pub(super) fn count_or(
        &self,
        field: &str,
        absent: Option<usize>,
    ) -> Result<Option<usize>, WeightsError> {
        if self.has(field) {
            self.count(field)
        } else {
            Ok(absent)
        }
    }

    /// A list of numbers.
    pub(super) fn floats(&self, field: &str) -> Result<Option<Vec<f32>>, WeightsError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        value
            .as_array()
            .and_then(|items| items.iter().map(|x| Some(x.as_f64()? as f32)).collect())
            .map(Some)
            .ok_or_else(|| self.wrong(field, value, "it must be a list of numbers"))
    }

    /// A list of counts.
    pub(super) fn counts(&self, field: &str) -> Result<Option<Vec<usize>>, WeightsError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let count = |x: &Value| usize::try_from(x.as_u64()?).ok();
        value
            .as_array()
            .and_then(|items| items.iter().map(count).collect())
            .map(Some)
            .ok_or_else(|| self.wrong(field, value, "it must be a list of counts"))
    }

    /// A list of texts.
    pub(super) fn strings(&self, field: &str) -> Result<Option<Vec<&'a str>>, WeightsError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_str).collect())
            .map(Some)
            .ok_or_else(|| self.wrong(field, value, "it must be a list of texts"))
    }

    /// An object inside.
    pub(super) fn inner(&self, field: &str) -> Result<Option<Fields<'a>>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields {
                file: self.file,
                object,
            })),
            Some(value) => Err(self.wrong(field, value, "it must be an object")),
        }
    }

    /// That a field asks for something the engine does not do.
    pub(super) fn unsupported(
        &self,
        field: impl Into<String>,
        found: impl ToString,
        supported: impl Into<String>,
    ) -> WeightsError {
        WeightsError::unsupported(self.file, field, found, supported)
    }

    pub(super) fn count(&self, field: &str) -> Result<Option<usize>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be a count")),
        }
    }

    pub(super) fn need_count(&self, field: &str) -> Result<usize, WeightsError> {
        self.count(field)?.ok_or_else(|| self.missing(field))
    }

    pub(super) fn float(&self, field: &str) -> Result<Option<f32>, WeightsError> {
        Ok(self.double(field)?.map(|x| x as f32))
    }

    /// A number as the file's own arithmetic has it: rounded once less.
    pub(super) fn double(&self, field: &str) -> Result<Option<f64>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(x) => Ok(Some(x)),
                None => Err(self.wrong(field, value, "it must be a number")),
            },
        }
    }

    pub(super) fn need_float(&self, field: &str) -> Result<f32, WeightsError> {
        self.float(field)?.ok_or_else(|| self.missing(field))
    }

    pub(super) fn bool(&self, field: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be true or false")),
        }
    }

    pub(super) fn string(&self, field: &str) -> Result<Option<&'a str>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be text")),
        }
    }

    /// One id or a list of ids.
    pub(super) fn tokens(&self, field: &str) -> Result<Vec<TokenId>, WeightsError> {
        let Some(value) = self.get(field) else {
            return Ok(Vec::new());
        };
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        items
            .iter()
            .map(|item| {
                item.as_u64()
                    .and_then(|id| TokenId::try_from(id).ok())
                    .ok_or_else(|| self.wrong(field, value, "it must be a token id or a list"))
            })
            .collect()
    }
}
