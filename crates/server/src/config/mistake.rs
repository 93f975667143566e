//! Messages about mistakes in `takt.toml`, in the words of its reader instead of the parser's.

use super::values::Mistake;
use std::path::Path;
use takt_model::{ConfigError, KeyStep};
use toml::de::{DeTable, DeValue};

/// Describes a mistake in the file: its line, the key, and for an unknown key the nearest valid one.
pub(super) fn explain(mistake: &Mistake, text: &str, path: &Path) -> anyhow::Error {
    // The parser may point behind the end of a text that breaks off.
    let start = mistake.start.map_or(0, |start| start.min(text.len()));
    let line = text[..start].matches('\n').count() + 1;
    // Messages of the parser have several lines, and a mistake has one.
    let message = mistake.message.lines().collect::<Vec<_>>().join(" ");

    let said = if message.starts_with("unknown field") {
        unknown_key(&message)
    } else if message.starts_with("duplicate key") {
        duplicate_key(text, start)
    } else {
        let key = key_at(text, start).map_or_else(String::new, |key| format!("{key}: "));
        format!("{key}{}", plain(&message).unwrap_or(message))
    };
    anyhow::anyhow!("{}, line {line}: {said}", path.display())
}

/// Names the file, and the line of the key that a failed check of [`super::Config::validate`] names.
pub(super) fn locate(error: &ConfigError, text: &str, path: &Path) -> anyhow::Error {
    let path = path.display();
    match line_of(error.path(), text) {
        Some(line) => anyhow::anyhow!("{path}, line {line}: {error}"),
        None => anyhow::anyhow!("{path}: {error}"),
    }
}

/// Returns the line of a key. A key that is missing has the line of its table; `None` if the file
/// has no such table.
fn line_of(path: &[KeyStep], text: &str) -> Option<usize> {
    let root = DeValue::Table(DeTable::parse(text).ok()?.into_inner());
    let mut value = &root;
    let mut start = None;
    for step in path {
        let found = match (step, value) {
            (KeyStep::Key(name), DeValue::Table(table)) => table
                .iter()
                .find(|(key, _)| key.get_ref() == name)
                .map(|(key, value)| (key.span(), value)),
            (KeyStep::Index(index), DeValue::Array(list)) => {
                list.get(*index).map(|item| (item.span(), item))
            }
            _ => None,
        };
        // A missing key has the place of the table that should contain it.
        let Some((span, inner)) = found else {
            break;
        };
        start = Some(span.start);
        value = inner.get_ref();
    }

    Some(text[..start?].matches('\n').count() + 1)
}

/// Keys outside of all tables. TOML puts a key that follows a table into that table.
const TOP_KEYS: [&str; 3] = ["cluster", "data_dir", "timezone"];

/// Nearness (Jaro-Winkler) from which a known key may be what was meant.
const LEAST_NEARNESS: f64 = 0.75;

fn unknown_key(message: &str) -> String {
    // serde names the key first and the known ones after it, all between backquotes.
    let mut quoted = message.split('`').skip(1).step_by(2);
    let key = quoted.next().unwrap_or_default();
    // Users copy these from Prometheus, where there are dozens.
    if key.ends_with("_sd_configs") {
        return format!(
            "Takt has no {key}; it has static_configs, file_sd_configs, http_sd_configs and \
             slurm_sd_configs"
        );
    }
    if TOP_KEYS.contains(&key) {
        return format!("{key} belongs above the first [table] of the file");
    }

    let known: Vec<&str> = quoted.collect();
    let nearness = |name: &&&str| strsim::jaro_winkler(key, name);
    let nearest = known
        .iter()
        .max_by(|a, b| nearness(a).total_cmp(&nearness(b)))
        .filter(|name| nearness(name) >= LEAST_NEARNESS);

    match nearest {
        Some(near) => format!("unknown key {key}; did you mean {near}?"),
        None if known.is_empty() => format!("unknown key {key}"),
        None => format!("unknown key {key}; the table has {}", known.join(", ")),
    }
}

