//! YAML as written: every scalar as text, every node with its line.
//!
//! Rules and routes are parsed by hand from this tree. An error can then name the file, the line,
//! the rule and the key that was probably meant, and labels such as `severity: 1` or `job: on` stay
//! text. Structs such as a scrape configuration are deserialized from the tree with serde
//! (`de.rs`).

mod de;

pub use de::from_str;

use crate::duration;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Maximum number of nodes in a file after its aliases are expanded.
const NODES_MAX: usize = 1_000_000;

/// Maximum depth of nested lists and mappings.
const DEPTH_MAX: usize = 64;

/// An error in a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the file; empty until known.
    pub file: String,
    /// Line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// Context, outermost first: ``group `gpu` ``, ``rule `GpuHot` ``.
    pub within: Vec<String>,
    /// The error message.
    pub what: String,
}

impl Mistake {
    /// Returns an error on a line; 0 if the line is not known yet.
    pub fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line,
            within: Vec::new(),
            what: what.into(),
        }
    }

    /// Adds an outer context to the error.
    pub fn within(mut self, what: impl Into<String>) -> Self {
        self.within.insert(0, what.into());
        self
    }

    /// Adds the name of the file to the error.
    pub fn in_file(mut self, name: &str) -> Self {
        name.clone_into(&mut self.file);
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.file.as_str(), self.line) {
            ("", 0) => String::new(),
            ("", line) => format!("line {line}: "),
            (file, 0) => format!("{file}: "),
            (file, line) => format!("{file}, line {line}: "),
        };
        write!(f, "{place}")?;
        if self.within.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.within.join(", "), self.what)
        }
    }
}

impl std::error::Error for Mistake {}

/// A list or mapping whose end has not been read.
struct OpenNode {
    /// Whether the node belongs to a secret key.
    is_secret: bool,
    next: NextNode,
}

/// The role of the next node in a list or mapping.
enum NextNode {
    Item,
    Key,
    ValueOf(String),
}

/// Replaces every value of these keys in the text of a file by `<secret>`, also within lists and
/// mappings. URLs are replaced by a URL, so that Alertmanager's tools can still parse the text.
pub fn without(text: &str, keys: &[&str]) -> String {
    let mut places = Vec::new();
    let mut open: Vec<OpenNode> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let mut is_secret = open.last().is_some_and(|parent| parent.is_secret);
        let mut is_url = false;
        if let Some(parent) = open.last_mut() {
            match (&parent.next, &event) {
                (NextNode::Key, Event::Scalar(word, ..)) => {
                    parent.next = NextNode::ValueOf(word.to_string());
                    continue;
                }
                (NextNode::ValueOf(key), _) => {
                    is_secret |= keys.contains(&key.as_str());
                    is_url = key == "url";
                    parent.next = NextNode::Key;
                }
                _ => {}
            }
        }
        match event {
            Event::Scalar(word, ..) if is_secret && !word.is_empty() => {
                let shown = if is_url {
                    "http://secret.invalid"
                } else {
                    "<secret>"
                };
                places.push((span.start.index()..span.end.index(), shown));
            }
            Event::MappingStart(..) => open.push(OpenNode {
                is_secret,
                next: NextNode::Key,
            }),
            Event::SequenceStart(..) => open.push(OpenNode {
                is_secret,
                next: NextNode::Item,
            }),
            Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
            _ => {}
        }
    }
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (place, shown) in places {
        out.extend(&chars[at..place.start]);
        out.push_str(shown);
        at = place.end;
    }
    out.extend(&chars[at..]);
    out
}

/// A node of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    line: usize,
    value: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Scalar { text: String, quoted: bool },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
struct Key {
    line: usize,
    text: String,
}

impl Node {
    /// Parses a file of one document. An empty file is null, like an empty value.
    ///
    /// # Errors
    /// If the text is not valid YAML, repeats a key, or has several documents.
    pub fn read(text: &str) -> Result<Self, Mistake> {
        Loader::default().load(text)
    }

    /// Returns an empty mapping.
    pub fn empty() -> Self {
        Self {
            line: 1,
            value: Value::Map(Vec::new()),
        }
    }

    /// Returns this mapping with the value of `key` replaced by a text.
    pub fn with_text(&self, key: &str, text: &str) -> Self {
        let mut changed = self.clone();
        if let Value::Map(pairs) = &mut changed.value {
            for (_, node) in pairs.iter_mut().filter(|(known, _)| known.text == key) {
                node.value = Value::Scalar {
                    text: text.to_owned(),
                    quoted: true,
                };
            }
        }
        changed
    }

