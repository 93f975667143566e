//! Deserializes values of other types from a YAML tree, with serde.
//!
//! The target type decides how a plain scalar is read, as in Go's YAML: for a label's value, `1.10`
//! and `on` are texts. Errors name their line.

use super::{Key, Mistake, Node, Value};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};
use std::fmt;

impl de::Error for Mistake {
    fn custom<T>(what: T) -> Self
    where
        T: fmt::Display,
    {
        Self::new(0, what.to_string())
    }
}

impl Mistake {
    /// Sets the line of the error, unless it is known.
    fn on(mut self, line: usize) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

/// Parses a value of type `T`.
///
/// # Errors
/// If the text is not valid YAML, or not a `T`.
pub fn from_str<T>(text: &str) -> Result<T, Mistake>
where
    T: DeserializeOwned,
{
    Node::read(text)?.parse()
}

impl Node {
    /// Converts the node into a value.
    ///
    /// # Errors
    /// If the conversion fails, with the line.
    pub fn parse<T>(self) -> Result<T, Mistake>
    where
        T: DeserializeOwned,
    {
        T::deserialize(self)
    }
}

/// Methods for numbers and booleans: they parse the scalar's text.
macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
            let line = self.line;
            let value = match &self.value {
                Value::Scalar { text, quoted: false } => text.parse::<$type>().ok(),
                _ => None,
            };
            let value = value.ok_or_else(|| Mistake::new(line, format!("expected {}", $what)))?;
            visitor.$visit(value).map_err(|error: Mistake| error.on(line))
        }
    )*};
}

impl<'de> Deserializer<'de> for Node {
    type Error = Mistake;

    fn deserialize_any<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        let line = self.line;
        let is_null = self.is_null();
        let visited = match self.value {
            // An empty value: null for lists and mappings, an empty string for texts.
            Value::Scalar { .. } if is_null => visitor.visit_string(String::new()),
            Value::Scalar { text, .. } => visitor.visit_string(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Value::Map(pairs) => visitor.visit_map(Pairs {
                rest: pairs.into_iter(),
                value: None,
            }),
        };

        visited.map_err(|error: Mistake| error.on(line))
    }

    parsed! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_u16 visit_u16 u16, "a whole number up to 65535";
        deserialize_u64 visit_u64 u64, "a whole number";
    }

    fn deserialize_option<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        if self.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_seq<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        if self.is_null() {
            visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Node>()))
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_map<V>(self, visitor: V) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        if self.is_null() {
            visitor.visit_map(Pairs {
                rest: Vec::new().into_iter(),
                value: None,
            })
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_struct<V>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake>
    where
        V: Visitor<'de>,
    {
        let line = self.line;
        let Value::Scalar { text, .. } = self.value else {
            return Err(Mistake::new(
                line,
                format!("expected one of {}", variants.join(", ")),
            ));
        };

        let text: StrDeserializer<'_, Mistake> = text.as_str().into_deserializer();
        text.deserialize_enum(name, variants, visitor)
            .map_err(|error| error.on(line))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A mapping being deserialized. Errors in a key or value get its line.
struct Pairs {
    rest: std::vec::IntoIter<(Key, Node)>,
    value: Option<Node>,
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = Mistake;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake>
    where
        K: DeserializeSeed<'de>,
    {
        let Some((Key { line, text }, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        // As if in quotes: a key `on` or `1` is a text for every target type.
        let key = Node {
            line,
            value: Value::Scalar { text, quoted: true },
        };
        seed.deserialize(key)
            .map(Some)
            .map_err(|error| error.on(line))
    }

    fn next_value_seed<V>(&mut self, seed: V) -> Result<V::Value, Mistake>
    where
        V: DeserializeSeed<'de>,
    {
        let value = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
        let line = value.line;
        seed.deserialize(value).map_err(|error| error.on(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Some {
        on: bool,
        limit: usize,
        port: u16,
        text: Option<String>,
        labels: BTreeMap<String, String>,
        list: Vec<String>,
    }

    #[test]
    fn the_target_type_decides_how_a_scalar_is_read() {
        let text = "on: true\nlimit: 12\nport: 80\ntext: ~\nlabels: {v: 1.10, on: yes, q: '5'}\nlist: [a, 2]\n";
        let read: Some = from_str(text).unwrap();
        let labels = [("v", "1.10"), ("on", "yes"), ("q", "5")];
        let labels = labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let list = vec!["a".to_owned(), "2".to_owned()];

        assert_eq!(
            read,
            Some {
                on: true,
                limit: 12,
                port: 80,
                text: None,
                labels,
                list
            }
        );
        assert_eq!(
            from_str::<Some>("labels:\nlist:\n").unwrap(),
            Some::default()
        );
        assert_eq!(from_str::<Some>("").unwrap(), Some::default());
        assert_eq!(from_str::<Some>("list: &a [x]\n").unwrap().list, ["x"]);
        assert_eq!(
            from_str::<Vec<Vec<String>>>("- &a [x]\n- *a\n").unwrap(),
            [["x"], ["x"]]
        );
    }

    #[test]
    fn errors_name_their_line() {
        for (text, message) in [
            (
                "on: true\nof: 1\n",
                "line 2: unknown field `of`, expected one of `on`, `limit`, `port`, `text`, `labels`, `list`",
            ),
            ("\n\nlimit: many\n", "line 3: expected a whole number"),
            ("on: 'true'\n", "line 1: expected true or false"),
            (
                "port: 70000\n",
                "line 1: expected a whole number up to 65535",
            ),
            (
                "labels:\n  a: [1]\n",
                "line 2: invalid type: sequence, expected a string",
            ),
            ("on: true\non: false\n", "line 2: `on` is set twice"),
            (
                "a: [\n",
                "line 2: not YAML: while parsing a node, did not find expected node content",
            ),
            (
                "a: 1\n---\nb: 2\n",
                "line 2: a second document begins here; only one is read",
            ),
        ] {
            assert_eq!(
                from_str::<Some>(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
        // 39 doublings of one item: about a kilobyte of text stands for 2^39 nodes.
        let bomb = (1..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let before = n - 1;
            text + &format!("a{n}: &a{n} [*a{before}, *a{before}]\n")
        });
        assert!(
            Node::read(&bomb)
                .unwrap_err()
                .to_string()
                .contains("once aliases are replaced")
        );
        assert!(Node::read(&"[".repeat(10_000)).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[-a:{}\\[\\]&* \n'\"#|>]{0,60}") {
            drop(from_str::<Some>(&text));
        }
    }
}
