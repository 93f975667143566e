//! Tables: rows that a page, a CSV file and a JSON file show alike.

use super::{PageError, Visit};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::io;
use takt_model::UnixTime;
use takt_model::words;
use takt_questions::listing::Listing;

/// Rows that a page shows without a `limit` in its address.
const USUAL_LIMIT: usize = 200;

/// Largest `limit` of a page. CSV and JSON have all rows.
const MAX_LIMIT: usize = 2000;

/// A column.
#[derive(Debug, Clone, Serialize)]
pub struct Column {
    /// Name in CSV, in JSON and in `?sort=`.
    pub key: Cow<'static, str>,
    /// Heading on the page.
    pub heading: Cow<'static, str>,
    /// Unit of the numbers, in the heading; empty without one.
    pub unit: &'static str,
    /// Whether the cells are right-aligned numbers.
    pub is_number: bool,
    /// Whether a narrow screen leaves the column out.
    pub is_minor: bool,
    /// Whether the column is a picture, which files leave out.
    pub is_picture: bool,
}

impl Column {
    /// A column of text.
    pub const fn text(key: &'static str, heading: &'static str) -> Self {
        Self {
            key: Cow::Borrowed(key),
            heading: Cow::Borrowed(heading),
            unit: "",
            is_number: false,
            is_minor: false,
            is_picture: false,
        }
    }

    /// A column of numbers.
    pub const fn number(key: &'static str, heading: &'static str) -> Self {
        let mut column = Self::text(key, heading);
        column.is_number = true;
        column
    }

    /// A column with a name from run time.
    pub fn named(name: String, is_number: bool) -> Self {
        Self {
            key: name.clone().into(),
            heading: name.into(),
            is_number,
            ..Self::text("", "")
        }
    }

    /// A column of pictures, which CSV and JSON leave out.
    pub const fn picture(key: &'static str, heading: &'static str) -> Self {
        let mut column = Self::text(key, heading);
        column.is_picture = true;
        column
    }

    /// Adds the unit.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Leaves the column out on narrow screens.
    pub const fn minor(mut self) -> Self {
        self.is_minor = true;
        self
    }
}

/// A cell: its text on the page and its exact value.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cell {
    /// Text on the page.
    pub text: String,
    /// Address of the page behind the cell.
    pub href: Option<String>,
    /// CSS class; the text says the same.
    pub class: &'static str,
    /// A picture as SVG, instead of the text.
    pub picture: Option<String>,
    /// UTC seconds of a cell that is a time.
    pub time: Option<UnixTime>,
    /// Exact value for CSV, JSON and sorting; null if unknown.
    #[serde(skip)]
    pub value: Value,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            // A text that is empty is unknown, in CSV an empty cell.
            value: if text.is_empty() {
                Value::Null
            } else {
                text.clone().into()
            },
            text,
            ..Self::default()
        }
    }

    /// A number: its exact value and its text. `None` is unknown, which is not zero.
    pub fn number(value: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        match value {
            None => Self::unknown(),
            Some(value) => Self {
                text: write(value),
                value: value.into(),
                ..Self::default()
            },
        }
    }

    /// A whole number.
    pub fn count(value: u64) -> Self {
        Self {
            text: words::count(value),
            value: value.into(),
            ..Self::default()
        }
    }

    /// A time; the page shows it in the cluster's zone.
    pub fn time(at: Option<UnixTime>) -> Self {
        let Some(at) = at else {
            return Self::unknown();
        };
        // A time beyond the years of dates is shown as 1970.
        let instant = jiff::Timestamp::try_from(at).unwrap_or_default();
        Self {
            time: Some(at),
            value: instant.to_string().into(),
            ..Self::default()
        }
    }

    /// A text and the exact value behind it.
    pub fn exact(text: impl Into<String>, value: Value) -> Self {
        Self {
            text: text.into(),
            value,
            ..Self::default()
        }
    }

    /// A picture, as SVG.
    pub fn picture(svg: String) -> Self {
        Self {
            picture: Some(svg),
            ..Self::default()
        }
    }

    /// An unknown value.
    pub fn unknown() -> Self {
        Self {
            text: "–".to_owned(),
            ..Self::default()
        }
    }

    /// Adds a link to the page behind the cell.
    pub fn link(self, href: impl Into<String>) -> Self {
        Self {
            href: Some(href.into()),
            ..self
        }
    }

    /// Adds a CSS class.
    pub fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    id: &'static str,
    caption: String,
    columns: Vec<Heading>,
    rows: Vec<Vec<Cell>>,
    /// Number of rows on the page.
    shown: usize,
    total: usize,
    /// Address of the page with all rows that it can show; empty if all are shown.
    more: String,
    csv: String,
    json: String,
}

/// A heading with its link for sorting.
#[derive(Debug, Clone, Serialize)]
struct Heading {
    #[serde(flatten)]
    column: Column,
    href: String,
    /// `ascending`, `descending`, or `none`.
    order: &'static str,
}