    /// Line of its start, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the value of a key; `None` if the node is not a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(pairs) => pairs
                .iter()
                .find(|(known, _)| known.text == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// Removes keys from this mapping.
    pub fn remove(&mut self, keys: &[&str]) {
        if let Value::Map(pairs) = &mut self.value {
            pairs.retain(|(key, _)| !keys.contains(&key.text.as_str()));
        }
    }

    /// Sets the value of `key`, unless this mapping has the key.
    pub fn set_default(&mut self, key: &str, node: &Self) {
        if let Value::Map(pairs) = &mut self.value
            && !pairs.iter().any(|(own, _)| own.text == key)
        {
            pairs.push((
                Key {
                    line: node.line,
                    text: key.to_owned(),
                },
                node.clone(),
            ));
        }
    }

    /// Returns an error at this node.
    pub fn mistake(&self, what: impl Into<String>) -> Mistake {
        Mistake::new(self.line, what)
    }

    /// Returns whether the node is `~`, `null` or empty.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns a scalar as written.
    ///
    /// # Errors
    /// If the node is a list or a mapping.
    pub fn text(&self) -> Result<&str, Mistake> {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => Ok(""),
            Value::Scalar { text, .. } => Ok(text),
            other => Err(self.mistake(format!("expected text, found {}", other.name()))),
        }
    }

    /// Returns the items of a list; null counts as an empty list.
    ///
    /// # Errors
    /// If the node has another type.
    pub fn list(&self) -> Result<&[Node], Mistake> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ if self.is_null() => Ok(&[]),
            other => Err(self.mistake(format!("expected a list, found {}", other.name()))),
        }
    }

    /// Returns the texts of a list.
    ///
    /// # Errors
    /// If the node is not a list, or an item is not a text.
    pub fn texts(&self) -> Result<Vec<String>, Mistake> {
        self.list()?
            .iter()
            .map(|item| item.text().map(str::to_owned))
            .collect()
    }

    /// Returns the keys and values of a mapping with arbitrary keys; null counts as an empty
    /// mapping.
    ///
    /// # Errors
    /// If the node has another type.
    pub fn pairs(&self) -> Result<impl Iterator<Item = (&str, &Node)>, Mistake> {
        let pairs: &[(Key, Node)] = match &self.value {
            Value::Map(pairs) => pairs,
            _ if self.is_null() => &[],
            other => {
                return Err(self.mistake(format!("expected a mapping, found {}", other.name())));
            }
        };
        Ok(pairs.iter().map(|(key, value)| (key.text.as_str(), value)))
    }

    /// Returns the keys and texts of a mapping.
    ///
    /// # Errors
    /// If the node is not a mapping, or a value is not a text.
    pub fn text_pairs(&self) -> Result<Vec<(String, String)>, Mistake> {
        self.pairs()?
            .map(|(key, value)| Ok((key.to_owned(), value.text()?.to_owned())))
            .collect()
    }

    /// Returns the fields of a mapping whose keys are `known`.
    ///
    /// # Errors
    /// If the node is not a mapping, or has another key; the message suggests the nearest known
    /// key.
    pub fn fields(&self, known: &[&str]) -> Result<Fields<'_>, Mistake> {
        let pairs: &[(Key, Node)] = match &self.value {
            Value::Map(pairs) => pairs,
            _ if self.is_null() => &[],
            other => {
                return Err(self.mistake(format!("expected a mapping, found {}", other.name())));
            }
        };
        match pairs
            .iter()
            .find(|(key, _)| !known.contains(&key.text.as_str()))
        {
            Some((key, _)) => Err(Mistake::new(key.line, unknown_key(&key.text, known))),
            None => Ok(Fields {
                line: self.line,
                pairs,
            }),
        }
    }

    /// Parses a duration in Prometheus' format: `1h30m`.
    ///
    /// # Errors
    /// If the node is not a duration.
    pub fn duration(&self) -> Result<Duration, Mistake> {
        let text = self.text()?;
        duration::parse(text).ok_or_else(|| {
            self.mistake(format!("`{text}` is no duration such as `90s` or `1h30m`"))
        })
    }

    /// Parses `true` or `false`, or YAML 1.1's other words for them. Quoted words are text.
    ///
    /// # Errors
    /// If the node is not a boolean.
    pub fn boolean(&self) -> Result<bool, Mistake> {
        if let Value::Scalar { text, quoted: true } = &self.value {
            return Err(self.mistake(format!(
                "`{text}` is text in quotes, neither true nor false"
            )));
        }
        match self.text()? {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
                Ok(true)
            }
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off"
            | "OFF" => Ok(false),
            other => Err(self.mistake(format!("`{other}` is neither true nor false"))),
        }
    }

    /// Parses a number of any type.
    ///
    /// # Errors
    /// If the node is not such a number.
    pub fn number<N: std::str::FromStr>(&self) -> Result<N, Mistake> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| self.mistake(format!("`{text}` is no number that fits here")))
    }
}

