//! `takt jobs` and `takt job`.

use super::{instant, print, source};
use crate::cli::{Job, Jobs, Place};
use crate::source::Source;
use jiff::tz::TimeZone;
use takt_server::Failure;
use takt_server::answers::{JobsQuestion, ListedRun};
use takt_server::listing::{Column, Listing};
use takt_store::Database;

/// Lists runs, the newest first.
pub fn list(place: &Place, asked: &Jobs) -> Result<(), Failure> {
    let question = JobsQuestion {
        job_id: None,
        user: asked.person.name(),
        state: asked.state.clone(),
        limit: asked.limit,
    };
    let source: Source<Database> = source(place)?;
    let runs = source.ask(&question)?;
    print(asked.format, &listing(&runs, &source.zone()), &runs)
}

/// Shows every run of one job.
pub fn show(place: &Place, asked: &Job) -> Result<(), Failure> {
    let question = JobsQuestion {
        job_id: Some(asked.id.clone()),
        limit: usize::MAX,
        ..JobsQuestion::default()
    };
    let source: Source<Database> = source(place)?;
    let runs = source.ask(&question)?;
    let zone = source.zone();
    if runs.is_empty() {
        return Err(anyhow::anyhow!("no job {} is recorded", asked.id).into());
    }
    let listing = if runs.len() == 1 {
        details(&runs[0], &zone)
    } else {
        listing(&runs, &zone)
    };
    print(asked.format, &listing, &runs)
}

fn listing(runs: &[ListedRun], zone: &TimeZone) -> Listing {
    use Column::{Number, Text, Time};
    let mut listing = Listing::new(&[
        Text("job_id"),
        Text("user"),
        Text("name"),
        Text("account"),
        Text("partition"),
        Text("state"),
        Time("submit"),
        Time("start"),
        Time("end"),
        Number("nodes"),
        Number("cpus"),
        Number("gpus"),
        Text("node_list"),
        Text("reason"),
    ])
    .omitting(&["account", "cpus", "submit", "nodes", "partition", "end"]);
    for ListedRun { run, waiting } in runs {
        listing.push(vec![
            run.job_id.clone(),
            run.user.clone(),
            run.name.clone().unwrap_or_default(),
            run.account.clone(),
            run.partition.clone(),
            run.state.clone(),
            instant(Some(run.submit), zone),
            instant(run.start, zone),
            instant(run.end, zone),
            number(run.nodes),
            number(run.cpus),
            number(run.gpus),
            run.node_list.clone().unwrap_or_default(),
            waiting
                .as_ref()
                .map_or_else(String::new, |waiting| waiting.reason.clone()),
        ]);
    }
    listing
}

/// Returns one run, one line for each known field.
fn details(listed: &ListedRun, zone: &TimeZone) -> Listing {
    let ListedRun { run, waiting } = listed;
    let mut listing = Listing::new(&[Column::Text("field"), Column::Text("value")]);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    for (name, value) in [
        ("cluster", run.cluster.clone()),
        ("job_id", run.job_id.clone()),
        ("raw_job_id", text(&run.raw_job_id)),
        ("name", text(&run.name)),
        ("state", run.state.clone()),
        ("exit_code", text(&run.exit_code)),
        ("user", run.user.clone()),
        ("account", run.account.clone()),
        ("partition", run.partition.clone()),
        ("qos", text(&run.qos)),
        ("reservation", text(&run.reservation)),
        ("submit", instant(Some(run.submit), zone)),
        (
            "reason",
            waiting
                .as_ref()
                .map_or_else(String::new, |waiting| waiting.reason.clone()),
        ),
        (
            "it_waits_because",
            waiting
                .as_ref()
                .map_or_else(String::new, |waiting| waiting.words.clone()),
        ),
        (
            "reason_since",
            instant(waiting.as_ref().map(|waiting| waiting.since), zone),
        ),
        (
            "expected_start",
            instant(
                waiting.as_ref().and_then(|waiting| waiting.expected_start),
                zone,
            ),
        ),
        ("eligible", instant(run.eligible, zone)),
        ("start", instant(run.start, zone)),
        ("end", instant(run.end, zone)),
        ("elapsed_seconds", number(run.elapsed)),
        ("timelimit_seconds", number(run.timelimit)),
        ("nodes", number(run.nodes)),
        ("node_list", text(&run.node_list)),
        ("cpus", number(run.cpus)),
        ("gpus", number(run.gpus)),
        ("gpu_model", text(&run.gpu_model)),
        ("mem_bytes", number(run.mem_bytes)),
        ("alloc_tres", text(&run.alloc_tres)),
        ("req_tres", text(&run.req_tres)),
    ] {
        if !value.is_empty() {
            listing.push(vec![name.to_owned(), value]);
        }
    }
    listing
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
