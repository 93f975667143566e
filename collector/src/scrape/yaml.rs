//! YAML into values, for what Prometheus users have in YAML already: lists of targets, scrape configurations.
//!
//! A plain scalar is what its reader takes it for, as in Go's YAML: where a label's value is wanted, `1.10` and `on` are
//! texts. A mistake names its line.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// How many nodes one file may grow to when its aliases are replaced by what they stand for.
const MAX_NODES: usize = 1_000_000;

/// How deep lists and mappings may be nested.
const MAX_DEPTH: usize = 64;

/// What is wrong in a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlError {
    /// Counted from 1; 0 until known.
    line: usize,
    what: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for YamlError {}

impl de::Error for YamlError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self { line: 0, what: what.to_string() }
    }
}

impl YamlError {
    /// The same on this line, unless a line is known.
    fn on(mut self, line: usize) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

/// A value with its line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub line: usize,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Scalar { text: String, is_plain: bool },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub line: usize,
    pub text: String,
}

/// Reads a value of type `T`.
pub(super) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    Node::read(text)?.into()
}

impl Node {
    /// Reads a text of one document; an empty one is null.
    pub fn read(text: &str) -> Result<Self, YamlError> {
        let mut loader = Loader::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| YamlError {
                line: error.marker().line(),
                what: format!("not YAML: {}", error.info()),
            })?;
            loader.take(event, span.start.line()).map_err(|error| error.on(span.start.line()))?;
        }
        let nothing = Self { line: 1, value: Value::Scalar { text: String::new(), is_plain: true } };
        Ok(loader.root.unwrap_or(nothing))
    }

    /// Makes a value of it.
    pub fn into<T: DeserializeOwned>(self) -> Result<T, YamlError> {
        T::deserialize(self)
    }

    /// The value of a key; nothing if this is no mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|(known, _)| known.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, is_plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

#[derive(Debug, Default)]
struct Loader {
    /// Lists and mappings that have not ended: where they began, their anchor, what they have so far.
    open: Vec<(usize, usize, Vec<Node>)>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

impl Loader {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(de::Error::custom("a second document begins here; only one is read"));
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                let value = Value::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain };
                self.place(Node { line, value }, anchor)?;
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if self.open.len() == MAX_DEPTH {
                    return Err(de::Error::custom(format!("nested more than {MAX_DEPTH} deep")));
                }
                self.open.push((line, anchor, Vec::new()));
            }
            Event::SequenceEnd => self.end(|items| Ok(Value::List(items)))?,
            Event::MappingEnd => self.end(mapping)?,
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node =
                    node.ok_or_else(|| YamlError { line, what: "an alias that stands for nothing".to_owned() })?;
                self.place(node, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, value: impl FnOnce(Vec<Node>) -> Result<Value, YamlError>) -> Result<(), YamlError> {
        match self.open.pop() {
            Some((line, anchor, items)) => self.place(Node { line, value: value(items)? }, anchor),
            None => Ok(()),
        }
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        // An alias may stand for much; what it stands for is counted again.
        self.nodes += size(&node);
        if self.nodes > MAX_NODES {
            return Err(de::Error::custom(format!("more than {MAX_NODES} values once aliases are replaced")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some((_, _, items)) => items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

/// Only what `place` has not counted yet matters much: a list's items were counted when they came.
fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(pairs) => 1 + pairs.iter().map(|(_, node)| size(node)).sum::<usize>(),
    }
}

fn mapping(items: Vec<Node>) -> Result<Value, YamlError> {
    let mut pairs: Vec<(Key, Node)> = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        let line = key.line;
        let Value::Scalar { text, .. } = key.value else {
            return Err(YamlError { line, what: "expected a key, found a list or mapping".to_owned() });
        };
        if pairs.iter().any(|(known, _)| known.text == text) {
            return Err(YamlError { line, what: format!("`{text}` is set twice") });
        }
        pairs.push((Key { line, text }, value));
    }
    Ok(Value::Map(pairs))
}

/// Methods that ask for a number or a truth value: the scalar's text is read as one.
macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
            let line = self.line;
            let value = match &self.value {
                Value::Scalar { text, is_plain: true } => text.parse::<$type>().ok(),
                _ => None,
            };
            let value = value.ok_or_else(|| YamlError { line, what: format!("expected {}", $what) })?;
            visitor.$visit(value).map_err(|error: YamlError| error.on(line))
        }
    )*};
}

