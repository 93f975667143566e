//! Builds the nodes of a document from the events of the parser, within bounds.

use super::mistake::Mistake;
use super::{Key, Node, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;

/// Maximum number of nodes in a file after its aliases are expanded.
const NODES_MAX: usize = 1_000_000;

/// Maximum depth of nested lists and mappings.
const DEPTH_MAX: usize = 64;

/// A list or mapping whose end has not been read.
struct Open {
    line: usize,
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
}

#[derive(Default)]
pub(super) struct Loader {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

impl Loader {
    pub fn load(mut self, text: &str) -> Result<Node, Mistake> {
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
                    let node =
                        self.anchors.get(&anchor).cloned().ok_or_else(|| {
                            Mistake::new(line, "an alias that stands for nothing")
                        })?;
                    // Counted as often as it is used: the copies take the memory, not the text.
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

        // An empty file is null, which is an empty list or mapping for those who ask for one.
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
        // The tree is walked recursively, and a file of opening brackets would use up the stack.
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
        // Only texts can be keys; a list or mapping as a key is refused.
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

    // After all own pairs, because `<<` may come before the keys that override it.
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
