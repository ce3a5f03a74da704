//! The model that a body names, found without memory for the rest. Knows no other field.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// What was to be one.
pub struct NotAString;

/// The name in a body.
pub struct NamedModel {
    /// Where it is there.
    pub model: Option<Result<Option<String>, NotAString>>,
}

impl<'de> Deserialize<'de> for NamedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = NamedModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedModel, A::Error> {
        let mut model = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == "model" {
                model = Some(map.next_value::<Text>()?.0);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(NamedModel { model })
    }
}

/// A string, nothing, or something else.
struct Text(Result<Option<String>, NotAString>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Ok(Some(text.to_owned()))))
    }

    fn visit_unit<E>(self) -> Result<Text, E> {
        Ok(Text(Ok(None)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text(Err(NotAString)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text(Err(NotAString)))
    }
}
