//! Decides which statements of users are allowed.
//!
//! DuckDB parses the statement: `json_serialize_sql` converts `SELECT`s into a tree and rejects all
//! other statements. Everything that the tree reads must be on a list: the views that users query
//! ([`VisibleSchemas`]), and table functions of their arguments alone. DuckDB's own catalog shows all
//! tables, those of tokens and sessions among them, and the paths of the data directory; it is not on
//! the list, whatever name a statement has for it. Functions with a result of arbitrary size are
//! limited. The DuckDB instance itself cannot leave the data directory (`store::Database`).

use super::{SqlError, first_line};
use crate::{StoreError, metric_views, quoted};
use duckdb::Connection;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Table functions that read only their arguments, and the list of keywords.
const TABLE_FUNCTIONS: &[&str] = &[
    "range",
    "generate_series",
    "unnest",
    "repeat",
    "repeat_row",
    "json_each",
    "json_tree",
    "pg_get_keywords",
    "duckdb_keywords",
    "summary",
];

/// The catalog of the views that users query.
const CATALOG: &str = "memory";

/// The schema with the views of metrics.
const METRICS: &str = "metrics";

/// The schema with the lists of tables and columns, as in PostgreSQL's `information_schema`.
const INFORMATION: &str = "information";

/// The schema with PostgreSQL's catalog.
const POSTGRES: &str = "pg";

/// Schemas whose views a session sees.
#[derive(Debug, Clone)]
pub(super) struct VisibleSchemas {
    /// Schemas that are searched for a name without a schema, in this order.
    searched: Vec<&'static str>,
}

impl VisibleSchemas {
    /// The tables and the metrics; for clients of PostgreSQL's protocol, its catalog; for admins, the audit log.
    pub(super) fn new(sees_catalog: bool, is_admin: bool) -> Self {
        let admin = is_admin.then_some("admin");
        let catalog = sees_catalog.then_some(POSTGRES);
        let searched = admin.into_iter().chain(["main", METRICS]).chain(catalog);
        Self {
            searched: searched.collect(),
        }
    }

    /// DuckDB's setting for them.
    pub(super) fn search_path(&self) -> String {
        let paths = self
            .searched
            .iter()
            .map(|schema| format!("{CATALOG}.{schema}"));
        paths.collect::<Vec<_>>().join(",")
    }

    fn searches(&self, schema: &str) -> bool {
        self.searched
            .iter()
            .any(|searched| schema.eq_ignore_ascii_case(searched))
    }
}

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

/// Functions with side effects, that only wait, or with access to the environment, settings, sequences or the plans of statements.
const EFFECTS: &[&str] = &[
    "currval",
    "current_setting",
    "get_block_size",
    "getenv",
    "getvariable",
    "json_serialize_plan",
    "nextval",
    "pg_sleep",
    "setseed",
    "stats",
    "write_log",
];

/// Rejects everything except one `SELECT` over visible tables and allowed functions, or an `EXPLAIN` of
/// one.
pub(super) fn admit(db: &Connection, sql: &str, visible: &VisibleSchemas) -> Result<(), SqlError> {
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
        1 => {
            let mut statement = Statement {
                visible,
                tables: Vec::new(),
                subqueries: HashSet::new(),
            };
            statement.admit_tree(&tree)?;
            statement.admit_tables(db)
        }
        count => Err(SqlError::Refused(format!(
            "expected one statement, found {count}"
        ))),
    }
}

/// Returns the statement inside an `EXPLAIN` or `EXPLAIN ANALYZE`; other statements unchanged.
pub(super) fn explained(sql: &str) -> &str {
    let Some(rest) = after_word(sql, "explain") else {
        return sql;
    };
    after_word(rest, "analyze").unwrap_or(rest)
}

/// Rejects `EXPLAIN ANALYZE`, whose plan has the paths of files.
pub(super) fn refuse_analysis(sql: &str) -> Result<(), SqlError> {
    match after_word(sql, "explain").and_then(|rest| after_word(rest, "analyze")) {
        None => Ok(()),
        Some(_) => Err(SqlError::Refused(
            "EXPLAIN ANALYZE names the server's files; EXPLAIN shows the plan".into(),
        )),
    }
}

/// Returns the text after its first word, if that is `word`.
fn after_word<'s>(text: &'s str, word: &str) -> Option<&'s str> {
    let text = text.trim_start();
    let is_word = text.get(..word.len())?.eq_ignore_ascii_case(word);
    let after = &text[word.len()..];
    (is_word && after.starts_with(char::is_whitespace)).then_some(after)
}

