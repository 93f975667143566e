//! `takt import sacct` and `takt import jobcomp`.

use super::print;
use crate::cli::{ImportFrom, ImportSacct, OnShift, Place};
use crate::place;
use crate::source::{Missing, Source};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_server::Failure;
use takt_server::answers::{ImportFormat, ImportQuestion};
use takt_server::listing::{Column, Listing};
use takt_store::{ImportSummary, Shifted};

/// Imports the output of `sacct -P`.
pub fn sacct(place: &Place, asked: &ImportSacct) -> Result<(), Failure> {
    let columns = (!asked.columns.is_empty()).then(|| asked.columns.join("|"));
    import(place, &asked.from, ImportFormat::Sacct, columns)
}

/// Imports the file of jobcomp/filetxt.
pub fn jobcomp(place: &Place, asked: &ImportFrom) -> Result<(), Failure> {
    import(place, asked, ImportFormat::Jobcomp, None)
}

fn import(
    place: &Place,
    asked: &ImportFrom,
    format: ImportFormat,
    columns: Option<String>,
) -> Result<(), Failure> {
    let (config, at) = place::find(place)?;
    let question = ImportQuestion {
        format,
        name: asked.file.display().to_string(),
        cluster: asked.cluster.clone().or_else(|| config.cluster.clone()),
        timezone: asked.timezone.clone(),
        columns,
        shifted: match asked.shifted {
            OnShift::Refuse => Shifted::Refuse,
            OnShift::Replace => Shifted::Replace,
            OnShift::Keep => Shifted::Keep,
        },
    };
    let bar = progress_bar(&asked.file);
    let source = Source::open(at, &config, Missing::Create)?;
    let moving = bar.clone();
    let summary = source.import(
        &asked.file,
        &question,
        Arc::new(move |bytes| moving.set_position(bytes)),
    );
    bar.finish_and_clear();
    let summary = summary?;
    for reject in &summary.first_rejects {
        let line = reject
            .line
            .map_or_else(String::new, |line| format!(", line {line}"));
        tracing::warn!(
            row = reject.text,
            "{}{line}: set aside: {}",
            question.name,
            reject.reason
        );
    }
    print(asked.format, &listing(&summary), &summary)
}

/// A progress bar, hidden unless stderr is a terminal.
fn progress_bar(file: &Path) -> ProgressBar {
    let bytes = std::fs::metadata(file)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len());
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {bytes} {bytes_per_sec}",
        ),
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_style(ProgressStyle::with_template(template).expect("the template is well-formed"))
}

fn listing(summary: &ImportSummary) -> Listing {
    let mut listing = Listing::new(&[Column::Text("what"), Column::Number("rows")]);
    for (what, rows) in [
        ("rows read", summary.rows),
        ("runs new", summary.runs_inserted),
        ("runs corrected", summary.runs_updated),
        ("runs known already", summary.unchanged),
        ("job steps ignored", summary.steps_skipped),
        ("rows rejected", summary.rejected),
    ] {
        listing.push(vec![what.to_owned(), rows.to_string()]);
    }
    listing
}
