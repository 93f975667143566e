//! A mistake in `takt.toml`: the key and the problem with its value.

use crate::shown::without_secrets;
use std::fmt::Display;

/// A step from a table of the file to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStep {
    /// Name of a key in a table.
    Key(String),
    /// Position in a list, from 0.
    Index(usize),
}

/// A key with an invalid value.
///
/// The check of a table names the key from that table. Its caller adds where the table is, with
/// [`ConfigError::in_section`] or [`ConfigError::in_list`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct ConfigError {
    /// From the file, or from the checked table, to the key.
    path: Vec<KeyStep>,
    /// The key as the message names it, with `: ` at its end; empty for a table as a whole.
    place: String,
    problem: String,
}

impl ConfigError {
    /// Returns the error for `key` with the value `found`. Passwords in addresses are not repeated.
    pub fn new(key: impl Display, expected: impl Display, found: impl Display) -> Self {
        let found = without_secrets(&found.to_string());
        Self::with_problem(key, format!("expected {expected}, found {found}"))
    }

    /// Returns the error for `key`, a path such as `targets[0].address`. The path ends at a comma or
    /// a colon: of several keys (`user, account`), the first is the place of the mistake.
    pub fn with_problem(key: impl Display, problem: impl Display) -> Self {
        let key = key.to_string();

        Self {
            path: steps(&key),
            place: format!("{key}: "),
            problem: problem.to_string(),
        }
    }

    /// Returns the error for the checked table as a whole.
    pub fn of_table(problem: impl Display) -> Self {
        Self {
            path: Vec::new(),
            place: String::new(),
            problem: problem.to_string(),
        }
    }

    /// Adds that the checked table is the section `name`.
    #[must_use]
    pub fn in_section(self, name: &str) -> Self {
        self.within(&format!("{name}: "), [KeyStep::Key(name.to_owned())])
    }

    /// Adds that the checked table is the one at `index` in `list`. `place` is the beginning of the
    /// message.
    #[must_use]
    pub fn in_list(self, place: &str, list: &str, index: usize) -> Self {
        self.within(
            place,
            [KeyStep::Key(list.to_owned()), KeyStep::Index(index)],
        )
    }

    fn within(mut self, place: &str, path: impl IntoIterator<Item = KeyStep>) -> Self {
        self.place.insert_str(0, place);
        self.path.splice(0..0, path);
        self
    }

    /// Returns the steps to the key.
    pub fn path(&self) -> &[KeyStep] {
        &self.path
    }
}

fn steps(path: &str) -> Vec<KeyStep> {
    let path = path.split([',', ':']).next().unwrap_or_default();

    let mut steps = Vec::new();
    for part in path.split('.') {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        steps.push(KeyStep::Key(name.to_owned()));
        let index = index.trim_end_matches(']').parse().ok().map(KeyStep::Index);
        steps.extend(index);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> KeyStep {
        KeyStep::Key(name.to_owned())
    }

    #[test]
    fn an_error_has_the_path_of_its_key_and_the_message() {
        let error = ConfigError::new("targets[1].address", "host:port", "node01");
        let error = error.in_section("scrape");
        let path = [
            key("scrape"),
            key("targets"),
            KeyStep::Index(1),
            key("address"),
        ];
        assert_eq!(error.path(), path);
        assert_eq!(
            error.to_string(),
            "scrape: targets[1].address: expected host:port, found node01"
        );
    }

    #[test]
    fn the_first_of_several_keys_is_the_place() {
        let error = ConfigError::new("user, account", "one of them", "none");

        let error = error.in_list("budgets: ", "budgets", 0);
        assert_eq!(
            error.path(),
            [key("budgets"), KeyStep::Index(0), key("user")]
        );
        assert_eq!(
            error.to_string(),
            "budgets: user, account: expected one of them, found none"
        );
    }

    #[test]
    fn a_table_as_a_whole_has_no_key() {
        let error = ConfigError::of_table("expected a or b, found both").in_section("query");
        assert_eq!(error.path(), [key("query")]);
        assert_eq!(error.to_string(), "query: expected a or b, found both");
    }
}