/// A statement while it is read.
struct Statement<'s> {
    visible: &'s VisibleSchemas,
    /// Tables that it names.
    tables: Vec<TableName<'s>>,
    /// Names of its subqueries in `WITH`, in lower case.
    subqueries: HashSet<String>,
}

/// The name of a table in a statement.
struct TableName<'s> {
    /// `None`: in the schemas that are searched.
    schema: Option<&'s str>,
    name: &'s str,
}

impl TableName<'_> {
    /// Whether the name may be that of a metric's view.
    fn may_be_metric(&self) -> bool {
        self.schema
            .is_none_or(|schema| schema.eq_ignore_ascii_case(METRICS))
    }
}

/// A view that DuckDB knows.
struct KnownView {
    catalog: String,
    schema: String,
    name: String,
}

impl<'s> Statement<'s> {
    fn admit_tree(&mut self, node: &'s Value) -> Result<(), SqlError> {
        match node {
            Value::Array(nodes) => nodes.iter().try_for_each(|node| self.admit_tree(node)),
            Value::Object(fields) => {
                self.admit_node(fields)?;
                // A call of a table function is a FUNCTION node, too. Its result is a stream, so its
                // size is not limited here.
                let of_table = fields
                    .get("type")
                    .is_some_and(|kind| kind == "TABLE_FUNCTION");
                let call = of_table.then(|| fields.get("function")).flatten();
                fields.iter().try_for_each(|(name, value)| match call {
                    Some(call) if name == "function" => self.admit_tree(&call["children"]),
                    _ => self.admit_tree(value),
                })
            }
            _ => Ok(()),
        }
    }

    fn admit_node(&mut self, fields: &'s Map<String, Value>) -> Result<(), SqlError> {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(subqueries) = fields.get("cte_map").and_then(|map| map["map"].as_array()) {
            let names = subqueries.iter().filter_map(|entry| entry["key"].as_str());
            self.subqueries.extend(names.map(str::to_lowercase));
        }

        match text("type") {
            "TABLE_FUNCTION" => {
                let name = fields["function"]["function_name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_lowercase();
                if TABLE_FUNCTIONS.contains(&name.as_str()) {
                    Ok(())
                } else {
                    Err(no_function(&name))
                }
            }
            "BASE_TABLE" => {
                let parts = [
                    text("catalog_name"),
                    text("schema_name"),
                    text("table_name"),
                ];
                self.tables.push(self.table(parts)?);
                Ok(())
            }
            "SHOW_REF" => match (text("show_type"), text("table_name")) {
                ("DESCRIBE" | "SUMMARY", _) if fields["query"].is_object() => Ok(()),
                // It lists the schemas that are searched.
                ("SHOW_UNQUALIFIED", "\"tables\"") => Ok(()),
                _ => Err(SqlError::Refused(
                    "SHOW TABLES lists tables, DESCRIBE the columns of one".into(),
                )),
            },
            "FUNCTION" => {
                let name = text("function_name").to_lowercase();
                let is_macro = name == "current_setting"
                    && ["", POSTGRES].contains(&text("schema"))
                    && self.visible.searches(POSTGRES);
                if is_macro {
                    return Ok(());
                }
                admit_call(&name, &fields["children"])
            }
            _ => Ok(()),
        }
    }

