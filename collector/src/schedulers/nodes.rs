//! Nodes: what each has, when it could not be used, and what the cluster had.
//!
//! slurmdbd keeps the history (`sacctmgr show event`). Without it, intervals are made of what slurmctld says now, so that
//! what happened while nobody looked is not known.

use super::command::ask;
use super::config::JobsConfig;
use super::slurmrestd::Slurmrestd;
use super::status::PollError;
use serde_json::Value;
use takt_slurm::{Node, NodeEvent, node, openapi};

/// What slurmctld says of the nodes now.
pub(super) async fn ask_now(
    config: &JobsConfig,
    rest: Option<&mut Slurmrestd>,
) -> Result<Vec<Node>, PollError> {
    let answer = match rest {
        Some(rest) => rest.controller("nodes").await?,
        None => {
            // From Slurm 23.02 on; sinfo's JSON says something else there.
            let text = match ask(config, "scontrol", ["show", "nodes", "--json"]).await {
                Ok(text) => text,
                Err(_) => ask(config, "sinfo", ["--json"]).await?,
            };
            serde_json::from_slice::<Value>(&text).map_err(|error| PollError::Failed {
                program: "sinfo",
                stderr: format!("its answer is no JSON: {error}"),
            })?
        }
    };
    match openapi::error(&answer) {
        Some(error) => Err(PollError::ControllerDown(error.to_string())),
        None => Ok(openapi::nodes(&answer).iter().map(node::node).collect()),
    }
}

/// What slurmdbd knows of a cluster since an instant.
pub(super) async fn ask_events(
    config: &JobsConfig,
    cluster: &str,
    since: i64,
) -> Result<Vec<NodeEvent>, PollError> {
    let since = jiff::Timestamp::from_second(since)
        .unwrap_or_default()
        .strftime("start=%Y-%m-%dT%H:%M:%S")
        .to_string();
    let of_cluster = format!("cluster={cluster}");
    let fields = "format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,TRES";
    let args = [
        "--parsable2",
        "show",
        "event",
        "event=cluster,node",
        &of_cluster,
        &since,
        fields,
    ];
    let text = ask(config, "sacctmgr", args).await?;
    Ok(node::events(&String::from_utf8_lossy(&text), cluster))
}
