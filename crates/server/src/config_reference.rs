//! The reference page of `takt.toml`, generated from the configuration structs: their doc comments
//! and defaults.

use crate::config::Config;
use schemars::schema_for;
use serde_json::{Map, Value};
use std::fmt::Write;

const HEAD: &str = "# Configuration

Takt reads one TOML file, given with `--config` or `TAKT_CONFIG`. Every key is optional. An unknown key is an error that
names the nearest key. Secrets do not go into this file: keys that end in `_file` name files that contain them.
`takt check-config` prints the effective configuration, `takt check-config --reference` prints this page.
";

/// Returns the page in Markdown.
pub fn page() -> String {
    let schema = schema_for!(Config).to_value();

    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut out = HEAD.to_owned();
    section(&schema, &schema, &defaults, "", &mut out);
    out
}

/// Appends the keys of one table, then its nested tables.
fn section(root: &Value, table: &Value, defaults: &Value, path: &str, out: &mut String) {
    let empty = Map::new();
    let properties = table["properties"].as_object().unwrap_or(&empty);
    let mut keys = Vec::new();
    let mut tables = Vec::new();

    for (name, property) in properties {
        let (target, is_list) = resolve(root, property);
        if target["properties"].is_object() {
            tables.push((name, property, target, is_list))
        } else {
            keys.push((name, property))
        }
    }

    if !keys.is_empty() {
        out.push_str("\n| key | default | meaning |\n| --- | --- | --- |\n");
        for (name, property) in keys {
            let default = match Some(&defaults[name])
                .filter(|value| !value.is_null())
                .unwrap_or(&property["default"])
            {
                Value::Null => "–".to_owned(),
                value => format!("`{value}`"),
            };
            let _ = writeln!(
                out,
                "| `{name}` | {default} | {} |",
                one_line(&property["description"]).replace('|', "\\|")
            );
        }
    }

    for (name, property, target, is_list) in tables {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let heading = if is_list {
            format!("[[{path}]]")
        } else {
            format!("[{path}]")
        };
        let _ = write!(
            out,
            "\n## `{heading}`\n\n{}\n",
            one_line(&property["description"])
        );
        // Entries of a list have no defaults of the list itself.
        let defaults = if is_list {
            Value::Null
        } else {
            defaults[name].clone()
        };
        section(root, target, &defaults, &path, out);
    }
}

/// Follows a property's reference. Returns the target and whether the property is a list of it.
fn resolve<'s>(root: &'s Value, property: &'s Value) -> (&'s Value, bool) {
    if let Some(items) = property.get("items") {
        return (resolve(root, items).0, true);
    }
    // An `Option` of a table is written as "this table or null".
    if let Some(table) = property["anyOf"].get(0) {
        return resolve(root, table);
    }
    match property["$ref"]
        .as_str()
        .and_then(|path| root.pointer(path.trim_start_matches('#')))
    {
        Some(target) => (target, false),
        None => (property, false),
    }
}

fn one_line(text: &Value) -> String {
    text.as_str()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            super::page(),
            "run: takt check-config --reference > docs/configuration.md"
        );
    }
}
