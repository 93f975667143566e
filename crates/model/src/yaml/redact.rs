//! The text of a file without its secrets.

use saphyr_parser::{Event, Parser};

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
        // Callers pass texts that were read before, so nothing secret follows a syntax error.
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

    // The parser counts positions in characters, not in bytes.
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
