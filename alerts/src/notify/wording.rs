//! The words that a receiver's settings ask for, as templates in Alertmanager's language.
//!
//! What they do not say is said in Takt's own words, and so is what a template should have said that cannot be read or
//! run: a mistake in the wording must not keep a fault from being told.

use crate::glob;
use crate::outbox::Row;
use crate::template::{MessageTemplate, MessageTemplates};
use crate::yaml::Node;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Templates by the setting that they stand in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wording {
    shared: Arc<MessageTemplates>,
    parts: BTreeMap<String, MessageTemplate>,
}

/// Reads the files that `templates` names; patterns are relative to `base`.
pub fn shared(patterns: &[String], base: &Path) -> Arc<MessageTemplates> {
    let mut all = MessageTemplates::default();
    for pattern in patterns {
        let found = glob::matching(&base.join(pattern));
        let found = found.inspect_err(|error| tracing::warn!(pattern, %error, "templates cannot be read"));
        for path in found.unwrap_or_default() {
            let added = match std::fs::read_to_string(&path) {
                Ok(text) => all.add(&text).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = added {
                tracing::warn!(file = %path.display(), error, "templates that cannot be used; takt says it in its own words");
            }
        }
    }
    Arc::new(all)
}

impl Wording {
    /// The templates among `settings` that have one of these names.
    pub fn read(shared: &Arc<MessageTemplates>, settings: &Node, names: &[&str]) -> Self {
        let mut wording = Self { shared: Arc::clone(shared), parts: BTreeMap::new() };
        let all = settings.pairs().into_iter().flatten();
        for (name, node) in all.filter(|(name, _)| names.contains(name)) {
            wording.add(name, node);
        }
        wording
    }

    /// Adds a template under a name of its own.
    pub fn add(&mut self, name: &str, node: &Node) {
        let read = node.text().map_err(|error| error.to_string());
        match read.and_then(|text| MessageTemplate::read(text).map_err(|error| error.to_string())) {
            Ok(template) => drop(self.parts.insert(name.to_owned(), template)),
            Err(error) => {
                tracing::warn!(
                    setting = name,
                    line = node.line(),
                    error,
                    "a template that cannot be used; takt says it in its own words"
                );
            }
        }
    }

    /// What the setting says of a row; nothing where it is not set, is empty, or fails.
    pub fn say(&self, name: &str, row: &Row) -> Option<String> {
        let template = self.parts.get(name)?;
        let said = self.shared.run(template, &row.message, row.created_at);
        let said = said.inspect_err(
            |error| tracing::warn!(setting = name, %error, "a template fails; takt says it in its own words"),
        );
        said.ok().filter(|text| !text.trim().is_empty())
    }
}
