//! Formats reports. The content is put into blocks once, which a terminal, Markdown and a mail's
//! text print. HTML adds charts; CSV is the main table of a view with exact values; JSON is the
//! report's data.

mod blocks;
mod charts;
mod exact;
mod html;
mod mail;

pub use html::page;
pub use mail::mail_page;

use crate::ReportFormat;
use blocks::Block;
use std::io::{self, Write};
use takt_accounting::sheet::Sheet;
use takt_questions::listing;

/// The subject of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The efficiency of each run.
    Efficiency,
    /// Allocated but unused resources.
    Waste,
    /// The month of the cluster.
    Cluster,
    /// The month of an account.
    Account,
    /// The month of a user.
    User,
}

impl View {
    /// Returns the view for a report by mail.
    pub fn of(sheet: &Sheet) -> Self {
        match sheet.subject.kind() {
            "user" => Self::User,
            "account" => Self::Account,
            _ => Self::Cluster,
        }
    }

    /// Returns the maximum number of listed runs. Formats for programs list all runs.
    pub fn most_runs(self, format: ReportFormat) -> usize {
        match (self, format) {
            (Self::Efficiency | Self::Waste, ReportFormat::Csv | ReportFormat::Json) => usize::MAX,
            (Self::Efficiency, _) => 50,
            _ => 10,
        }
    }
}

/// Writes a report. `width` limits the width of tables, in characters.
pub fn write_sheet(
    sheet: &Sheet,
    view: View,
    format: ReportFormat,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        ReportFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, sheet)?;
            writeln!(out)
        }
        ReportFormat::Csv => exact::exact(sheet, view).write_csv(out),
        ReportFormat::Html => {
            out.write_all(page(sheet, view).map_err(io::Error::other)?.as_bytes())
        }
        ReportFormat::Table => write_blocks(sheet, view, width, out),
        ReportFormat::Md => {
            writeln!(
                out,
                "# {}\n",
                listing::escape_markdown(&blocks::heading(sheet, view))
            )?;

            for block in blocks::blocks(sheet, view) {
                match block {
                    Block::Listing(title, listing) => {
                        writeln!(out, "## {title}\n")?;
                        listing.write_markdown(out)?;
                        writeln!(out)?;
                    }
                    Block::Line(line) => writeln!(out, "{}\n", listing::escape_markdown(&line))?,
                    Block::Code(line) => {
                        // A fence in a line of code would end the block.
                        writeln!(out, "```sh\n{}\n```\n", line.replace("```", ""))?
                    }
                }
            }
            Ok(())
        }
    }
}

/// Width of tables in the text of a mail, in characters.
const MAIL_WIDTH: usize = 78;

/// Returns the report as the text of a mail.
pub fn text(sheet: &Sheet, view: View) -> io::Result<String> {
    let mut out = Vec::new();
    write_blocks(sheet, view, Some(MAIL_WIDTH), &mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn write_blocks(
    sheet: &Sheet,
    view: View,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{}\n",
        listing::printable(&blocks::heading(sheet, view))
    )?;

    for block in blocks::blocks(sheet, view) {
        match block {
            Block::Listing(title, listing) => {
                writeln!(out, "{title}")?;
                listing.write_table(width, out)?;
            }
            Block::Line(line) => writeln!(out, "{}", listing::printable(&line))?,
            Block::Code(line) => writeln!(out, "    {}", listing::printable(&line))?,
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
