//! YAML as written: every scalar as text, every node with its line.
//!
//! Rules and routes are parsed by hand from this tree. An error can then name the file, the line,
//! the rule and the key that was probably meant, and labels such as `severity: 1` or `job: on` stay
//! text. Structs such as a scrape configuration are deserialized from the tree with serde
//! (`de.rs`).

mod de;
mod loader;
mod mistake;
mod redact;

use crate::duration;
pub use de::from_str;
use loader::Loader;
pub use mistake::Mistake;
pub use redact::without;
use std::str::FromStr;
use std::time::Duration;

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

    /// Returns a scalar without quotes as written; `None` for other nodes.
    pub fn plain(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar {
                text,
                quoted: false,
            } => Some(text),
            _ => None,
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
            self.mistake(format!(
                "`{text}` is not a duration such as `90s` or `1h30m`"
            ))
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
    pub fn number<N>(&self) -> Result<N, Mistake>
    where
        N: FromStr,
    {
        let text = self.text()?;
        text.parse()
            .map_err(|_| self.mistake(format!("`{text}` is not a number that fits here")))
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
    pub fn or_default<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Mistake>,
    ) -> Result<T, Mistake>
    where
        T: Default,
    {
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
        // Everything below a secret key is secret, at any depth.
        let nested = "h: {X: {secrets: [a, 'b'], values: [c]}}\nproxy: {Y: [d], Z: [e]}\nf: [g]\n";
        let expected = "h: {X: {secrets: [<secret>, <secret>], values: [c]}}\nproxy: {Y: [<secret>], Z: [<secret>]}\nf: [g]\n";
        assert_eq!(without(nested, &["secrets", "proxy"]), expected);
    }

    #[test]
    fn secrets_behind_aliases_are_left_out() {
        for (text, expected) in [
            // The secret stands where no key is secret.
            (
                "x: &a geheim\ny: {token: *a}\n",
                "x: &a <secret>\ny: {token: *a}\n",
            ),
            (
                "x: &a http://h/geheim\nurl: *a\n",
                "x: &a http://secret.invalid\nurl: *a\n",
            ),
            // In a list and a mapping, and through an alias in them.
            (
                "w: &w geheim\nx: &x [a, {b: c}, *w]\nproxy: {d: *x}\n",
                "w: &w <secret>\nx: &x [<secret>, {b: <secret>}, *w]\nproxy: {d: *x}\n",
            ),
            // The key itself is an alias.
            (
                "x: &k token\ny: {*k : geheim, a: b}\n",
                "x: &k token\ny: {*k : <secret>, a: b}\n",
            ),
            // A key that is a list does not shift what follows.
            (
                "? [a, b]\n: c\ntoken: geheim\n",
                "? [a, b]\n: c\ntoken: <secret>\n",
            ),
        ] {
            assert_eq!(
                without(text, &["url", "token", "proxy"]),
                expected,
                "{text}"
            );
        }
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
        // 10^9 nodes from a text of less than a kilobyte.
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
