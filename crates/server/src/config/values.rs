//! Reads typed values from a parsed `takt.toml`.
//!
//! Toml's own reader is compiled three times for each table (for tables, dates and `Spanned`), which was a tenth of the code of
//! this crate before optimisation. This one knows tables only: a date in the configuration is a text.

use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::fmt;
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeValue};
use toml::map::Iter;

/// A mistake in the file.
#[derive(Debug)]
pub(super) struct Mistake {
    pub message: String,
    /// Start of the value or key in the text, in bytes.
    pub start: Option<usize>,
}

impl Mistake {
    /// Adds the place, unless a value inside has added a narrower one.
    fn at<T>(self, place: &Spanned<T>) -> Self {
        let start = self.start.or(Some(place.span().start));
        Self { start, ..self }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl Error for Mistake {
    fn custom<T>(message: T) -> Self
    where
        T: fmt::Display,
    {
        Self {
            message: message.to_string(),
            start: None,
        }
    }
}

impl From<toml::de::Error> for Mistake {
    fn from(error: toml::de::Error) -> Self {
        Self {
            message: error.message().to_owned(),
            start: error.span().map(|span| span.start),
        }
    }
}

/// A value of the file.
pub(super) struct Value<'de>(pub &'de Spanned<DeValue<'de>>);

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Mistake;

    fn deserialize_any<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        let read = match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(digits) => match integer(digits) {
                Some(number) => visitor.visit_i64(number),
                None => Err(Mistake::custom("integer number overflowed")),
            },
            DeValue::Float(digits) => match digits.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(error) => Err(Mistake::custom(error)),
            },
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            // toml's own reader gives serde a map for a date, and `plain` in mistake.rs knows that message.
            DeValue::Datetime(_) => Err(Mistake::invalid_type(Unexpected::Map, &visitor)),
            DeValue::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(Value)))
            }
            DeValue::Table(table) => visitor.visit_map(Entries {
                rest: table.iter(),
                value: None,
            }),
        };
        read.map_err(|mistake| mistake.at(self.0))
    }

    fn deserialize_option<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        let read = match self.0.get_ref() {
            DeValue::String(variant) => visitor.visit_enum(variant.as_ref().into_deserializer()),
            _ => Err(Mistake::custom("wanted string")),
        };
        read.map_err(|mistake| mistake.at(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn integer(digits: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(digits.as_str(), digits.radix()).ok()
}

/// The entries of a table.
struct Entries<'de> {
    rest: Iter<'de, Spanned<DeString<'de>>, Spanned<DeValue<'de>>>,
    /// Value of the key that was read last.
    value: Option<&'de Spanned<DeValue<'de>>>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Mistake;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake>
    where
        K: DeserializeSeed<'de>,
    {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(key.get_ref().as_ref().into_deserializer())
            .map(Some)
            .map_err(|mistake: Mistake| mistake.at(key))
    }

    fn next_value_seed<V>(&mut self, seed: V) -> Result<V::Value, Mistake>
    where
        V: DeserializeSeed<'de>,
    {
        let value = self.value.take().expect("serde reads the key first");
        seed.deserialize(Value(value))
            .map_err(|mistake| mistake.at(value))
    }
}
