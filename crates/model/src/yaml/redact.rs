//! The text of a file without its secrets.

use saphyr_parser::{Event, Parser};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A list or mapping whose end has not been read.
struct OpenNode {
    /// Whether the node belongs to a secret key.
    is_secret: bool,
    /// Number of its anchor; 0 without one.
    anchor: usize,
    next: NextNode,
}

/// The role of the next node in a list or mapping.
enum NextNode {
    Item,
    Key,
    ValueOf(String),
}

/// Start and end of a text in a file, in characters.
type Place = (usize, usize);

/// The node that an alias stands for.
#[derive(Clone, Default)]
struct AnchoredNode {
    /// The values in it, without the keys.
    values: BTreeSet<Place>,
    /// The text of a scalar.
    word: String,
}

/// Replaces every value of these keys in the text of a file by `<secret>`, also within lists and
/// mappings, and where an alias stands for it. URLs are replaced by a URL, so that Alertmanager's tools can still
/// parse the text.
pub fn without(text: &str, keys: &[&str]) -> String {
    let mut secrets: BTreeMap<Place, &str> = BTreeMap::new();
    let mut anchors: HashMap<usize, AnchoredNode> = HashMap::new();
    let mut open: Vec<OpenNode> = Vec::new();

    for event in Parser::new_from_str(text) {
        // Callers pass texts that were read before, so nothing secret follows a syntax error.
        let Ok((event, span)) = event else { break };

        let (node, anchor) = match &event {
            Event::Scalar(word, _, anchor, _) => {
                let place = (span.start.index(), span.end.index());
                let values = Some(place).filter(|_| !word.is_empty());
                let word = word.to_string();
                let values = values.into_iter().collect();
                (AnchoredNode { values, word }, *anchor)
            }
            Event::Alias(anchor) => (anchors.get(anchor).cloned().unwrap_or_default(), 0),
            Event::MappingStart(anchor, _) | Event::SequenceStart(anchor, _) => {
                (AnchoredNode::default(), *anchor)
            }
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                continue;
            }
            _ => continue,
        };

        if anchor != 0 {
            anchors.insert(anchor, node.clone());
        }

        let mut is_secret = open.last().is_some_and(|parent| parent.is_secret);
        let mut is_key = false;
        let mut shown = "<secret>";

        if let Some(parent) = open.last_mut() {
            match &parent.next {
                NextNode::Item => {}
                NextNode::Key => {
                    is_key = true;
                    parent.next = NextNode::ValueOf(node.word.clone());
                }
                NextNode::ValueOf(key) => {
                    is_secret |= keys.contains(&key.as_str());
                    if key == "url" {
                        shown = "http://secret.invalid";
                    }
                    parent.next = NextNode::Key;
                }
            }
        }

        let next = match event {
            Event::MappingStart(..) => NextNode::Key,
            Event::SequenceStart(..) => NextNode::Item,
            _ if is_key => continue,
            _ => {
                // An alias of a list or mapping around this value stands for the value, too.
                for around in open.iter().filter(|around| around.anchor != 0) {
                    let anchored = anchors.entry(around.anchor).or_default();
                    anchored.values.extend(&node.values);
                }
                if is_secret {
                    for place in node.values {
                        secrets.entry(place).or_insert(shown);
                    }
                }
                continue;
            }
        };
        open.push(OpenNode {
            is_secret,
            anchor,
            next,
        });
    }

    // The parser counts positions in characters, not in bytes.
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for ((start, end), shown) in secrets {
        let begin = start + properties(&chars[start..end]);
        out.extend(&chars[at..begin]);
        out.push_str(shown);
        at = end;
    }
    out.extend(&chars[at..]);
    out
}

/// The length of the tag and the anchor in front of a scalar. Aliases still need the anchor.
fn properties(scalar: &[char]) -> usize {
    let mut length = 0;
    // No scalar without quotes begins with these.
    while let Some('&' | '!') = scalar.get(length) {
        let mut rest = scalar[length..].iter();
        let word = rest.by_ref().take_while(|c| !c.is_whitespace()).count();
        let blanks = rest.take_while(|c| c.is_whitespace()).count();
        // The first blank ended the word.
        length = scalar.len().min(length + word + 1 + blanks);
    }
    length
}
