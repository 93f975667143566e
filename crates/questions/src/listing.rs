//! Listings: a table of text that is printed as table, CSV or Markdown.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid, presets};
use std::io::{self, Write};
use takt_model::shown::{csv_cell, is_unseen};
use takt_model::words::with_separators;

pub use takt_model::shown::printable;
use unicode_width::UnicodeWidthStr;

/// Narrowest width of a column of texts whose cells are wrapped, in characters.
const TEXT_LEAST: usize = 12;

/// Characters of an instant to the second and to the minute.
const TO_THE_SECOND: usize = 19;
const TO_THE_MINUTE: usize = 16;

/// Spaces beside each column of a table, in characters.
const GAP: usize = 2;

/// Heading of a column and the kind of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Names and states.
    Text(&'static str),
    /// Right-aligned numbers. Tables group their digits: `39,049.2`.
    Number(&'static str),
    /// Right-aligned ids, whose digits are not grouped.
    Id(&'static str),
    /// Instants: RFC 3339 with the cluster's offset from UTC. Tables show them to the second, narrow
    /// ones to the minute.
    Time(&'static str),
}

impl Column {
    /// The heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Id(name) | Self::Time(name) => name,
        }
    }
}

/// Kind of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellKind {
    Text,
    /// Numbers whose digits a table groups.
    Number,
    /// Numbers as they are.
    Digits,
    Time,
    /// Texts that are not wrapped.
    Unbroken,
}

/// Rows of text under headings.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    headings: Vec<(String, CellKind)>,
    rows: Vec<Vec<String>>,
    /// Columns that a narrow table omits, the first ones first.
    minor: &'static [&'static str],
}

impl Listing {
    /// An empty listing.
    pub fn new(columns: &[Column]) -> Self {
        let headings = columns
            .iter()
            .map(|column| {
                let kind = match column {
                    Column::Text(_) => CellKind::Text,
                    Column::Number(_) => CellKind::Number,
                    Column::Id(_) => CellKind::Digits,
                    Column::Time(_) => CellKind::Time,
                };
                (column.name().to_owned(), kind)
            })
            .collect();
        Self {
            headings,
            ..Self::default()
        }
    }

    /// A listing with headings from run time. Columns of numbers are right-aligned, and shown as
    /// they are: they may be ids.
    pub fn of(columns: &[String], rows: Vec<Vec<String>>) -> Self {
        // The cells show the kind: a query in SQL does not say which column is a number.
        let kind = |at: usize| {
            let mut cells = rows
                .iter()
                .map(|row: &Vec<String>| row[at].as_str())
                .filter(|cell| !cell.is_empty())
                .peekable();
            if cells.peek().is_some() && cells.all(|cell| cell.parse::<f64>().is_ok()) {
                CellKind::Digits
            } else {
                CellKind::Text
            }
        };

        let headings = columns
            .iter()
            .enumerate()
            // A query chooses its headings, so they may have control characters.
            .map(|(at, name)| (printable(name), kind(at)))
            .collect();
        Self {
            headings,
            rows,
            minor: &[],
        }
    }

    /// Marks the first column as instants: RFC 3339 with the cluster's offset from UTC.
    pub fn timed(mut self) -> Self {
        if let Some((_, kind)) = self.headings.first_mut() {
            *kind = CellKind::Time;
        }
        self
    }

    /// Keeps each text of the first column on one line.
    pub fn with_unbroken_first(mut self) -> Self {
        if let Some((_, kind)) = self.headings.first_mut() {
            *kind = CellKind::Unbroken;
        }
        self
    }

