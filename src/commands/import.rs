//! `takt import sacct`, `takt import jobcomp` and `takt import kubernetes`.

use super::print;
use crate::cli::{ListingFormat, Place};
use crate::place;
use crate::source::{Missing, Source};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use takt_jobs::bounded;
use takt_questions::listing::{Column, Listing};
use takt_questions::{ImportFormat, ImportQuestion};
use takt_server::Failure;
use takt_store::{ImportSummary, Shifted};

/// Maximum length of a rejected row on the terminal, in bytes.
const SHOWN_BYTES: usize = 400;

#[derive(Debug, Subcommand)]
pub enum Import {
    /// Import the output of `sacct -P`; importing it again changes nothing
    Sacct(ImportSacct),
    /// Import Slurm's job completion file (JobCompType=jobcomp/filetxt)
    Jobcomp(ImportFrom),
    /// Import pods: JSON of `kubectl get`, or of a watch; importing it again changes nothing
    Kubernetes(ImportKubernetes),
}

#[derive(Debug, Args)]
pub struct ImportSacct {
    #[command(flatten)]
    pub from: ImportFrom,
    /// Column names of a file without a header, separated by |
    #[arg(long, value_name = "NAMES", value_delimiter = '|')]
    pub columns: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ImportFrom {
    /// File to read, gzip or plain; - for standard input
    pub file: PathBuf,
    /// Time zone of the file's timestamps, such as Europe/Oslo [default: the configured one, else
    /// the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Cluster name for records that have none [default: the configured one]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Action if the runs are already stored, but with times of another time zone
    #[arg(long, value_enum, default_value_t)]
    pub shifted: OnShift,
    /// Let the file correct finished jobs, even where a job's name could look like a record
    #[arg(long)]
    pub accept_corrections: bool,
    /// Output format of the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct ImportKubernetes {
    /// File to read, gzip or plain; - for standard input
    pub file: PathBuf,
    /// Cluster name of the pods [default: the configured one]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Sources of the user, in order and separated by commas: label:KEY, annotation:KEY,
    /// namespace-label:KEY, namespace-annotation:KEY, map:NAMESPACE=NAME, namespace, serviceaccount
    /// [default: annotation:ceems.io/created-by, annotation:notebook-creator, annotation:owner,
    /// namespace-annotation:owner, serviceaccount]
    #[arg(long, value_name = "SOURCES")]
    pub user_from: Option<String>,
    /// Sources of the account, in order; the same words [default: namespace]
    #[arg(long, value_name = "SOURCES")]
    pub account_from: Option<String>,
    /// Output format of the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Treatment of runs that exist with times shifted by a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnShift {
    /// Import nothing and fail
    #[default]
    Refuse,
    /// Replace the existing runs
    Replace,
    /// Keep both as different runs
    Keep,
}

/// Imports the output of `sacct -P`.
pub fn sacct(place: &Place, asked: &ImportSacct) -> Result<(), Failure> {
    let columns = (!asked.columns.is_empty()).then(|| asked.columns.join("|"));
    let question = ImportQuestion {
        columns,
        ..slurm_question(&asked.from, ImportFormat::Sacct)
    };
    import(place, &asked.from.file, &question, asked.from.format)
}

/// Imports the file of jobcomp/filetxt.
pub fn jobcomp(place: &Place, asked: &ImportFrom) -> Result<(), Failure> {
    let question = slurm_question(asked, ImportFormat::Jobcomp);
    import(place, &asked.file, &question, asked.format)
}

/// Imports objects of Kubernetes.
pub fn kubernetes(place: &Place, asked: &ImportKubernetes) -> Result<(), Failure> {
    let question = ImportQuestion {
        format: ImportFormat::Kubernetes,
        name: asked.file.display().to_string(),
        cluster: asked.cluster.clone(),
        user_from: asked.user_from.clone(),
        account_from: asked.account_from.clone(),
        ..ImportQuestion::default()
    };
    import(place, &asked.file, &question, asked.format)
}

fn slurm_question(asked: &ImportFrom, format: ImportFormat) -> ImportQuestion {
    ImportQuestion {
        format,
        name: asked.file.display().to_string(),
        cluster: asked.cluster.clone(),
        timezone: asked.timezone.clone(),
        shifted: match asked.shifted {
            OnShift::Refuse => Shifted::Refuse,
            OnShift::Replace => Shifted::Replace,
            OnShift::Keep => Shifted::Keep,
        },
        accept_corrections: asked.accept_corrections,
        ..ImportQuestion::default()
    }
}

fn import(
    place: &Place,
    file: &Path,
    question: &ImportQuestion,
    format: ListingFormat,
) -> Result<(), Failure> {
    let (config, at) = place::find(place)?;

    // Before the data are opened, which may take seconds, so that the command does not look stuck.
    let bar = progress_bar(file);
    let source = Source::open(at, &config, Missing::Create)?;
    let moving = bar.clone();

    let summary = source.import(
        file,
        question,
        Arc::new(move |bytes| moving.set_position(bytes)),
    );
    // Cleared before any message, which the bar would overwrite.
    bar.finish_and_clear();
    let summary = summary?;

    for reject in &summary.first_rejects {
        let line = reject
            .line
            .map_or_else(String::new, |line| format!(", line {line}"));
        tracing::warn!(
            row = bounded(&reject.text, SHOWN_BYTES).as_ref(),
            "{}{line}: set aside: {}",
            question.name,
            reject.reason
        );
    }

    print(format, &listing(&summary, question.format), &summary)?;
    if summary.running > 0 {
        tracing::warn!(
            "runs without an end: {}; they count as running until a later import or poll names \
             their end",
            summary.running
        );
    }

    for (state, runs) in &summary.unknown_states {
        tracing::warn!("runs with the state {state}, which Takt does not know: {runs}");
    }

    set_aside(&question.name, &summary)
}

/// Fails if rows were set aside, and says how many and where.
fn set_aside(name: &str, summary: &ImportSummary) -> Result<(), Failure> {
    if summary.rejected == 0 {
        return Ok(());
    }

    let rejects = summary.first_rejects.iter();
    let mut lines: Vec<u64> = rejects.filter_map(|reject| reject.line).collect();
    lines.sort_unstable();
    let is_cut = summary.rejected > lines.len() as u64;
    let mut lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    if is_cut {
        lines.push("…".to_owned());
    }

    let error = anyhow::anyhow!(
        "{name}: rows that were set aside: {} (lines {}); the others are imported, and the SQL table \
         rejects has all of these",
        summary.rejected,
        lines.join(", ")
    );
    Err(Failure::Failed(error))
}

/// A progress bar, hidden unless stderr is a terminal.
fn progress_bar(file: &Path) -> ProgressBar {
    // A pipe has no length.
    let bytes = fs::metadata(file)
        .ok()
        .filter(fs::Metadata::is_file)
        .map(|file| file.len());

    if !io::stderr().is_terminal() {
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

fn listing(summary: &ImportSummary, format: ImportFormat) -> Listing {
    let skipped = match format {
        ImportFormat::Sacct | ImportFormat::Jobcomp => "job steps ignored",
        ImportFormat::Kubernetes => "pods that reserve nothing",
    };
    let mut listing = Listing::new(&[Column::Text("what"), Column::Number("rows")]);
    for (what, rows) in [
        ("rows read", summary.rows),
        ("runs new", summary.runs_inserted),
        ("runs corrected", summary.runs_updated),
        ("runs known already", summary.unchanged),
        (skipped, summary.steps_skipped),
        ("rows rejected", summary.rejected),
    ] {
        listing.push(vec![what.to_owned(), rows.to_string()]);
    }
    listing
}
