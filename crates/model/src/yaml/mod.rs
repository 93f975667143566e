//! YAML as its author wrote it: every scalar as text, every node with its line.
//!
//! Rules and routes are read by hand from this tree, because a mistake has to name the file, the line, the rule it is in
//! and the key that was probably meant; and because `severity: 1` or `job: on` are labels, and labels are text. What has
//! a struct of its own, such as a scrape configuration, is made of the tree by serde (`de.rs`).

mod de;

pub use de::from_str;

use crate::duration;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// How many nodes one file may grow to when its aliases are replaced by what they stand for.
const NODES_MAX: usize = 1_000_000;

/// How deep lists and mappings may be nested.
const DEPTH_MAX: usize = 64;

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as its reader called it; empty until known.
    pub file: String,
    /// The line, counted from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What surrounds it, outermost first: ``group `gpu` ``, ``rule `GpuHot` ``.
    pub within: Vec<String>,
    /// The mistake.
    pub what: String,
}

impl Mistake {
    /// A mistake on a line; 0 where it is not known yet.
    pub fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line,
            within: Vec::new(),
            what: what.into(),
        }
    }

    /// The same mistake, seen from further out.
    pub fn within(mut self, what: impl Into<String>) -> Self {
        self.within.insert(0, what.into());
        self
    }

    /// The same mistake, now that the file is known.
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
        match self.within.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.within.join(", "), self.what),
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

/// The text of a file with `<secret>` in place of every value of these keys, also within lists and
/// mappings. A URL stays one, so that Alertmanager's tools can still read the text.
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
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (place, shown) in places {
        out.extend(&chars[at..place.start]);
        out.push_str(shown);
        at = place.end;
    }
    out.extend(&chars[at..]);
    out
}

/// One node of a file.
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
    /// Reads a file of one document. An empty file is nothing, as an empty value is.
    ///
    /// # Errors
    /// Where the text is no YAML, or has a key twice, or more than one document.
    pub fn read(text: &str) -> Result<Self, Mistake> {
        Loader::default().load(text)
    }

    /// A mapping with nothing in it.
    pub fn empty() -> Self {
        Self {
            line: 1,
            value: Value::Map(Vec::new()),
        }
    }

    /// This mapping with another text for `key`.
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

    /// The line it begins on, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The value of a key; nothing if this is no mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(pairs) => pairs
                .iter()
                .find(|(known, _)| known.text == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// This mapping without these keys.
    pub fn remove(&mut self, keys: &[&str]) {
        if let Value::Map(pairs) = &mut self.value {
            pairs.retain(|(key, _)| !keys.contains(&key.text.as_str()));
        }
    }

    /// This mapping with a value for `key`, unless it has one.
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

    /// A mistake at this node.
    pub fn mistake(&self, what: impl Into<String>) -> Mistake {
        Mistake::new(self.line, what)
    }

    /// Whether it is `~`, `null` or nothing at all.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The scalar as it was written.
    ///
    /// # Errors
    /// Where it is a list or a mapping.
    pub fn text(&self) -> Result<&str, Mistake> {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => Ok(""),
            Value::Scalar { text, .. } => Ok(text),
            other => Err(self.mistake(format!("expected text, found {}", other.name()))),
        }
    }

    /// The items of a list; nothing counts as an empty list.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn list(&self) -> Result<&[Node], Mistake> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ if self.is_null() => Ok(&[]),
            other => Err(self.mistake(format!("expected a list, found {}", other.name()))),
        }
    }

    /// The texts of a list.
    ///
    /// # Errors
    /// Where it is no list, or an item is no text.
    pub fn texts(&self) -> Result<Vec<String>, Mistake> {
        self.list()?
            .iter()
            .map(|item| item.text().map(str::to_owned))
            .collect()
    }

    /// The keys and values of a mapping whose keys its author chooses; nothing counts as an empty mapping.
    ///
    /// # Errors
    /// Where it is something else.
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

    /// The keys and texts of a mapping.
    ///
    /// # Errors
    /// Where it is no mapping, or a value is no text.
    pub fn text_pairs(&self) -> Result<Vec<(String, String)>, Mistake> {
        self.pairs()?
            .map(|(key, value)| Ok((key.to_owned(), value.text()?.to_owned())))
            .collect()
    }

    /// A mapping whose keys are given by the format.
    ///
    /// # Errors
    /// Where it is no mapping, or has a key that is not `known`: the message names the nearest one.
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

    /// A duration as Prometheus writes it: `1h30m`.
    ///
    /// # Errors
    /// Where it is none.
    pub fn duration(&self) -> Result<Duration, Mistake> {
        let text = self.text()?;
        duration::parse(text).ok_or_else(|| {
            self.mistake(format!("`{text}` is no duration such as `90s` or `1h30m`"))
        })
    }

    /// `true` or `false`, also in YAML 1.1's words for them; but not in quotes, which make it text.
    ///
    /// # Errors
    /// Where it is neither.
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

    /// A number of any type that Rust can read.
    ///
    /// # Errors
    /// Where it is none.
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

/// The message about a key that the format does not have, which names the nearest one that it has.
pub fn unknown_key(key: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .min_by_key(|known| strsim::osa_distance(key, known));
    match nearest {
        Some(nearest) => format!("unknown key `{key}`; did you mean `{nearest}`?"),
        None => format!("unknown key `{key}`"),
    }
}

/// The fields of one mapping, all of them known. A field set to nothing is the same as none.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    line: usize,
    pairs: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    /// The line the mapping begins on.
    pub fn line(&self) -> usize {
        self.line
    }

    /// A field.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.pairs
            .iter()
            .find(|(known, node)| known.text == key && !node.is_null())
            .map(|(_, node)| node)
    }

    /// A field that has to be there.
    ///
    /// # Errors
    /// Where it is not.
    pub fn require(&self, key: &str) -> Result<&'a Node, Mistake> {
        self.get(key)
            .ok_or_else(|| Mistake::new(self.line, format!("`{key}` is missing")))
    }

    /// A field's value as `read` understands it, or the default.
    ///
    /// # Errors
    /// Those of `read`, with the field's name.
    pub fn or_default<T: Default>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Mistake>,
    ) -> Result<T, Mistake> {
        Ok(self.optional(key, read)?.unwrap_or_default())
    }

    /// A field's value as `read` understands it, if the field is there.
    ///
    /// # Errors
    /// Those of `read`, with the field's name.
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

/// The pairs of a mapping; `<<` brings in what the mapping does not say itself.
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
    fn mistakes_say_where() {
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