    /// Names the columns that a narrow table omits, the first ones first.
    pub fn omitting(mut self, minor: &'static [&'static str]) -> Self {
        self.minor = minor;
        self
    }

    /// Adds a row with one cell per column.
    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.headings.len());
        self.rows.push(row);
    }

    /// Writes a table that is at most `width` characters wide. A table that is wider omits empty
    /// and minor columns, names the omitted ones in its last line, and wraps texts. A table whose
    /// columns do not fit at all shows each row as lines of heading and cell.
    pub fn write_table(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let cells = self.cells(TO_THE_SECOND);
        let all: Vec<usize> = (0..self.headings.len()).collect();
        // A table without a limit, or one that fits, is written as it is.
        let Some(width) = width.filter(|width| self.total_width(&all, &cells) > *width) else {
            return self.write_grid(&all, &cells, None, out);
        };

        let cells = self.cells(TO_THE_MINUTE);
        let (columns, omitted) = self.fitting(&cells, width);

        let widths: Vec<usize> = columns.iter().map(|at| self.width(*at, &cells)).collect();
        // Texts can be wrapped to a least width; numbers and times cannot.
        let least = columns.iter().zip(&widths).map(|(at, width)| {
            if self.headings[*at].1 == CellKind::Text {
                TEXT_LEAST.min(*width)
            } else {
                *width
            }
        });

        if least.map(|least| least + GAP).sum::<usize>() > width + 1 {
            return self.write_records(&cells, width, out);
        }

        let is_wide = self.total_width(&columns, &cells) > width;
        self.write_grid(&columns, &cells, is_wide.then_some(width), out)?;
        // The note is a table too, so that it wraps.
        if !omitted.is_empty() {
            let mut note = Self::new(&[Column::Text("")]);
            note.push(vec![format!("Not shown: {}.", omitted.join(", "))]);
            note.write_grid(&[0], &note.rows, Some(width), out)?;
        }
        Ok(())
    }

    /// Returns the columns of a table of this width and the names of the omitted ones.
    fn fitting(&self, cells: &[Vec<String>], width: usize) -> (Vec<usize>, Vec<&str>) {
        let mut columns: Vec<usize> = (0..self.headings.len()).collect();
        let mut omitted = Vec::new();
        let is_wide = |columns: &[usize]| self.total_width(columns, cells) > width;
        // An empty column says nothing, so it goes first and is not named.
        if is_wide(&columns) && !cells.is_empty() {
            columns.retain(|at| cells.iter().any(|row| !row[*at].is_empty()));
        }

        for name in self.minor {
            if !is_wide(&columns) {
                break;
            }
            let before = columns.len();
            columns.retain(|at| self.headings[*at].0 != *name);
            if columns.len() < before {
                omitted.push(*name);
            }
        }
        (columns, omitted)
    }

    /// Returns the width of a column without wrapping, in characters.
    fn width(&self, at: usize, cells: &[Vec<String>]) -> usize {
        cells
            .iter()
            .map(|row| row[at].width())
            .max()
            .unwrap_or(0)
            .max(self.headings[at].0.width())
    }

    /// Returns the width of a table with these columns, in characters.
    fn total_width(&self, columns: &[usize], cells: &[Vec<String>]) -> usize {
        columns
            .iter()
            .map(|at| self.width(*at, cells) + GAP)
            .sum::<usize>()
            // The last column has no gap behind it.
            .saturating_sub(1)
    }

    /// Returns the cells as a table shows them, with this number of characters of an instant.
    fn cells(&self, of_time: usize) -> Vec<Vec<String>> {
        let shown = |(cell, (_, kind)): (&String, &(String, CellKind))| {
            // A name from Slurm may have control characters, which must not reach a terminal.
            let cell = printable(cell);
            match kind {
                CellKind::Time => cell
                    .chars()
                    .take(of_time)
                    .collect::<String>()
                    .replace('T', " "),
                CellKind::Number => with_separators(&cell),
                _ => cell,
            }
        };
        self.rows
            .iter()
            .map(|row| row.iter().zip(&self.headings).map(shown).collect())
            .collect()
    }

    fn write_grid(
        &self,
        columns: &[usize],
        cells: &[Vec<String>],
        width: Option<usize>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut grid = Grid::new();
        grid.load_preset(presets::NOTHING);
        grid.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            // The last column's space is cut off each line.
            let width = u16::try_from(width + 1).unwrap_or(u16::MAX);
            grid.set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }

        grid.set_header(columns.iter().map(|at| self.headings[*at].0.to_uppercase()));
        for row in cells {
            grid.add_row(columns.iter().map(|at| row[*at].as_str()));
        }

        for (shown, at) in columns.iter().enumerate() {
            let Some(column) = grid.column_mut(shown) else {
                continue;
            };
            let kind = self.headings[*at].1;
            if matches!(kind, CellKind::Number | CellKind::Digits) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            // Only texts wrap; a broken number would be two.
            if kind != CellKind::Text {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }

        for line in grid.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes each row as lines of heading and cell, with an empty line between two rows.
    fn write_records(
        &self,
        cells: &[Vec<String>],
        width: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for (number, row) in cells.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }

            let pairs = self.headings.iter().zip(row);
            let mut record = Self::new(&[Column::Text(""), Column::Text("")]);
            for ((name, _), cell) in pairs.filter(|(_, cell)| !cell.is_empty()) {
                record.push(vec![name.to_uppercase(), cell.clone()]);
            }
            // The library writes a header in any case.
            let mut lines = Vec::new();
            record.write_grid(&[0, 1], &record.rows, Some(width), &mut lines)?;
            // The first line is the empty heading.
            let lines = lines
                .splitn(2, |byte| *byte == b'\n')
                .nth(1)
                .unwrap_or_default();
            out.write_all(lines)?;
        }
        Ok(())
    }

    /// Writes CSV (RFC 4180) with a heading; see [`csv_cell`].
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.headings.iter().map(|(name, _)| csv_cell(name)))?;
        for row in &self.rows {
            // Only a number may begin with a minus sign: a spreadsheet takes other such texts for formulas.
            csv.write_record(row.iter().zip(&self.headings).map(|(cell, (_, kind))| {
                let is_number = matches!(kind, CellKind::Number | CellKind::Digits);
                if is_number && cell.parse::<f64>().is_ok() {
                    cell.clone()
                } else {
                    csv_cell(cell)
                }
            }))?;
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
            .map(|(_, kind)| {
                if matches!(kind, CellKind::Number | CellKind::Digits) {
                    "---:"
                } else {
                    "---"
                }
            })
            .collect();

        writeln!(out, "| {} |\n| {} |", names.join(" | "), rules.join(" | "))?;
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&self.headings)
                .map(|(cell, (_, kind))| {
                    if *kind == CellKind::Number {
                        escape_markdown(&with_separators(cell))
                    } else {
                        escape_markdown(cell)
                    }
                })
                .collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
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
            // A line feed would end the row of the table.
            c if is_unseen(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        // A negative number, and a name that is a formula, has a delimiter and an escape sequence.
        let mut listing = Listing::new(&[Column::Text("user"), Column::Number("gpu_hours")]);
        listing.push(vec!["alice".into(), "-1.5".into()]);
        listing.push(vec!["=cmd|'x'\u{1b}[31m".into(), "12345.6".into()]);
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
            text(|listing, out| listing.write_table(None, out)),
            " USER           GPU_HOURS\n alice               -1.5\n =cmd|'x'\u{fffd}[31m   12,345.6\n"
        );
    }

    #[test]
    fn names_are_escaped_in_every_format() {
        assert_eq!(
            text(Listing::write_csv),
            "user,gpu_hours\nalice,-1.5\n'=cmd|'x'\u{fffd}[31m,12345.6\n"
        );
        assert_eq!(
            text(Listing::write_markdown),
            "| user | gpu_hours |\n| --- | ---: |\n| alice | -1.5 |\n| =cmd\\|'x' \\[31m | 12,345.6 |\n"
        );
    }

    /// Jobs as `takt jobs` lists them.
    fn jobs(rows: usize) -> Listing {
        let columns = [
            Column::Text("job_id"),
            Column::Text("name"),
            Column::Text("account"),
            Column::Text("comment"),
            Column::Time("submit"),
            Column::Number("gpus"),
            Column::Text("reason"),
        ];
        let mut listing = Listing::new(&columns).omitting(&["account", "gpus"]);
        for at in 0..rows {
            // A column that is empty in all rows, a time with seconds, and two texts that can be wrapped.
            let cells = [
                &format!("{at}"),
                "a long name of a job that trains",
                "physics",
                "",
                "2026-10-24T14:00:59+02:00",
                "8",
                "ReqNodeNotAvail, reserved for maintenance of the cooling",
            ];
            listing.push(cells.map(str::to_owned).to_vec());
        }
        listing
    }

    fn table(listing: &Listing, width: usize) -> String {
        let mut out = Vec::new();
        listing.write_table(Some(width), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_narrow_table_omits_minor_columns_and_wraps_texts() {
        let listing = jobs(3);
        for width in [200, 120, 80, 60] {
            let text = table(&listing, width);
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(widest <= width, "{width}: {widest}\n{text}");
            // Seconds are cut before columns are.
            assert!(text.contains(" 2026-10-24 14:00"), "{text}");
            assert_eq!(
                text.contains(" 2026-10-24 14:00:59"),
                width == 200,
                "{text}"
            );
        }

        let wide = table(&listing, 200);
        assert!(
            wide.contains("COMMENT") && !wide.contains("Not shown"),
            "{wide}"
        );
        // An empty column is not missed.
        let narrow = table(&listing, 80);
        assert!(
            !narrow.contains("COMMENT") && !narrow.contains("comment"),
            "{narrow}"
        );
        assert!(
            narrow.ends_with("\n Not shown: account, gpus.\n"),
            "{narrow}"
        );
        // Each of the three rows has its whole reason, in several lines.
        let words: Vec<_> = narrow.split_whitespace().collect();
        assert_eq!(words.iter().filter(|word| **word == "cooling").count(), 3);
        assert!(
            table(&jobs(0), 80).contains("COMMENT"),
            "nothing is known to be empty"
        );
    }

    #[test]
    fn a_table_that_cannot_fit_shows_a_line_for_each_cell() {
        let columns: Vec<String> = (0..20).map(|at| format!("column_{at}")).collect();
        let row = |at: usize| {
            (0..20)
                .map(|column| format!("{}", at * 1000 + column))
                .collect()
        };
        let text = table(&Listing::of(&columns, vec![row(1), row(2)]), 80);
        assert!(
            text.starts_with(" COLUMN_0   1000\n COLUMN_1   1001\n"),
            "{text}"
        );
        assert!(
            text.contains(" COLUMN_19  1019\n\n COLUMN_0   2000\n"),
            "{text}"
        );
    }
}
