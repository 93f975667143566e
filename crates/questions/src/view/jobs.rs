//! Job runs of all servers, the newest first.

use super::{ViewAnswer, ViewQuestion};
use crate::JobsQuestion;
use crate::view_servers::{ViewServer, ViewServers};
use serde_json::{Value, json};
use std::cmp::Reverse;
use takt_model::UnixTime;

/// Most rows of jobs.
const JOBS_MAX: usize = 10_000;

pub(super) fn rows(
    asked: &ViewQuestion,
    view: &ViewServers,
    servers: &[&ViewServer],
) -> ViewAnswer {
    let limit = asked.limit.unwrap_or(1000).min(JOBS_MAX);
    // Each server may have all of the newest runs, so each is asked for as many.
    let answers = view.send(servers, |server| JobsQuestion {
        cluster: server.config.cluster.clone(),
        user: asked.user.clone(),
        account: asked.account.clone(),
        state: asked.state.clone(),
        limit,
        ..JobsQuestion::default()
    });

    let mut all = ViewAnswer::new(&[
        "server",
        "cluster",
        "job_id",
        "user",
        "account",
        "name",
        "partition",
        "state",
        "submit",
        "start",
        "end",
        "nodes",
        "cpus",
        "gpus",
        "node_list",
        "reason",
    ]);

    let mut runs = Vec::new();
    for answered in answers.wait() {
        let name = &answered.0.config.name;
        all.add(answered, |_, found| {
            runs.extend(found.into_iter().map(|run| (name.clone(), run)));
        });
    }
    // The servers' lists are merged, and the limit counts for all.
    runs.sort_by_key(|(_, listed)| Reverse(listed.run.submit));

    for (server, listed) in runs.into_iter().take(limit) {
        let run = listed.run;
        let reason = listed.waiting.map(|waiting| waiting.reason);
        let row = [
            json!(run.cluster),
            json!(run.job_id),
            json!(run.user),
            json!(run.account),
            json!(run.name),
            json!(run.partition),
            json!(run.state),
            time(Some(run.submit)),
            time(run.start),
            time(run.end),
            json!(run.nodes),
            json!(run.cpus),
            json!(run.gpus),
            json!(run.node_list),
            json!(reason),
        ];
        all.push(&server, row);
    }
    all
}

/// An instant, RFC 3339.
fn time(at: Option<UnixTime>) -> Value {
    // A time beyond the years of dates is no time.
    let at = at.and_then(|at| jiff::Timestamp::try_from(at).ok());
    json!(at.map(|at| at.to_string()))
}