/// Names the key or table that exists already, and the line where it was first.
fn duplicate_key(text: &str, start: usize) -> String {
    let line = line_at(text, start);
    let is_table = line.starts_with('[');
    let name = if is_table {
        line.split(']')
            .next()
            .unwrap_or_default()
            .trim_start_matches('[')
    } else {
        line.split('=').next().unwrap_or_default()
    };

    let name = name.trim();
    let is_same = |other: &str| {
        let rest = other.trim().strip_prefix(if is_table { "[" } else { "" });
        rest.and_then(|rest| rest.trim_start().strip_prefix(name))
            .is_some_and(|rest| {
                rest.trim_start()
                    .starts_with(if is_table { "]" } else { "=" })
            })
    };
    // The first of two keys is above. Below it, only others can be equal.
    let before = &text[..text[..start].rfind('\n').map_or(0, |at| at + 1)];

    let first = before
        .lines()
        .position(is_same)
        .map_or_else(String::new, |at| format!(" in line {}", at + 1));

    if is_table {
        format!("the table [{name}] exists already{first}; put its keys there")
    } else {
        format!("the key {name} exists already{first}")
    }
}

/// Returns the key of the value at `start`, or else that of its line, if the line sets one.
fn key_at(text: &str, start: usize) -> Option<&str> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    // A table in one line has several keys.
    if let Some(before) = text[..start].trim_end().strip_suffix('=') {
        let before = before.trim_end();
        let key = &before[before.trim_end_matches(is_key).len()..];
        if !key.is_empty() {
            return Some(key);
        }
    }

    let (key, _) = line_at(text, start).split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && key.chars().all(is_key)).then_some(key)
}

fn line_at(text: &str, start: usize) -> &str {
    let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
    text[from..].lines().next().unwrap_or_default()
}

/// Translates what serde says about a value; `None` for other messages.
fn plain(message: &str) -> Option<String> {
    // `[x]` instead of `[[x]]` gives a table where serde expects a list.
    if message.starts_with("invalid type: map, expected a sequence") {
        return Some("expected a list of tables, each under [[…]] instead of […]".to_owned());
    }
    if message.starts_with("invalid type: map, expected a string") {
        let said = "expected a text (a date needs quotes, too), found a table or a bare date";
        return Some(said.to_owned());
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let (found, expected) = rest.split_once("`, expected ")?;
        let expected = expected.trim_start_matches("one of ").replace('`', "");
        return Some(format!("expected one of {expected}, found {found:?}"));
    }
    if let Some(said) = syntax(message) {
        return Some(said.to_owned());
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return Some(format!("the key {} is missing", rest.replace('`', "")));
    }

    let is_value = message.starts_with("invalid value: ");
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.split_once(", expected ")?;
    let expected = match expected {
        "f64" | "f32" => "a number",
        "u64" | "u32" | "usize" if is_value && found.contains('-') => {
            "a whole number of at least 0"
        }
        "u32" if is_value => "a whole number from 0 to 4294967295",
        "u16" if is_value => "a whole number from 0 to 65535",
        "u8" if is_value => "a whole number from 0 to 255",
        "u64" | "u32" | "u16" | "u8" | "usize" | "i64" | "i32" => "a whole number",
        "a boolean" | "bool" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };

    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => ["string ", "integer ", "floating point ", "boolean "]
            .iter()
            .find_map(|kind| other.strip_prefix(kind))
            .unwrap_or(other)
            .replace('`', ""),
    };
    Some(format!("expected {expected}, found {found}"))
}

