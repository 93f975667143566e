//! The unsealed samples that a statement needs, from DuckDB's optimized plan of the statement.
//!
//! The optimizer moves conditions down to the scan whose rows they test. A condition on the time
//! directly above a scan of unsealed samples rejects all rows outside its range, whatever the
//! statement does with the others; an inner join with the series of one metric rejects the rows of
//! all other metrics. A scan may leave such rows out. Plans of any other form limit nothing.

use crate::block::metric_hash;
use crate::quoted;
use crate::unsealed::{ALL_TIME, FUNCTION, Needed};
use duckdb::Connection;
use serde_json::Value;
use takt_model::Timestamp;

/// A statement with conditions that limit a scan has one of these words.
const WORDS: [&str; 2] = ["ts", "metric"];

/// Table of the series, in the catalog `hot`.
const SERIES: &str = "series";

/// Returns the samples that a statement needs. `None` if it scans none, or has no plan.
///
/// # Errors
/// If DuckDB cannot plan the statement.
pub(super) fn needed(db: &Connection, sql: &str) -> Result<Option<Needed>, duckdb::Error> {
    let lower = sql.to_ascii_lowercase();
    if !WORDS.iter().any(|word| lower.contains(word)) {
        return Ok(None);
    }
    let question = format!(
        "SELECT json_serialize_plan({}, skip_null := true, skip_empty := true, optimize := true)",
        quoted(sql)
    );
    let plan: String = db.query_row(&question, [], |row| row.get(0))?;
    // A plan that cannot be read limits nothing.
    let plan: Value = serde_json::from_str(&plan).unwrap_or_default();
    let mut scans = Vec::new();
    find_scans(&plan, &mut scans);

    // One answer serves all scans, so it has the samples that any of them needs.
    Ok(scans.into_iter().reduce(Needed::with))
}

/// Finds what each scan below a node needs.
fn find_scans(node: &Value, found: &mut Vec<Needed>) {
    match node {
        _ if is_scan(node) => found.push(Needed {
            range: range(node),
            metrics: None,
        }),
        Value::Array(nodes) => nodes.iter().for_each(|node| find_scans(node, found)),
        Value::Object(fields) => {
            // DuckDB chooses the sides of a join, so the scan may be on either.
            let sides = [(0, "left", 1, "right"), (1, "right", 0, "left")];
            let children = &node["children"];
            for (scan, of_scan, other, of_other) in sides {
                if is_scan(&children[scan])
                    && let Some(metrics) = joined(node, [(scan, of_scan), (other, of_other)])
                {
                    found.push(Needed {
                        range: range(&children[scan]),
                        metrics: Some(metrics),
                    });
                    return find_scans(&children[other], found);
                }
            }
            fields.values().for_each(|node| find_scans(node, found));
        }
        _ => {}
    }
}

/// Whether a node is a scan of unsealed samples, or a projection or filter of one.
fn is_scan(node: &Value) -> bool {
    let get = source(node);
    get["type"] == "LOGICAL_GET" && get["name"] == FUNCTION
}

/// The node below filters and projections.
fn source(mut node: &Value) -> &Value {
    while matches!(
        node["type"].as_str(),
        Some("LOGICAL_FILTER" | "LOGICAL_PROJECTION")
    ) {
        node = &node["children"][0];
    }
    node
}

/// The range of time that the filters of a scan let through.
fn range(mut node: &Value) -> (Timestamp, Timestamp) {
    let mut range = ALL_TIME;
    while matches!(
        node["type"].as_str(),
        Some("LOGICAL_FILTER" | "LOGICAL_PROJECTION")
    ) {
        let child = &node["children"][0];
        if node["type"] == "LOGICAL_FILTER" {
            let columns = columns(child);
            for condition in list(&node["expressions"]) {
                limit(&mut range, condition, &columns);
            }
        }
        node = child;
    }
    range
}

/// Limits a range to the times that satisfy a condition.
fn limit(range: &mut (Timestamp, Timestamp), condition: &Value, columns: &[&str]) {
    let left = &condition["left"];
    let right = &condition["right"];

    let (from, until) = match condition["type"].as_str().unwrap_or_default() {
        "CONJUNCTION_AND" => {
            // All parts of a conjunction hold, so each of them may limit the range.
            let parts = list(&condition["children"]);
            return parts.for_each(|part| limit(range, part, columns));
        }
        "COMPARE_BETWEEN" if is_time(&condition["input"], columns) => {
            (Some(&condition["lower"]), Some(&condition["upper"]))
        }
        comparison if is_time(left, columns) => match comparison {
            "COMPARE_GREATERTHAN" | "COMPARE_GREATERTHANOREQUALTO" => (Some(right), None),
            "COMPARE_LESSTHAN" | "COMPARE_LESSTHANOREQUALTO" => (None, Some(right)),
            "COMPARE_EQUAL" => (Some(right), Some(right)),
            _ => return,
        },
        // The constant is on the left here, so each comparison turns around.
        comparison if is_time(right, columns) => match comparison {
            "COMPARE_GREATERTHAN" | "COMPARE_GREATERTHANOREQUALTO" => (None, Some(left)),
            "COMPARE_LESSTHAN" | "COMPARE_LESSTHANOREQUALTO" => (Some(left), None),
            "COMPARE_EQUAL" => (Some(left), Some(left)),
            _ => return,
        },
        _ => return,
    };

    // A range that is rounded outwards only costs time; a narrower one would lose rows.
    if let Some((from, _)) = from.and_then(instant) {
        range.0 = range.0.max(from);
    }
    if let Some((_, until)) = until.and_then(instant) {
        range.1 = range.1.min(until);
    }
}

