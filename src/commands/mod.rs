//! The commands, one file each.

pub(crate) mod alerts;
pub(crate) mod assess;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod capacity;
pub(crate) mod card;
pub(crate) mod check_config;
pub(crate) mod completions;
pub(crate) mod credit;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fairshare;
pub(crate) mod gpus;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod lake;
pub(crate) mod login;
pub(crate) mod node;
pub(crate) mod overview;
pub(crate) mod passwd;
pub(crate) mod pdf;
pub mod plot;
pub(crate) mod probe;
pub(crate) mod promqltest;
pub(crate) mod query;
pub(crate) mod reconcile;
pub(crate) mod records;
pub(crate) mod reload;
pub(crate) mod report;
pub(crate) mod report_send;
pub(crate) mod serve;
pub(crate) mod sql;
pub(crate) mod sql_process;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod view;
pub(crate) mod whatif;
pub(crate) mod whoami;

use self::import::Import;
use crate::cli::{Cli, Command, ListingFormat, Place};
use crate::client::Server;
use crate::output::{self, stdout};
use crate::place;
use crate::process_metrics;
use crate::source::{Missing, Source, server, server_at_socket, zone_of};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use takt_accounting::Period;
use takt_model::UnixTime;
use takt_model::shown::visible_json;
use takt_questions::listing::Listing;
use takt_questions::{AboutQuestion, AnswerData, Question, SourcesQuestion, source_warnings};
use takt_server::serve::Parts;
use takt_server::{Failure, OrUsage};
use tokio::runtime::Runtime;

/// Parts of a server that the server's crate does not own.
const PARTS: Parts = Parts {
    pages: takt_web::routes,
    process_metrics: process_metrics::register,
    query_process: sql_process::command,
};