/// Translates what the parser says about the syntax; `None` for other messages.
fn syntax(message: &str) -> Option<&'static str> {
    let known = [
        (
            "invalid basic string, expected `\"`",
            "the closing quote \" is missing",
        ),
        (
            "invalid literal string, expected `'`",
            "the closing quote ' is missing",
        ),
        ("string values must be quoted", "a text must be in quotes"),
        ("unclosed table", "the closing bracket ] is missing"),
        (
            "unclosed array",
            "the closing bracket ] of a list is missing",
        ),
        ("key with no value", "expected KEY = VALUE"),
    ];
    known
        .iter()
        .find(|(start, _)| message.starts_with(start))
        .map(|(_, said)| *said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_described_without_names_of_types() {
        for (said, expected) in [
            (
                "invalid type: string \"15s\", expected f64",
                "expected a number, found \"15s\"",
            ),
            (
                "invalid type: integer `5`, expected a boolean",
                "expected true or false, found 5",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                "expected a whole number, found 1.5",
            ),
            (
                "invalid value: integer `-1`, expected u64",
                "expected a whole number of at least 0, found -1",
            ),
            (
                "invalid value: integer `65536`, expected u16",
                "expected a whole number from 0 to 65535, found 65536",
            ),
            (
                "invalid type: sequence, expected a string",
                "expected a text in quotes, found a list",
            ),
            (
                "invalid type: string \"x\", expected struct Card",
                "expected a table, found \"x\"",
            ),
        ] {
            assert_eq!(plain(said).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_value_has_its_own_key_in_a_line_of_several() {
        for (text, expected) in [
            (
                "[[scrape.configs]]\njob_name = 'a'\nscrape_interval = \"fast\"\n",
                "takt.toml, line 3: scrape_interval: expected a duration such as 15s or 1m30s, found \"fast\"",
            ),
            (
                "scrape.configs = [{ job_name = 'a', scrape_interval = 'fast' }]\n",
                "takt.toml, line 1: scrape_interval: expected a duration such as 15s or 1m30s, found \"fast\"",
            ),
            (
                "[alerts]\nemail_to = ['a@b.c', 5]\n",
                "takt.toml, line 2: email_to: expected a text in quotes, found 5",
            ),
        ] {
            let error = super::super::Config::parse(text, Path::new("takt.toml")).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn mistakes_of_syntax_are_in_plain_words() {
        for (text, expected) in [
            (
                "cluster = \"x\n",
                "cluster: the closing quote \" is missing",
            ),
            ("cluster = 'x\n", "cluster: the closing quote ' is missing"),
            ("cluster = x\n", "cluster: a text must be in quotes"),
            ("[alerts\nx = 1\n", "the closing bracket ] is missing"),
            (
                "a = [1, 2\n",
                "a: the closing bracket ] of a list is missing",
            ),
            ("cluster\n", "expected KEY = VALUE"),
        ] {
            let error = DeTable::parse(text).unwrap_err();
            let said = explain(&error.into(), text, Path::new("takt.toml")).to_string();
            assert_eq!(said, format!("takt.toml, line 1: {expected}"));
        }
    }

    #[test]
    fn a_mistake_has_the_line_of_its_key_or_else_of_its_table() {
        let text = "cluster = 'x'\n\n[scrape]\ninterval_seconds = 5\n[[scrape.targets]]\n\
                    address = 'a:1'\n[[scrape.targets]]\naddress = 'b'\n";
        for (key, line) in [
            ("cluster", Some(1)),
            ("scrape", Some(3)),
            ("scrape.interval_seconds", Some(4)),
            ("scrape.timeout_seconds", Some(3)),
            ("scrape.targets[0].address", Some(6)),
            ("scrape.targets[1]", Some(7)),
            ("scrape.targets[1].address", Some(8)),
            ("scrape.targets[1].url", Some(7)),
            ("store.retention_days", None),
        ] {
            let error = ConfigError::new(key, "a", "b");
            assert_eq!(line_of(error.path(), text), line, "{key}");
        }
    }

    #[test]
    fn a_duplicate_is_named_with_its_first_line() {
        let said = |text: &str| {
            let error = DeTable::parse(text).unwrap_err();
            explain(&error.into(), text, Path::new("takt.toml")).to_string()
        };
        assert_eq!(
            said("[alerts]\nemail_to = []\n\n[sql]\n[alerts]\nntfy_topic = 'x'\n"),
            "takt.toml, line 5: the table [alerts] exists already in line 1; put its keys there"
        );
        assert_eq!(
            said("cluster = 'a'\ntimezone = 'UTC'\ncluster = 'b'\n"),
            "takt.toml, line 3: the key cluster exists already in line 1"
        );
    }
}