/// Whether an expression is the time of a sample.
fn is_time(expression: &Value, columns: &[&str]) -> bool {
    // The views cast `ts` to this type. Any other cast may change the order of times.
    let is_cast = expression["type"] == "OPERATOR_CAST";
    if is_cast && expression["return_type"]["id"] != "TIMESTAMP" {
        return false;
    }
    let column = if is_cast {
        &expression["child"]
    } else {
        expression
    };
    column_of(column, columns) == Some("ts")
}

/// The time of a constant, rounded down and rounded up to milliseconds.
fn instant(expression: &Value) -> Option<(Timestamp, Timestamp)> {
    let value = &expression["value"];
    let number = value["value"].as_i64()?;
    match (expression["type"].as_str()?, value["type"]["id"].as_str()?) {
        ("VALUE_CONSTANT", "TIMESTAMP_MS") => Some((Timestamp(number), Timestamp(number))),
        ("VALUE_CONSTANT", "TIMESTAMP") => {
            let down = number.div_euclid(1000);
            let up = down.saturating_add(1);
            Some((Timestamp(down), Timestamp(up)))
        }
        _ => None,
    }
}

/// The hashes of the metrics to which an inner join with the table of series limits a scan. Takes
/// for the scan and for the other side of the join the index of the child and its name in
/// conditions.
fn joined(
    join: &Value,
    [(scan, of_scan), (other, of_other)]: [(usize, &str); 2],
) -> Option<Vec<i32>> {
    let children = &join["children"];
    let table = source(&children[other]);
    let is_series = table["type"] == "LOGICAL_GET"
        && table["name"] == "seq_scan"
        && table["function_data"]["catalog"] == "hot"
        && table["function_data"]["table"] == SERIES;

    // An outer join keeps rows without a partner, so it rejects none.
    let is_inner = join["type"] == "LOGICAL_COMPARISON_JOIN" && join["join_type"] == "INNER";
    if !is_inner || !is_series {
        return None;
    }

    let columns = [columns(&children[scan]), columns(&children[other])];
    let is_of_series = |condition: &Value| {
        condition["comparison"] == "COMPARE_EQUAL"
            && column_of(&condition[of_scan], &columns[0]) == Some("series")
            && column_of(&condition[of_other], &columns[1]) == Some("id")
    };

    if !list(&join["conditions"]).any(is_of_series) {
        return None;
    }

    let is_metric = |filter: &&Value| {
        let column = filter["key"]
            .as_u64()
            .and_then(|key| usize::try_from(key).ok());
        column.is_some_and(|column| table["names"][column] == "metric")
    };

    let mut filters = list(&table["table_filters"]["filters"]);
    metrics(&filters.find(is_metric)?["value"])
}

/// The hashes of the metrics that a filter of the column `metric` lets through.
fn metrics(filter: &Value) -> Option<Vec<i32>> {
    let hash = |value: &Value| Some(metric_hash(value["value"].as_str()?));
    match filter["filter_type"].as_str()? {
        "CONSTANT_COMPARISON" if filter["comparison_type"] == "COMPARE_EQUAL" => {
            Some(vec![hash(&filter["constant"])?])
        }
        "IN_FILTER" => filter["values"].as_array()?.iter().map(hash).collect(),
        // The statement rejects the same rows if the scan does not.
        "OPTIONAL_FILTER" => metrics(&filter["child_filter"]),
        "CONJUNCTION_AND" => list(&filter["child_filters"]).find_map(metrics),
        _ => None,
    }
}

/// Names of the columns that a node returns; empty for computed ones.
fn columns(node: &Value) -> Vec<&str> {
    let child = || columns(&node["children"][0]);
    match node["type"].as_str() {
        Some("LOGICAL_GET") => {
            let names = list(&node["names"]).map(|name| name.as_str().unwrap_or_default());
            let read = list(&node["column_indexes"]).map(|column| &column["index"]);
            let columns = select(&names.collect::<Vec<_>>(), read);
            // A scan may read columns for its filters only, and then lists those that it returns.
            match list(&node["projection_ids"]).count() {
                0 => columns,
                _ => select(&columns, list(&node["projection_ids"])),
            }
        }
        Some("LOGICAL_FILTER") => match list(&node["projection_map"]).count() {
            0 => child(),
            _ => select(&child(), list(&node["projection_map"])),
        },
        Some("LOGICAL_PROJECTION") => {
            let columns = child();
            list(&node["expressions"])
                .map(|expression| column_of(expression, &columns).unwrap_or_default())
                .collect()
        }
        _ => Vec::new(),
    }
}

fn select<'v, 'n>(columns: &[&'v str], numbers: impl Iterator<Item = &'n Value>) -> Vec<&'v str> {
    let get = |number: &Value| {
        let number = usize::try_from(number.as_u64()?).ok()?;
        columns.get(number).copied()
    };
    numbers
        .map(|number| get(number).unwrap_or_default())
        .collect()
}

/// The column that an expression is. `None` for other expressions.
fn column_of<'v>(expression: &Value, columns: &[&'v str]) -> Option<&'v str> {
    let number = usize::try_from(expression["index"].as_u64()?).ok()?;
    let is_column = expression["type"] == "BOUND_REF";
    is_column.then(|| columns.get(number).copied()).flatten()
}

/// The items of a list; none for other values.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