impl<'de> Deserializer<'de> for Node {
    type Error = YamlError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        let line = self.line;
        let is_null = self.is_null();
        let visited = match self.value {
            // A list or mapping that is left empty; a text that is.
            Value::Scalar { .. } if is_null => visitor.visit_string(String::new()),
            Value::Scalar { text, .. } => visitor.visit_string(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Value::Map(pairs) => visitor.visit_map(Pairs { rest: pairs.into_iter(), value: None }),
        };
        visited.map_err(|error: YamlError| error.on(line))
    }

    parsed! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_u16 visit_u16 u16, "a whole number up to 65535";
        deserialize_u64 visit_u64 u64, "a whole number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match self.is_null() {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match self.is_null() {
            true => visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Node>())),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match self.is_null() {
            true => visitor.visit_map(Pairs { rest: Vec::new().into_iter(), value: None }),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, YamlError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, YamlError> {
        let line = self.line;
        let Value::Scalar { text, .. } = self.value else {
            return Err(YamlError { line, what: format!("expected one of {}", variants.join(", ")) });
        };
        let text: StrDeserializer<'_, YamlError> = text.as_str().into_deserializer();
        text.deserialize_enum(name, variants, visitor).map_err(|error| error.on(line))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, YamlError> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A mapping that is being read: what a reader says against a key or a value gets the line of that.
struct Pairs {
    rest: std::vec::IntoIter<(Key, Node)>,
    value: Option<Node>,
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = YamlError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, YamlError> {
        let Some((Key { line, text }, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let key = Node { line, value: Value::Scalar { text, is_plain: false } };
        seed.deserialize(key).map(Some).map_err(|error| error.on(line))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, YamlError> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
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
    fn a_scalar_is_what_its_reader_takes_it_for() {
        let text = "on: true\nlimit: 12\nport: 80\ntext: ~\nlabels: {v: 1.10, on: yes, q: '5'}\nlist: [a, 2]\n";
        let read: Some = from_str(text).unwrap();
        let labels = [("v", "1.10"), ("on", "yes"), ("q", "5")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let list = vec!["a".to_owned(), "2".to_owned()];
        assert_eq!(read, Some { on: true, limit: 12, port: 80, text: None, labels, list });
        assert_eq!(from_str::<Some>("labels:\nlist:\n").unwrap(), Some::default());
        assert_eq!(from_str::<Some>("").unwrap(), Some::default());
        assert_eq!(from_str::<Some>("list: &a [x]\n").unwrap().list, ["x"]);
        assert_eq!(from_str::<Vec<Vec<String>>>("- &a [x]\n- *a\n").unwrap(), [["x"], ["x"]]);
    }

    #[test]
    fn a_mistake_names_its_line() {
        for (text, message) in [
            (
                "on: true\nof: 1\n",
                "line 2: unknown field `of`, expected one of `on`, `limit`, `port`, `text`, `labels`, `list`",
            ),
            ("\n\nlimit: many\n", "line 3: expected a whole number"),
            ("on: 'true'\n", "line 1: expected true or false"),
            ("port: 70000\n", "line 1: expected a whole number up to 65535"),
            ("labels:\n  a: [1]\n", "line 2: invalid type: sequence, expected a string"),
            ("on: true\non: false\n", "line 2: `on` is set twice"),
            ("a: [\n", "line 2: not YAML: while parsing a node, did not find expected node content"),
            ("a: 1\n---\nb: 2\n", "line 2: a second document begins here; only one is read"),
        ] {
            assert_eq!(from_str::<Some>(text).unwrap_err().to_string(), message, "{text}");
        }
        let bomb = (1..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let before = n - 1;
            text + &format!("a{n}: &a{n} [*a{before}, *a{before}]\n")
        });
        assert!(Node::read(&bomb).unwrap_err().to_string().contains("once aliases are replaced"));
        assert!(Node::read(&"[".repeat(10_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "[-a:{}\\[\\]&* \n'\"#|>]{0,60}") {
            drop(from_str::<Some>(&text));
        }
    }
}
