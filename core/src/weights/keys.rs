//! Typed access to a GGUF file's keys, with errors that name file and key. Knows no key's meaning.

use super::WeightsError;
use super::gguf::{Gguf, GgufTensor, Value};
use crate::types::TokenId;

/// The keys of one file, with errors that name it.
pub(super) struct Keys<'a> {
    pub(super) gguf: &'a Gguf,
    pub(super) architecture: &'a str,
}

impl<'a> Keys<'a> {
    pub(super) fn file(&self) -> &str {
        self.gguf.source.name()
    }

    /// `llama.` and the rest of a key.
    pub(super) fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn wrong(&self, key: &str, value: &Value, expected: &str) -> WeightsError {
        WeightsError::malformed(self.file(), key, value, expected)
    }

    pub(super) fn missing(&self, key: &str) -> WeightsError {
        WeightsError::MissingField {
            file: self.file().to_owned(),
            field: key.to_owned(),
            remedy: "convert the model again with a current converter".to_owned(),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(key)
    }

    /// A count; an array of equal counts (one a layer) stands for the count.
    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        let key = self.full(key);
        let Some(value) = self.get(&key) else {
            return Ok(None);
        };
        let number = if let Some(items) = value.as_integers() {
            match items.split_first() {
                Some((first, rest)) if rest.iter().all(|x| x == first) => {
                    u64::try_from(*first).ok()
                }
                _ => {
                    return Err(WeightsError::unsupported(
                        self.file(),
                        key,
                        "an array of different numbers",
                        "one number for all layers",
                    ));
                }
            }
        } else {
            value.as_u64()
        };
        number
            .and_then(|n| usize::try_from(n).ok())
            .map(Some)
            .ok_or_else(|| self.wrong(&key, value, "it must be a count"))
    }

    pub(super) fn need_count(&self, key: &str) -> Result<usize, WeightsError> {
        self.count(key)?
            .ok_or_else(|| self.missing(&self.full(key)))
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f32>, WeightsError> {
        let key = self.full(key);
        match self.get(&key) {
            None => Ok(None),
            // Files hold f32, which the widening kept.
            Some(value) => match value.as_f64() {
                Some(x) => Ok(Some(x as f32)),
                None => Err(self.wrong(&key, value, "it must be a number")),
            },
        }
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| self.wrong(key, value, "it must be true or false")),
        }
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'a str>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(key, value, "it must be text")),
        }
    }

    pub(super) fn token(
        &self,
        key: &str,
        vocab_size: usize,
    ) -> Result<Option<TokenId>, WeightsError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(id) if id < vocab_size as u64 => Ok(TokenId::try_from(id).ok()),
            // Writers say "none" with the largest value of the type.
            Some(id) if id == u64::from(u32::MAX) => Ok(None),
            _ => Err(self.wrong(
                key,
                value,
                &format!("it must be an id below the vocabulary's {vocab_size}"),
            )),
        }
    }
}

/// The keys of a file.
pub(super) fn keys(gguf: &Gguf) -> Result<Keys<'_>, WeightsError> {
    let mut keys = Keys {
        gguf,
        architecture: "",
    };
    keys.architecture = keys
        .string("general.architecture")?
        .ok_or_else(|| keys.missing("general.architecture"))?;
    Ok(keys)
}

/// A tensor by its name in the file.
pub(super) fn tensor<'a>(gguf: &'a Gguf, name: &str) -> Option<&'a GgufTensor> {
    gguf.tensors.iter().find(|t| t.name == name)
}
