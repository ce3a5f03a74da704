//! GGUF's typed keys and values. Owns their wire form; knows no key's meaning.

use std::collections::HashMap;
use std::fmt;

use super::reader::Reader;
use crate::weights::WeightsError;

/// Longest key taken, bytes (the format's own limit).
const MAX_KEY: u64 = (1 << 16) - 1;
/// Longest single string value taken, bytes. Chat templates are the longest, some 100 kB.
const MAX_STRING: u64 = 16 << 20;
/// A pair is at least a key length, a type and a one-byte value.
const MIN_PAIR: u64 = 8 + 4 + 1;

/// A value; integers and floats are widened.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Either float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array in the width the file gives it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the element types")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
}

impl Value {
    /// A non-negative integer, whatever its stored type.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(v) => Some(v),
            Self::Signed(v) => u64::try_from(v).ok(),
            _ => None,
        }
    }

    /// A number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Float(v) => Some(v),
            Self::Unsigned(v) => Some(v as f64),
            Self::Signed(v) => Some(v as f64),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// Text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }

    /// An array of text.
    pub fn as_strings(&self) -> Option<&[String]> {
        match self {
            Self::Array(Array::String(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of integers, widened.
    pub fn as_integers(&self) -> Option<Vec<i64>> {
        let Self::Array(array) = self else {
            return None;
        };
        match array {
            Array::U8(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::I8(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::U16(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::I16(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::U32(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::I32(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Array::U64(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Array::I64(v) => Some(v.clone()),
            _ => None,
        }
    }

    /// An array of true and false.
    pub fn as_bools(&self) -> Option<&[bool]> {
        match self {
            Self::Array(Array::Bool(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of single floats.
    pub fn as_f32s(&self) -> Option<&[f32]> {
        match self {
            Self::Array(Array::F32(v)) => Some(v),
            _ => None,
        }
    }

    fn read(r: &mut Reader<'_>, type_id: u32, key: &str) -> Result<Self, WeightsError> {
        Ok(match type_id {
            0 => Self::Unsigned(u8::from_le_bytes(r.bytes(key)?).into()),
            1 => Self::Signed(i8::from_le_bytes(r.bytes(key)?).into()),
            2 => Self::Unsigned(u16::from_le_bytes(r.bytes(key)?).into()),
            3 => Self::Signed(i16::from_le_bytes(r.bytes(key)?).into()),
            4 => Self::Unsigned(r.u32(key)?.into()),
            5 => Self::Signed(i32::from_le_bytes(r.bytes(key)?).into()),
            6 => Self::Float(f32::from_le_bytes(r.bytes(key)?).into()),
            7 => Self::Bool(read_bool(r, key)?),
            8 => Self::String(r.string(MAX_STRING, key)?),
            9 => Self::Array(Array::read(r, key)?),
            10 => Self::Unsigned(r.u64(key)?),
            11 => Self::Signed(i64::from_le_bytes(r.bytes(key)?)),
            12 => Self::Float(f64::from_le_bytes(r.bytes(key)?)),
            other => return Err(unknown_type(r, other, key)),
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(v) => v.fmt(f),
            Self::Signed(v) => v.fmt(f),
            Self::Float(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => write!(f, "{:?}", v.chars().take(80).collect::<String>()),
            Self::Array(_) => f.write_str("an array"),
        }
    }
}

impl Array {
    fn read(r: &mut Reader<'_>, key: &str) -> Result<Self, WeightsError> {
        let type_id = r.u32(key)?;
        let count = r.u64(key)?;
        Ok(match type_id {
            0 => Self::U8(read_items(r, count, u8::from_le_bytes, key)?),
            1 => Self::I8(read_items(r, count, i8::from_le_bytes, key)?),
            2 => Self::U16(read_items(r, count, u16::from_le_bytes, key)?),
            3 => Self::I16(read_items(r, count, i16::from_le_bytes, key)?),
            4 => Self::U32(read_items(r, count, u32::from_le_bytes, key)?),
            5 => Self::I32(read_items(r, count, i32::from_le_bytes, key)?),
            6 => Self::F32(read_items(r, count, f32::from_le_bytes, key)?),
            7 => {
                r.expect_room(count, 1, key)?;
                Self::Bool(
                    (0..count)
                        .map(|_| read_bool(r, key))
                        .collect::<Result<_, _>>()?,
                )
            }
            8 => {
                // A string is at least its length field.
                r.expect_room(count, 8, key)?;
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(r.string(MAX_STRING, key)?);
                }
                Self::String(items)
            }
            9 => {
                return Err(WeightsError::malformed(
                    r.file(),
                    key,
                    "an array of arrays",
                    "the format's writers make none",
                ));
            }
            10 => Self::U64(read_items(r, count, u64::from_le_bytes, key)?),
            11 => Self::I64(read_items(r, count, i64::from_le_bytes, key)?),
            12 => Self::F64(read_items(r, count, f64::from_le_bytes, key)?),
            other => return Err(unknown_type(r, other, key)),
        })
    }
}

fn read_items<T, const N: usize>(
    r: &mut Reader<'_>,
    count: u64,
    from: fn([u8; N]) -> T,
    key: &str,
) -> Result<Vec<T>, WeightsError> {
    r.expect_room(count, N as u64, key)?;
    (0..count).map(|_| Ok(from(r.bytes(key)?))).collect()
}

fn read_bool(r: &mut Reader<'_>, key: &str) -> Result<bool, WeightsError> {
    match r.bytes::<1>(key)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(WeightsError::malformed(
            r.file(),
            key,
            format!("the byte {other}"),
            "a truth value is 0 or 1",
        )),
    }
}

fn unknown_type(r: &Reader<'_>, type_id: u32, key: &str) -> WeightsError {
    WeightsError::malformed(
        r.file(),
        key,
        format!("of the value type {type_id}"),
        "value types are 0 to 12; the file is damaged",
    )
}

/// Keys and values, in the file's order.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pairs: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn read(r: &mut Reader<'_>, count: u64) -> Result<Self, WeightsError> {
        r.expect_room(count, MIN_PAIR, "the key count")?;
        let mut this = Self::default();
        for i in 0..count {
            let key = r.string(MAX_KEY, &format!("the name of key {i}"))?;
            let type_id = r.u32(&key)?;
            let value = Value::read(r, type_id, &key)?;
            if this.index.insert(key.clone(), this.pairs.len()).is_some() {
                return Err(WeightsError::malformed(
                    r.file(),
                    key,
                    "given twice",
                    "every key has one value",
                ));
            }
            this.pairs.push((key, value));
        }
        Ok(this)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index
            .get(key)
            .and_then(|&i| self.pairs.get(i))
            .map(|(_, value)| value)
    }

    /// All pairs, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v))
    }
}