impl Value {
    fn name(&self) -> &'static str {
        match self {
            Self::Scalar { .. } => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Returns the message for an unknown key, which suggests the nearest known one.
pub fn unknown_key(key: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .min_by_key(|known| strsim::osa_distance(key, known));
    match nearest {
        Some(nearest) => format!("unknown key `{key}`; did you mean `{nearest}`?"),
        None => format!("unknown key `{key}`"),
    }
}

/// Fields of a mapping, all of them known. A field set to null counts as absent.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    line: usize,
    pairs: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    /// Line of the mapping's start.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns a field.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.pairs
            .iter()
            .find(|(known, node)| known.text == key && !node.is_null())
            .map(|(_, node)| node)
    }

    /// Returns a required field.
    ///
    /// # Errors
    /// If the field is absent.
    pub fn require(&self, key: &str) -> Result<&'a Node, Mistake> {
        self.get(key)
            .ok_or_else(|| Mistake::new(self.line, format!("`{key}` is missing")))
    }

    /// Returns a field's value, converted with `read`, or the default.
    ///
    /// # Errors
    /// The error of `read`, with the field's name.
    pub fn or_default<T: Default>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Mistake>,
    ) -> Result<T, Mistake> {
        Ok(self.optional(key, read)?.unwrap_or_default())
    }

    /// Returns a field's value, converted with `read`, if the field is present.
    ///
    /// # Errors
    /// The error of `read`, with the field's name.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        self.get(key)
            .map(read)
            .transpose()
            .map_err(|mistake| mistake.within(format!("`{key}`")))
    }
}

/// A list or mapping whose end has not been read.
struct Open {
    line: usize,
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
}

