//! Decides which statements of users are allowed.
//!
//! DuckDB parses the statement: `json_serialize_sql` converts `SELECT`s into a tree and rejects all
//! other statements. Everything in the tree must be on a list: table functions that read no files
//! (`read_text`, `glob` and `query` are excluded), and schemas of takt. Functions with a result of
//! arbitrary size are limited. The DuckDB instance itself cannot leave the data directory
//! (`store::Database`).

use super::{SqlError, first_line};
use duckdb::Connection;
use serde_json::{Map, Value};

/// Table functions that read only their arguments and the catalog.
const TABLE_FUNCTIONS: &[&str] = &[
    "range",
    "generate_series",
    "unnest",
    "repeat",
    "repeat_row",
    "json_each",
    "json_tree",
    "pg_get_keywords",
    "duckdb_columns",
    "duckdb_functions",
    "duckdb_keywords",
    "duckdb_schemas",
    "duckdb_types",
    "duckdb_views",
    "pragma_table_info",
    "summary",
];

/// Allowed schemas. DuckDB treats a table in any other schema, such as `"/etc/x".csv`, as a file.
const SCHEMAS: &[&str] = &[
    "",
    "memory",
    "main",
    "metrics",
    "pg",
    "information",
    "records",
    "hot",
    "information_schema",
    "pg_catalog",
];

/// DuckDB's table with the number of rows of every table, those of tokens and sessions among them.
const SIZES: &str = "duckdb_tables";

/// DuckDB's and PostgreSQL's table with these numbers. The schema `pg`, which the clients of PostgreSQL's protocol see, has a
/// table of this name that lists views only.
const CLASSES: &str = "pg_class";

/// Functions whose result size is given by an argument, with the index of that argument. DuckDB
/// allocates the result at once and outside its memory limit.
const GROWING: &[(&str, usize)] = &[
    ("array_resize", 1),
    ("bar", 3),
    ("generate_series", 0),
    ("generate_series", 1),
    ("list_resize", 1),
    ("lpad", 1),
    ("range", 0),
    ("range", 1),
    ("repeat", 1),
    ("rpad", 1),
];

/// Maximum value of such an argument.
const GROWTH_LIMIT: i64 = 1_000_000;

/// Functions with side effects or access to the environment.
const EFFECTS: &[&str] = &["getenv", "nextval", "setseed", "write_log"];

/// Rejects everything except one `SELECT` over allowed tables and functions, or an `EXPLAIN` of
/// one.
///
/// With `sees_catalog`, `pg_class` is the table of the schema `pg`, else DuckDB's.
pub(super) fn admit(db: &Connection, sql: &str, sees_catalog: bool) -> Result<(), SqlError> {
    let text: String = db
        .query_row(
            "SELECT json_serialize_sql(?::VARCHAR)",
            [explained(sql)],
            |row| row.get(0),
        )
        .map_err(|error| SqlError::Statement(first_line(&error)))?;
    let tree: Value =
        serde_json::from_str(&text).map_err(|error| SqlError::Statement(error.to_string()))?;
    if tree["error"] == true {
        let message = tree["error_message"].as_str().unwrap_or_default();
        return Err(match tree["error_type"].as_str() {
            Some("not implemented") => {
                SqlError::Refused("only SELECT statements are answered".into())
            }
            _ => SqlError::Statement(format!(
                "Parser Error: {}",
                message.lines().next().unwrap_or_default()
            )),
        });
    }
    match tree["statements"].as_array().map_or(0, Vec::len) {
        1 => admit_tree(&tree)?,
        count => {
            return Err(SqlError::Refused(format!(
                "expected one statement, found {count}"
            )));
        }
    }
    if text.to_lowercase().contains(CLASSES) && !sees_catalog {
        return Err(without_sizes(CLASSES));
    }
    Ok(())
}

fn without_sizes(table: &str) -> SqlError {
    SqlError::Refused(format!(
        "the table {table} is not available here; information_schema.tables lists tables"
    ))
}

/// Returns the statement inside an `EXPLAIN` or `EXPLAIN ANALYZE`; other statements unchanged.
pub(super) fn explained(sql: &str) -> &str {
    let after = |text: &'_ str, word: &str| -> Option<usize> {
        let start = text.len() - text.trim_start().len();
        let end = start + word.len();
        let is_word = text.get(start..end)?.eq_ignore_ascii_case(word);
        (is_word && text[end..].starts_with(char::is_whitespace)).then_some(end)
    };
    let Some(at) = after(sql, "explain") else {
        return sql;
    };
    let rest = &sql[at..];
    after(rest, "analyze").map_or(rest, |at| &rest[at..])
}