/// Runs the command of the command line. Returns its exit code.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let place = &cli.place;
    let Some(command) = cli.command else {
        return overview::run(place).map(|()| ExitCode::SUCCESS);
    };
    match command {
        Command::Up(up) => up::run(place, &up),
        Command::Demo(asked) => demo::run(place, &asked),
        Command::Init(asked) => init::run(&asked),
        Command::Doctor(asked) => return doctor::run(place, &asked),
        Command::Backup(asked) => backup::backup(place, &asked),
        Command::Restore(asked) => backup::restore(place, &asked),
        Command::DemoSlurm(asked) => demo::slurm_program(&asked),
        Command::Serve(serve) => serve::run(place, &serve),
        Command::Reload => reload::run(place),
        Command::Exporter(options) => Ok(one_thread()?.block_on(takt_exporter::run(options))?),
        Command::SqlProcess => sql_process::run(),
        Command::Import(Import::Sacct(import)) => import::sacct(place, &import),
        Command::Import(Import::Jobcomp(import)) => import::jobcomp(place, &import),
        Command::Import(Import::Kubernetes(import)) => import::kubernetes(place, &import),
        Command::Report(asked) => report::run(place, &asked),
        Command::Assess(asked) => assess::run(place, &asked),
        Command::Credit(asked) => credit::run(place, &asked),
        Command::Jobs(jobs) => jobs::list(place, &jobs),
        Command::Job(asked) => job::run(place, &asked),
        Command::Gpus(asked) => gpus::run(place, &asked),
        Command::Card(asked) => card::run(place, &asked),
        Command::Node(asked) => return node::run(&asked),
        Command::Capacity(asked) => capacity::run(place, &asked),
        Command::Whatif(asked) => whatif::run(place, &asked),
        Command::View(asked) => view::run(place, &asked),
        Command::Reconcile(asked) => reconcile::run(place, &asked),
        Command::Fairshare(asked) => fairshare::run(place, &asked),
        Command::Sql(sql) => sql::run(place, &sql),
        Command::Query(query) => query::run(place, &query),
        Command::Probe(asked) => probe::run(place, &asked),
        Command::Promqltest(asked) => promqltest::run(&asked.files),
        Command::Alerts(asked) => alerts::run(place, &asked),
        Command::Records(asked) => records::run(place, &asked),
        Command::Store(asked) => store::run(place, &asked),
        Command::Lake(asked) => lake::run(place, &asked),
        Command::Login => login::run(place),
        Command::Passwd(asked) => passwd::run(place, &asked),
        Command::Whoami(asked) => whoami::run(place, &asked),
        Command::Token(asked) => token::run(place, &asked),
        Command::Audit(asked) => audit::run(place, &asked),
        Command::CheckConfig(asked) => check_config::run(place, &asked),
        Command::Completions(asked) => completions::script(&asked),
        Command::Man(asked) => completions::man_pages(&asked.directory),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The exporter's runtime. One thread serves requests; collectors that may block have their own
/// threads.
fn one_thread() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Opens the data of a command that asks several questions.
fn source<D>(place: &Place) -> Result<Source<D>, Failure>
where
    D: AnswerData,
{
    let (config, at) = place::find(place)?;
    Source::open(at, &config, Missing::Refuse)
}

/// Finds the running server at its Unix socket.
fn server_by_socket(place: &Place) -> Result<Server, Failure> {
    let (_, at) = place::find(place)?;
    server_at_socket(at)
}

/// Asks one question.
fn ask<Q>(place: &Place, question: &Q) -> Result<Q::Answer, Failure>
where
    Q: Question,
{
    source::<Q::Data>(place)?.ask(question)
}

/// Warns of sources of the running server whose data may be old or not complete: a figure of what was never read looks
/// like a figure. Returns whether there are any.
fn warn_unread(place: &Place) -> bool {
    // Only a server polls, so without one nothing can be unread.
    let sources = place::find(place)
        .and_then(|(_, at)| server(at))
        .and_then(|server| server.ask(&SourcesQuestion {}));
    let warnings = source_warnings(&sources.unwrap_or_default());
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    !warnings.is_empty()
}

/// Warns if the job records may be old, begin within a period, or after it: its figures look complete. The times are
/// RFC 3339.
fn warn_unrecorded(place: &Place, from: &str, to: &str) {
    warn_unread(place);
    // The report was answered already; a missing warning must not fail it.
    let Ok(about) = ask(place, &AboutQuestion {}) else {
        return;
    };
    let records_from = about.records_from;
    let zone = zone_of(Some(about));
    let note = Period::span(from, to, &zone, Timestamp::now())
        .ok()
        .zip(records_from)
        .and_then(|(period, records_from)| period.unrecorded_note(records_from));
    if let Some(note) = note {
        tracing::warn!("{note}");
    }
}

/// Fails if a server is named: this command opens a data directory itself.
fn refuse_server(place: &Place, command: &str) -> Result<(), Failure> {
    let error = format!(
        "takt {command} keeps a data directory itself; --server (TAKT_SERVER) is for commands that \
         ask"
    );
    if place.server.is_some() {
        Err(anyhow::anyhow!(error)).usage()
    } else {
        Ok(())
    }
}

/// Cuts a listing to `limit` rows. Returns whether that leaves out others: the question asks for one
/// row more.
fn cut<T>(rows: &mut Vec<T>, limit: usize) -> bool {
    let is_cut = rows.len() > limit;
    rows.truncate(limit);
    is_cut
}

/// Says below a listing that it was cut.
fn note_cut(is_cut: bool, limit: usize) {
    if is_cut {
        tracing::warn!(
            "these are the newest {limit} rows, older ones are left out; a higher --limit shows more"
        );
    }
}

/// Prints a listing. Table and CSV have the listing's cells, JSON has the values themselves.
fn print<T>(format: ListingFormat, listing: &Listing, values: &T) -> Result<(), Failure>
where
    T: Serialize,
{
    // A listing may have a million cells, each of which would be a write.
    let mut out = BufWriter::new(stdout());
    match format {
        ListingFormat::Table => listing.write_table(output::width(), &mut out)?,
        ListingFormat::Csv => listing.write_csv(&mut out)?,
        ListingFormat::Json => {
            let json = serde_json::to_string_pretty(values)?;
            writeln!(out, "{}", visible_json(&json))?;
        }
    }
    Ok(out.flush()?)
}

/// Prints the findings of a verification, one a row of the column; as a table, `none` says that there are
/// none. Fails with `error` of their number if there are some.
fn print_findings(
    format: ListingFormat,
    column: &str,
    findings: &[String],
    none: &str,
    error: impl FnOnce(usize) -> anyhow::Error,
) -> Result<(), Failure> {
    // JSON and CSV stay empty lists, which programs expect.
    if findings.is_empty() && format == ListingFormat::Table {
        return Ok(writeln!(stdout(), "{none}")?);
    }
    let cells = findings.iter().map(|line| vec![line.clone()]).collect();
    print(format, &Listing::of(&[column.to_owned()], cells), &findings)?;
    match findings.len() {
        0 => Ok(()),
        count => Err(error(count).into()),
    }
}

/// Formats an instant, for a column of times. Empty for `None`.
fn instant(at: Option<UnixTime>, zone: &TimeZone) -> String {
    let at = at.and_then(|at| Timestamp::try_from(at).ok());
    at.map_or_else(String::new, |at| in_zone(at, zone))
}

/// Formats an instant for a column of times: RFC 3339 with the offset of the time zone.
fn in_zone(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%dT%H:%M:%S%:z")
        .to_string()
}