#[derive(Default)]
struct Loader {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

impl Loader {
    fn load(mut self, text: &str) -> Result<Node, Mistake> {
        let mut documents = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| not_yaml(&error))?;
            let line = span.start.line();
            match event {
                Event::DocumentStart(_) => documents += 1,
                Event::Scalar(text, style, anchor, _) => {
                    let quoted = style != ScalarStyle::Plain;
                    let node = Node {
                        line,
                        value: Value::Scalar {
                            text: text.into_owned(),
                            quoted,
                        },
                    };
                    self.place(node, anchor)?;
                }
                Event::SequenceStart(anchor, _) => self.start(line, anchor, false)?,
                Event::MappingStart(anchor, _) => self.start(line, anchor, true)?,
                Event::SequenceEnd | Event::MappingEnd => self.end()?,
                Event::Alias(anchor) => {
                    let node = self.anchors.get(&anchor).cloned();
                    let node =
                        node.ok_or_else(|| Mistake::new(line, "an alias that stands for nothing"))?;
                    self.nodes += size_of_tree(&node);
                    self.place(node, 0)?;
                }
                _ => {}
            }
            if documents > 1 {
                return Err(Mistake::new(
                    line,
                    "a second document begins here; only one is read",
                ));
            }
        }
        let nothing = Value::Scalar {
            text: String::new(),
            quoted: false,
        };
        Ok(self.root.unwrap_or(Node {
            line: 1,
            value: nothing,
        }))
    }

    fn start(&mut self, line: usize, anchor: usize, is_map: bool) -> Result<(), Mistake> {
        if self.open.len() == DEPTH_MAX {
            return Err(Mistake::new(
                line,
                format!("nested more than {DEPTH_MAX} deep"),
            ));
        }
        self.open.push(Open {
            line,
            anchor,
            items: Vec::new(),
            is_map,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Mistake> {
        let Some(Open {
            line,
            anchor,
            items,
            is_map,
        }) = self.open.pop()
        else {
            return Ok(());
        };
        let value = if is_map {
            Value::Map(mapping(items)?)
        } else {
            Value::List(items)
        };
        self.place(Node { line, value }, anchor)
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Mistake> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(node.mistake(format!(
                "more than {NODES_MAX} nodes once aliases are replaced"
            )));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

fn not_yaml(error: &ScanError) -> Mistake {
    Mistake::new(error.marker().line(), format!("not YAML: {}", error.info()))
}

fn size_of_tree(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(size_of_tree).sum::<usize>(),
        Value::Map(pairs) => {
            1 + pairs
                .iter()
                .map(|(_, node)| size_of_tree(node))
                .sum::<usize>()
        }
    }
}

/// Returns the pairs of a mapping. A merge key (`<<`) adds the pairs that the mapping lacks.
fn mapping(items: Vec<Node>) -> Result<Vec<(Key, Node)>, Mistake> {
    let mut pairs: Vec<(Key, Node)> = Vec::with_capacity(items.len() / 2);
    let mut merged = Vec::new();
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        let key = Key {
            line: key.line,
            text: key.text()?.to_owned(),
        };
        if key.text == "<<" {
            merged.push(value);
        } else if pairs.iter().any(|(known, _)| known.text == key.text) {
            return Err(Mistake::new(
                key.line,
                format!("`{}` is set twice", key.text),
            ));
        } else {
            pairs.push((key, value));
        }
    }
    for node in merged.iter().flat_map(|node| match &node.value {
        Value::List(nodes) => nodes.iter().collect(),
        _ => vec![node],
    }) {
        let Value::Map(more) = &node.value else {
            return Err(node.mistake("`<<` needs a mapping"));
        };
        for (key, value) in more {
            if !pairs.iter().any(|(known, _)| known.text == key.text) {
                pairs.push((key.clone(), value.clone()));
            }
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_stay_text() {
        let node = Node::read("a: 1.0\nb: 'on'\nc: ~\nd: 0x10\n").unwrap();
        assert_eq!(
            node.text_pairs().unwrap(),
            [("a", "1.0"), ("b", "on"), ("c", ""), ("d", "0x10")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }

    #[test]
    fn secrets_are_left_out() {
        let text = "a: {url: 'http://x/ä', urls: [b]}\nlist:\n- token: geheim # why\n  name: ü\n- {url: , c: d}\ntoken: |\n  x\n  y\n";
        let expected = "a: {url: http://secret.invalid, urls: [b]}\nlist:\n- token: <secret> # why\n  name: ü\n- {url: , c: d}\ntoken: |\n  <secret>";
        assert_eq!(without(text, &["url", "token"]).trim_end(), expected);
        let nested = "h: {X: {secrets: [a, 'b'], values: [c]}}\nproxy: {Y: [d], Z: [e]}\nf: [g]\n";
        let expected = "h: {X: {secrets: [<secret>, <secret>], values: [c]}}\nproxy: {Y: [<secret>], Z: [<secret>]}\nf: [g]\n";
        assert_eq!(without(nested, &["secrets", "proxy"]), expected);
    }

    #[test]
    fn aliases_and_merges_are_replaced() {
        let text = "base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  y: 3\nsame: *b\n";
        let node = Node::read(text).unwrap();
        let fields = node.fields(&["base", "more", "same"]).unwrap();
        let more = fields.require("more").unwrap().text_pairs().unwrap();
        assert_eq!(
            more,
            [("y", "3"), ("x", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert_eq!(
            fields.require("same").unwrap().text_pairs().unwrap().len(),
            2
        );
    }

    #[test]
    fn errors_name_their_position() {
        for (text, says) in [
            ("a: 1\na: 2\n", "line 2: `a` is set twice"),
            ("a: [1\n", "not YAML"),
            (
                "---\na: 1\n---\nb: 2\n",
                "line 3: a second document begins here",
            ),
            ("b: *nobody\n", "not YAML"),
        ] {
            let message = Node::read(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text:?} gave {message:?}");
        }
        let node = Node::read("a: 1\nintervall: 5m\n").unwrap();
        assert_eq!(
            node.fields(&["a", "interval", "rules"])
                .unwrap_err()
                .in_file("x.yml")
                .to_string(),
            "x.yml, line 2: unknown key `intervall`; did you mean `interval`?"
        );
    }

    #[test]
    fn nested_aliases_are_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..9 {
            let item = format!("*a{}", at - 1);
            text += &format!("a{at}: &a{at} [{}]\n", vec![item; 10].join(", "));
        }
        assert!(
            Node::read(&text)
                .unwrap_err()
                .what
                .contains("nodes once aliases")
        );
    }
}
