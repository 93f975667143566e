//! `takt sql`: one SELECT over the tables.

use super::{ask, print};
use crate::cli::{ListingFormat, Place};
use clap::Args;
use serde_json::{Map, Value};
use std::io::{self, Read};
use takt_questions::SqlQuestion;
use takt_questions::listing::Listing;
use takt_server::{Failure, OrUsage};
use takt_store::sql::Rows;

#[derive(Debug, Args)]
pub struct Sql {
    /// One SELECT statement; - for standard input
    #[arg(allow_hyphen_values = true)]
    pub statement: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, sql: &Sql) -> Result<(), Failure> {
    let mut statement = sql.statement.clone();
    if statement == "-" {
        statement.clear();
        io::stdin().read_to_string(&mut statement).usage()?;
    }
    show(sql.format, &ask(place, &SqlQuestion { statement })?)
}

/// Prints the answer to a statement.
fn show(format: ListingFormat, answer: &Rows) -> Result<(), Failure> {
    let cells = cells(answer);
    show_as(format, &Listing::of(&answer.columns, cells), answer)
}

/// Prints the answer to a statement whose first column has instants, RFC 3339. A narrow table
/// omits `minor` columns.
pub(super) fn show_timed(
    format: ListingFormat,
    answer: &Rows,
    minor: &'static [&'static str],
) -> Result<(), Failure> {
    let listing = Listing::of(&answer.columns, cells(answer))
        .timed()
        .omitting(minor);
    show_as(format, &listing, answer)
}

fn cells(answer: &Rows) -> Vec<Vec<String>> {
    answer
        .rows
        .iter()
        .map(|row| row.iter().map(text).collect())
        .collect()
}

fn show_as(format: ListingFormat, listing: &Listing, answer: &Rows) -> Result<(), Failure> {
    if answer.truncated {
        tracing::warn!(
            rows = answer.rows.len(),
            "the answer was cut at sql.max_rows; add a LIMIT, or raise sql.max_rows"
        );
    }

    // Columns of the same name collapse in JSON, where keys are unique; the table and CSV keep
    // both.
    let values: Vec<Map<String, Value>> = answer
        .rows
        .iter()
        .map(|row| {
            answer
                .columns
                .iter()
                .cloned()
                .zip(row.iter().cloned())
                .collect()
        })
        .collect();

    print(format, listing, &values)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
