//! `takt jobs`.

use super::{ask, print};
use crate::cli::{Jobs, Place};
use jiff::Timestamp;
use takt_server::Failure;
use takt_server::answers::{JobsQuestion, ListedRun};
use takt_server::listing::{Column, Listing};

/// Lists runs, the newest first.
pub fn list(place: &Place, asked: &Jobs) -> Result<(), Failure> {
    let question = JobsQuestion {
        user: asked.user.clone(),
        state: asked.state.clone(),
        limit: asked.limit,
        ..JobsQuestion::default()
    };
    let runs = ask(place, &question)?;
    print(asked.format, &listing(&runs), &runs)
}

/// The columns of a list of runs.
pub fn listing(runs: &[ListedRun]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("job_id"),
        Text("user"),
        Text("account"),
        Text("partition"),
        Text("state"),
        Text("submit"),
        Text("start"),
        Text("end"),
        Number("nodes"),
        Number("cpus"),
        Number("gpus"),
        Text("node_list"),
        Text("reason"),
    ]);
    for ListedRun { run, waiting, .. } in runs {
        listing.push(vec![
            run.job_id.clone(),
            run.user.clone(),
            run.account.clone(),
            run.partition.clone(),
            run.state.clone(),
            instant(Some(run.submit)),
            instant(run.start),
            instant(run.end),
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

fn number(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats an instant in UTC.
fn instant(seconds: Option<i64>) -> String {
    let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.map_or_else(String::new, |at| at.to_string())
}
