//! The reference page of `takt.toml`, made from the structs that read it: their doc lines and their defaults.

use crate::config::Config;
use schemars::schema_for;
use serde_json::{Map, Value};
use std::fmt::Write;

const HEAD: &str = "# Configuration

One TOML file, named with `--config` or `TAKT_CONFIG`. Every key may be left out; an unknown key is an error that names
the nearest one. Secrets are never in this file: they are in files that it names. `takt check-config` prints what is in
force, and `takt check-config --reference` this page.
";

/// The page, in Markdown.
pub fn page() -> String {
    let schema = schema_for!(Config).to_value();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut out = HEAD.to_owned();
    section(&schema, &schema, &defaults, "", &mut out);
    out
}

/// The keys of one table of the file, then the tables in it.
fn section(root: &Value, table: &Value, defaults: &Value, path: &str, out: &mut String) {
    let empty = Map::new();
    let properties = table["properties"].as_object().unwrap_or(&empty);
    let (mut keys, mut tables) = (Vec::new(), Vec::new());
    for (name, property) in properties {
        let (target, is_list) = resolve(root, property);
        match target["properties"].is_object() {
            true => tables.push((name, property, target, is_list)),
            false => keys.push((name, property)),
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
        let defaults = if is_list {
            Value::Null
        } else {
            defaults[name].clone()
        };
        section(root, target, &defaults, &path, out);
    }
}

/// What a property refers to, and whether it is a list of that.
fn resolve<'s>(root: &'s Value, property: &'s Value) -> (&'s Value, bool) {
    if let Some(items) = property.get("items") {
        return (resolve(root, items).0, true);
    }
    // An `Option` of a table: that or null.
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            super::page(),
            "run: takt check-config --reference > docs/configuration.md"
        );
    }
}