    fn table(&self, [catalog, schema, name]: [&'s str; 3]) -> Result<TableName<'s>, SqlError> {
        // In `memory.jobs`, the parser takes the catalog for a schema.
        let is_catalog = |part: &str| part.eq_ignore_ascii_case(CATALOG);
        let schema = match (catalog, schema) {
            ("", "") => None,
            ("", schema) if is_catalog(schema) => None,
            (catalog, schema) if catalog.is_empty() || is_catalog(catalog) => Some(schema),
            _ => return Err(no_table(&[catalog, schema, name])),
        };

        let is_known = |schema: &str| {
            self.visible.searches(schema) || schema.eq_ignore_ascii_case(INFORMATION)
        };
        match schema {
            Some(schema) if !is_known(schema) => Err(no_table(&[catalog, schema, name])),
            schema => Ok(TableName { schema, name }),
        }
    }

    /// Rejects tables that are neither visible nor subqueries of the statement.
    fn admit_tables(&self, db: &Connection) -> Result<(), SqlError> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let mut views = known_views(db, &self.tables)?;

        // Not all metrics have views before a statement names them.
        let missing: Vec<&str> = self
            .tables
            .iter()
            .filter(|table| table.may_be_metric() && !self.is_visible(table, &views))
            .map(|table| table.name)
            .collect();
        if !missing.is_empty() && metric_views::add_named(db, &missing)? {
            views = known_views(db, &self.tables)?;
        }

        self.tables
            .iter()
            .try_for_each(|table| self.admit_table(db, table, &views))
    }

    /// Whether a name stands for a view that users query.
    fn is_visible(&self, table: &TableName<'_>, views: &[KnownView]) -> bool {
        views
            .iter()
            .filter(|view| view.catalog == CATALOG && view.name.eq_ignore_ascii_case(table.name))
            .any(|view| match table.schema {
                Some(schema) => view.schema.eq_ignore_ascii_case(schema),
                None => self.visible.searches(&view.schema),
            })
    }

    fn admit_table(
        &self,
        db: &Connection,
        table: &TableName<'_>,
        views: &[KnownView],
    ) -> Result<(), SqlError> {
        let TableName { schema, name } = *table;
        // Elsewhere in the statement, the name of a subquery may stand for DuckDB's own view.
        let is_internal = views
            .iter()
            .any(|view| view.catalog == "system" && view.name.eq_ignore_ascii_case(name));
        let is_subquery = schema.is_none() && self.subqueries.contains(&name.to_lowercase());

        if self.is_visible(table, views) || is_subquery && !is_internal {
            Ok(())
        } else if is_internal {
            Err(no_table(&[schema.unwrap_or_default(), name]))
        } else if name.contains(['/', '.', '*', '\\', ':']) {
            // DuckDB reads a table that is named like a file from that file.
            Err(SqlError::Refused(format!(
                "{name:?} names a file, not a table"
            )))
        } else {
            Err(self.unknown_table(db, name))
        }
    }

    /// The error of an unknown table, in DuckDB's words, with the most similar name of a visible one.
    fn unknown_table(&self, db: &Connection, name: &str) -> SqlError {
        let schemas: Vec<String> = self
            .visible
            .searched
            .iter()
            .map(|name| quoted(name))
            .collect();
        let similar = format!(
            "SELECT view_name FROM duckdb_views()
             WHERE database_name = '{CATALOG}' AND schema_name IN ({})
             ORDER BY jaro_winkler_similarity(lower(view_name), lower({})) DESC LIMIT 1",
            schemas.join(", "),
            quoted(name)
        );
        let similar = db.query_row(&similar, [], |row| row.get::<_, String>(0));
        let advice = similar.map_or_else(
            |_| String::new(),
            |similar| format!(" Did you mean \"{similar}\"?"),
        );
        SqlError::Statement(format!(
            "Catalog Error: Table with name {name} does not exist!{advice}"
        ))
    }
}

/// Returns all views with the names of these tables.
fn known_views(db: &Connection, tables: &[TableName<'_>]) -> Result<Vec<KnownView>, SqlError> {
    let names: Vec<String> = tables
        .iter()
        .map(|table| quoted(&table.name.to_lowercase()))
        .collect();

    let sql = format!(
        "SELECT database_name, schema_name, view_name FROM duckdb_views()
         WHERE lower(view_name) IN ({})",
        names.join(", ")
    );

    let read = || -> duckdb::Result<Vec<KnownView>> {
        let mut statement = db.prepare(&sql)?;
        let views = statement.query_map([], |row| {
            Ok(KnownView {
                catalog: row.get(0)?,
                schema: row.get(1)?,
                name: row.get(2)?,
            })
        })?;
        views.collect()
    };

    read()
        .map_err(StoreError::sql("list the views"))
        .map_err(SqlError::from)
}

fn no_table(parts: &[&str]) -> SqlError {
    let named: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    SqlError::Refused(format!(
        "the table {} is not available here; SHOW TABLES lists tables, information.columns their columns",
        named.join(".")
    ))
}

fn no_function(name: &str) -> SqlError {
    SqlError::Refused(format!("the function {name} is not available here"))
}

fn admit_call(name: &str, arguments: &Value) -> Result<(), SqlError> {
    // Columns are in UTC; DuckDB would take them for times on the zone's clocks. Not all builds know the zones.
    if name == "timezone" {
        return Err(SqlError::Refused(
            "conversion to a time zone works for literal times and names such as Europe/Oslo only; \
             local_time(cluster, ts) gives the time on the cluster's clocks, and the table days its days"
                .into(),
        ));
    }

    if EFFECTS.contains(&name) {
        return Err(no_function(name));
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
