//! The committed boards: their panels and the queries of each.

use serde_json::Value;
use std::cmp::Reverse;
use std::fs;
use std::path::Path;

/// Folder of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A committed board.
pub struct Board {
    /// File name without `.json`.
    pub name: String,
    pub json: Value,
}

/// How a query is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PromQL over a range.
    Range,
    /// PromQL at the end of the range.
    Instant,
    Sql,
}

/// One query of a panel, an annotation or a variable.
#[derive(Debug, Clone)]
pub struct Query {
    /// Board and panel, for messages.
    pub place: String,
    pub kind: Kind,
    /// As in the file, with Grafana's variables and macros.
    pub text: String,
    pub legend: String,
}

/// All boards, by name.
pub fn boards() -> Vec<Board> {
    let folder = repository().join("dashboards/grafana");
    let mut boards: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            Board {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                json: serde_json::from_str(&text).unwrap(),
            }
        })
        .collect();
    boards.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(boards.len() >= 16, "only {} boards", boards.len());
    boards
}

impl Board {
    /// Panels that show something, without the headings between them.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        list(&self.json["panels"]).filter(|panel| panel["type"] != "row")
    }

    pub fn variables(&self) -> impl Iterator<Item = &Value> {
        list(&self.json["templating"]["list"])
    }

    /// Queries of panels.
    pub fn panel_queries(&self) -> Vec<Query> {
        self.panels()
            .flat_map(|panel| {
                let title = text(&panel["title"]);
                list(&panel["targets"]).map(move |target| self.query(title, target))
            })
            .collect()
    }

    /// Queries of annotations, all PromQL.
    pub fn annotation_queries(&self) -> Vec<Query> {
        list(&self.json["annotations"]["list"])
            .map(|annotation| self.query(text(&annotation["name"]), annotation))
            .collect()
    }

    /// Queries in SQL that fill variables.
    pub fn variable_statements(&self) -> Vec<Query> {
        self.variables()
            .filter(|variable| variable["type"] == "query" && variable["query"].is_string())
            .map(|variable| Query {
                place: format!("{}: ${}", self.name, text(&variable["name"])),
                kind: Kind::Sql,
                text: text(&variable["query"]).to_owned(),
                legend: String::new(),
            })
            .collect()
    }

    /// PromQL of variables: the inside of `label_values` and `query_result`.
    pub fn variable_queries(&self) -> Vec<Query> {
        self.variables()
            .filter_map(|variable| Some((variable, variable["query"]["query"].as_str()?)))
            .map(|(variable, call)| {
                let (function, inside) = call.strip_suffix(')').unwrap().split_once('(').unwrap();
                let promql = if function == "label_values" {
                    inside.rsplit_once(',').unwrap().0.to_owned()
                } else {
                    inside.to_owned()
                };
                Query {
                    place: format!("{}: ${}", self.name, text(&variable["name"])),
                    kind: Kind::Instant,
                    text: promql,
                    legend: String::new(),
                }
            })
            .collect()
    }

    fn query(&self, title: &str, target: &Value) -> Query {
        let (kind, query) = if let Some(sql) = target["rawSql"].as_str() {
            (Kind::Sql, sql)
        } else if target["instant"] == true {
            (Kind::Instant, text(&target["expr"]))
        } else {
            (Kind::Range, text(&target["expr"]))
        };
        Query {
            place: format!("{}: {title}", self.name),
            kind,
            text: query.to_owned(),
            legend: target["legendFormat"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

impl Query {
    /// The query as Grafana sends it, with these values of variables.
    pub fn sent(&self, values: &[(&str, &str)]) -> String {
        // `$__interval_ms` begins with the name of another variable.
        let mut values = values.to_vec();
        values.sort_by_key(|(name, _)| Reverse(name.len()));
        let mut sent = self.text.clone();
        for (name, value) in values {
            sent = sent
                .replace(&format!("${{{name}:regex}}"), value)
                .replace(&format!("${name}"), value);
        }
        sent
    }

    pub fn is_promql(&self) -> bool {
        self.kind != Kind::Sql
    }
}

/// Names of the metrics that a PromQL expression reads.
pub fn metrics(promql: &str) -> Vec<String> {
    let mut outside = String::new();

    // Texts in quotes are values of labels.
    for (i, part) in promql.split('"').enumerate() {
        outside.push_str(if i % 2 == 0 { part } else { " " });
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    outside
        .split(|c| !is_name(c))
        .filter(|word| {
            ["takt_", "node_", "scrape_", "prometheus_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
                || ["up", "ALERTS"].contains(word)
        })
        .map(str::to_owned)
        .collect()
}

/// A JSON text, or an empty one.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Elements of a JSON list, or none.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