impl Table {
    /// A table whose rows are sorted as `?sort=` asks: by a column's key, with `-` in front from
    /// the greatest to the least. Without it, the rows keep the order in which they are given.
    ///
    /// # Errors
    /// If `sort` names no column, or `limit` is not a number.
    pub fn new(
        visit: &Visit,
        id: &'static str,
        caption: impl Into<String>,
        columns: Vec<Column>,
        mut rows: Vec<Vec<Cell>>,
    ) -> Result<Self, PageError> {
        let asked = visit.get("sort").unwrap_or_default();
        let (key, is_descending) = match asked.strip_prefix('-') {
            Some(key) => (key, true),
            None => (asked, false),
        };

        if !key.is_empty() {
            // The key comes from the address, so an unknown one is a mistake that is shown.
            let at = columns
                .iter()
                .position(|column| column.key == key)
                .ok_or_else(|| {
                    let known: Vec<&str> = columns.iter().map(|column| &*column.key).collect();
                    PageError::wrong(format!(
                        "The table has no column '{key}'. Its columns: {}.",
                        known.join(", ")
                    ))
                    .next(
                        &visit.address(&[("sort", "")]),
                        "The table in its usual order",
                    )
                })?;
            rows.sort_by(|a, b| order(&a[at].value, &b[at].value, is_descending));
        }

        let limit = visit.number("limit")?.unwrap_or(USUAL_LIMIT).min(MAX_LIMIT);
        let total = rows.len();
        let shown = total.min(limit);

        let headings = columns.into_iter().map(|column| {
            let is_sorted = column.key == key;
            // Numbers are sorted from the greatest first: that is where one looks.
            let next = match (is_sorted, is_descending) {
                (true, true) => column.key.to_string(),
                (false, _) if !column.is_number => column.key.to_string(),
                _ => format!("-{}", column.key),
            };
            Heading {
                href: visit.address(&[("sort", &next)]),
                order: match (is_sorted, is_descending) {
                    (false, _) => "none",
                    (true, false) => "ascending",
                    (true, true) => "descending",
                },
                column,
            }
        });
        Ok(Self {
            id,
            caption: caption.into(),
            columns: headings.collect(),
            rows,
            shown,
            total,
            // At the highest limit a longer page cannot be had; CSV has all rows.
            more: if shown < total && limit < MAX_LIMIT {
                visit.address(&[("limit", &total.min(MAX_LIMIT).to_string())])
            } else {
                String::new()
            },
            csv: visit.address_as(".csv"),
            json: visit.address_as(".json"),
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The table for the template: only the rows of the page.
    pub(super) fn on_page(&self) -> Self {
        // The rows behind the limit are not given to the template, which would copy them.
        let mut page = self.clone();
        page.rows.truncate(page.shown);
        page
    }

    /// All rows as CSV.
    pub(super) fn csv(&self) -> io::Result<Vec<u8>> {
        let kept = || {
            self.columns
                .iter()
                .enumerate()
                .filter(|(_, heading)| !heading.column.is_picture)
        };

        let names: Vec<String> = kept()
            .map(|(_, heading)| heading.column.key.to_string())
            .collect();
        // Unknown is an empty cell; texts have no quotes as in JSON.
        let cell = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let rows = self
            .rows
            .iter()
            .map(|row| kept().map(|(at, _)| cell(&row[at].value)).collect());
        let mut out = Vec::new();
        // The listing escapes cells that a spreadsheet would take for formulas.
        Listing::of(&names, rows.collect()).write_csv(&mut out)?;
        Ok(out)
    }

    /// All rows as JSON: an array of objects.
    pub(super) fn json(&self) -> Value {
        self.rows
            .iter()
            .map(|row| {
                let object = self
                    .columns
                    .iter()
                    .zip(row)
                    .filter(|(heading, _)| !heading.column.is_picture)
                    .map(|(heading, cell)| (heading.column.key.to_string(), cell.value.clone()))
                    .collect();
                Value::Object(object)
            })
            .collect()
    }
}

/// Order of two values; unknown values come last in both directions.
fn order(a: &Value, b: &Value, is_descending: bool) -> Ordering {
    let known = match (a, b) {
        (Value::Null, Value::Null) => return Ordering::Equal,
        (Value::Null, _) => return Ordering::Greater,
        (_, Value::Null) => return Ordering::Less,
        (Value::Number(a), Value::Number(b)) => {
            let number = |value: &serde_json::Number| value.as_f64().unwrap_or(f64::NAN);
            number(a).total_cmp(&number(b))
        }
        (Value::String(a), Value::String(b)) => natural(a, b),
        (a, b) => a.to_string().cmp(&b.to_string()),
    };

    if is_descending {
        known.reverse()
    } else {
        known
    }
}

/// Order of names in which `gpu2` comes before `gpu10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(String, u64)> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let letters = rest
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(letters);
            let digits = after
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(after.len());
            let (number, after) = after.split_at(digits);
            // Numbers beyond 64 bits are equal here, and compared as text then.
            parts.push((word.to_lowercase(), number.parse().unwrap_or(u64::MAX)));
            rest = after;
        }
        parts
    };
    // Names that differ only in case or zeros still have an order.
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["gpu10", "gpu2", "Gpu1", "cpu", "gpu2-a"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["cpu", "Gpu1", "gpu2", "gpu2-a", "gpu10"]);
    }

    #[test]
    fn unknown_values_come_last_in_both_directions() {
        for is_descending in [false, true] {
            let mut values = [Value::Null, 2.into(), 10.into()];
            // As text, 10 would come before 2.
            values.sort_by(|a, b| order(a, b, is_descending));
            assert_eq!(values[2], Value::Null);
            assert_eq!(values[0] == 10, is_descending);
        }
    }
}
