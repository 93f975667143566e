//! Listings: a table of text that is printed as table, CSV or Markdown.

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, presets};
use std::io::{self, Write};

/// Heading of a column and the alignment of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Names, states, times.
    Text(&'static str),
    /// Right-aligned numbers, formatted by Takt.
    Number(&'static str),
}

impl Column {
    /// The heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) => name,
        }
    }
}

/// Rows of text under headings.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    headings: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Listing {
    /// An empty listing.
    pub fn new(columns: &[Column]) -> Self {
        let headings = columns.iter().map(|column| {
            (
                column.name().to_owned(),
                matches!(column, Column::Number(_)),
            )
        });
        Self {
            headings: headings.collect(),
            rows: Vec::new(),
        }
    }

    /// A listing with headings from run time. Columns of numbers are right-aligned.
    pub fn of(columns: &[String], rows: Vec<Vec<String>>) -> Self {
        let is_number = |at: usize| {
            let mut cells = rows
                .iter()
                .map(|row: &Vec<String>| row[at].as_str())
                .filter(|cell| !cell.is_empty())
                .peekable();
            cells.peek().is_some() && cells.all(|cell| cell.parse::<f64>().is_ok())
        };
        let headings = columns
            .iter()
            .enumerate()
            .map(|(at, name)| (name.clone(), is_number(at)))
            .collect();
        Self { headings, rows }
    }

    /// Adds a row with one cell per column.
    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.headings.len());
        self.rows.push(row);
    }

    /// A table for a terminal.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new();
        grid.load_preset(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        grid.set_header(self.headings.iter().map(|(name, _)| name.to_uppercase()));
        for row in &self.rows {
            grid.add_row(row.iter().map(|cell| printable(cell)));
        }
        for (at, (_, is_number)) in self.headings.iter().enumerate() {
            if let (true, Some(column)) = (is_number, grid.column_mut(at)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in grid.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes CSV (RFC 4180) with a heading. A cell that a spreadsheet would run as a formula gets
    /// a `'` in front. Control characters except tab and line feed are replaced, because CSV is
    /// read in terminals too.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.headings.iter().map(|(name, _)| plain(name)))?;
        for row in &self.rows {
            csv.write_record(
                row.iter()
                    .zip(&self.headings)
                    .map(|(cell, (_, is_number))| {
                        if *is_number {
                            cell.clone()
                        } else {
                            plain(&without_formula(cell))
                        }
                    }),
            )?;
        }
        csv.flush()
    }

    /// A Markdown table.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<&str> = self
            .headings
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let rules: Vec<&str> = self
            .headings
            .iter()
            .map(|(_, is_number)| if *is_number { "---:" } else { "---" })
            .collect();
        writeln!(out, "| {} |\n| {} |", names.join(" | "), rules.join(" | "))?;
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape_markdown(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

/// Text without control characters, which must not reach the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Text without control characters except tab and line feed.
fn plain(text: &str) -> String {
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n');
    text.replace(is_control, "\u{fffd}")
}

fn without_formula(cell: &str) -> String {
    // A single dash is an empty value, and no formula.
    if cell != "-" && cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{cell}")
    } else {
        cell.to_owned()
    }
}

/// Text with Markdown's special characters escaped, on one line.
pub fn escape_markdown(cell: &str) -> String {
    let mut out = String::with_capacity(cell.len());
    for c in cell.chars() {
        match c {
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '<' | '>' | '#' | '&' => {
                out.extend(['\\', c])
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        let mut listing = Listing::new(&[Column::Text("user"), Column::Number("gpu_hours")]);
        listing.push(vec!["alice".into(), "-1.5".into()]);
        listing.push(vec!["=cmd|'x'\u{1b}[31m".into(), "20".into()]);
        listing
    }

    fn text(write: impl Fn(&Listing, &mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&listing(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_stands_straight_and_shows_no_control_characters() {
        assert_eq!(
            text(Listing::write_table),
            " USER           GPU_HOURS\n alice               -1.5\n =cmd|'x'\u{fffd}[31m         20\n"
        );
    }

    #[test]
    fn names_are_escaped_in_every_format() {
        assert_eq!(
            text(Listing::write_csv),
            "user,gpu_hours\nalice,-1.5\n'=cmd|'x'\u{fffd}[31m,20\n"
        );
        assert_eq!(plain("a\tb\nc\rd\u{9b}1m"), "a\tb\nc\u{fffd}d\u{fffd}1m");
        assert_eq!(
            ["-", "-1", "+x", "@x", "a-b"].map(without_formula),
            ["-", "'-1", "'+x", "'@x", "a-b"]
        );
        assert_eq!(
            text(Listing::write_markdown),
            "| user | gpu_hours |\n| --- | ---: |\n| alice | -1.5 |\n| =cmd\\|'x' \\[31m | 20 |\n"
        );
    }
}