fn admit_tree(node: &Value) -> Result<(), SqlError> {
    match node {
        Value::Array(nodes) => nodes.iter().try_for_each(admit_tree),
        Value::Object(fields) => {
            admit_node(fields)?;
            // A call of a table function is a FUNCTION node, too. Its result is a stream, so its
            // size is not limited here.
            let of_table = fields
                .get("type")
                .is_some_and(|kind| kind == "TABLE_FUNCTION");
            let call = of_table.then(|| fields.get("function")).flatten();
            fields.iter().try_for_each(|(name, value)| match call {
                Some(call) if name == "function" => admit_tree(&call["children"]),
                _ => admit_tree(value),
            })
        }
        _ => Ok(()),
    }
}

fn admit_node(fields: &Map<String, Value>) -> Result<(), SqlError> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "TABLE_FUNCTION" => {
            let name = fields["function"]["function_name"]
                .as_str()
                .unwrap_or_default()
                .to_lowercase();
            if TABLE_FUNCTIONS.contains(&name.as_str()) {
                Ok(())
            } else {
                Err(SqlError::Refused(format!(
                    "the function {name} is not available here"
                )))
            }
        }
        // DuckDB reads a table that is named like a file from that file.
        "BASE_TABLE" => {
            let catalog = text("catalog_name");
            let schema = text("schema_name");
            let table = text("table_name");
            let known = |name: &str| SCHEMAS.contains(&name.to_lowercase().as_str());
            if !known(catalog) || !known(schema) {
                let name = [catalog, schema, table]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>();
                return Err(SqlError::Refused(format!(
                    "there is no schema for {}",
                    name.join(".")
                )));
            }
            let is_in_catalog = schema.eq_ignore_ascii_case("pg_catalog");
            if table.eq_ignore_ascii_case(SIZES)
                || is_in_catalog && table.eq_ignore_ascii_case(CLASSES)
            {
                return Err(without_sizes(table));
            }
            if table.contains(['/', '.', '*', '\\', ':']) {
                Err(SqlError::Refused(format!(
                    "{table:?} names a file, not a table"
                )))
            } else {
                Ok(())
            }
        }
        "FUNCTION" => admit_call(&text("function_name").to_lowercase(), &fields["children"]),
        _ => Ok(()),
    }
}

fn admit_call(name: &str, arguments: &Value) -> Result<(), SqlError> {
    if EFFECTS.contains(&name) {
        return Err(SqlError::Refused(format!(
            "the function {name} is not available here"
        )));
    }
    let arguments = arguments.as_array().map_or(&[][..], Vec::as_slice);
    let too_large = match name {
        // The width is part of the format text.
        "printf" | "format" | "fmt" => arguments
            .first()
            .is_some_and(|first| !is_small_format(first)),
        _ => GROWING.iter().any(|(grows, at)| {
            *grows == name && arguments.get(*at).is_some_and(|size| !is_small(size))
        }),
    };
    if too_large {
        Err(SqlError::Refused(format!(
            "{name} is answered for constants up to {GROWTH_LIMIT} only"
        )))
    } else {
        Ok(())
    }
}

/// Returns whether an argument is a small number, or not a number (`range` over timestamps is
/// finite).
fn is_small(argument: &Value) -> bool {
    let value = &argument["value"]["value"];
    match argument["class"].as_str() {
        Some("CONSTANT") => match value {
            Value::Number(number) => number.as_i64().is_some_and(|n| n.abs() <= GROWTH_LIMIT),
            Value::String(text) => text.parse::<f64>().is_err(),
            _ => true,
        },
        Some("CAST") => is_small(&argument["child"]),
        _ => false,
    }
}

/// Returns whether all widths in a format have at most four digits, and none comes from an
/// argument.
fn is_small_format(argument: &Value) -> bool {
    let Some(text) = argument["value"]["value"].as_str() else {
        return false;
    };
    let widest = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max()
        .unwrap_or(0);
    let nested = text
        .split('{')
        .skip(1)
        .any(|spec| !spec.is_empty() && !spec.contains('}'));
    widest <= 4 && !nested && !text.contains('*')
}
