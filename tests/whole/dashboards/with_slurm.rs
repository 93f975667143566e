//! The panels that need a scheduler, over a real Slurm with a waiting job, a drained node, a
//! reservation and a limit.

use serde_json::Value;
use std::time::Duration;

use super::boards::{Query, list, metrics};
use super::{VALUES, is_of_beginnings, promql, statements};
use crate::support::or_skip;
use crate::support::process::{free_port, wait_for};
use crate::support::prometheus::instant_query;
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;

const SOON: Duration = Duration::from_secs(120);

/// Tables that slurmctld or slurmdbd fill.
const OF_SLURM: [&str; 5] = [
    "node_events",
    "scheduler_nodes",
    "reservations",
    "job_reasons",
    "share_settings",
];

/// Series without a value here, and why.
const QUIET: [(&str, &str); 1] = [("takt_slurm_node_failures_1d", "no node fails a job")];

#[test]
fn the_queue_has_data_from_a_real_slurm() {
    let Some(slurm) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let limit = ["account", "lab-a", "set", "GrpTRESMins=gres/gpu=6000"];
    slurm.run(&[&["sacctmgr", "-i", "modify"][..], &limit].concat());
    let drain = ["nodename=node2", "state=drain", "reason=fan"];
    slurm.run(&[&["scontrol", "update"][..], &drain].concat());
    let reservation = ["reservationname=course", "nodes=node1", "users=root"];
    let begins = ["starttime=now", "duration=60"];
    slurm.run(
        &[
            &["scontrol", "create", "reservation"][..],
            &begins,
            &reservation,
        ]
        .concat(),
    );
    let runs = slurm.submit("alice", &["--gres=gpu:1", "-t", "5"], "sleep 600");
    let waits = slurm.submit(
        "bob",
        &[&format!("--dependency=afterok:{runs}"), "-t", "5"],
        "true",
    );
    slurm.wait_for_state(runs, "RUNNING", SOON);

    let takt = Takt::fresh().with_environment(slurm.environment());
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n[sql]\nlisten_address = \"127.0.0.1:{}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\nhistory_days = 1\n",
            free_port()
        ),
    );
    let _server = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://{address}");
    let values: Vec<_> = VALUES
        .iter()
        .map(|(name, value)| (*name, if *name == "cluster" { ".*" } else { *value }))
        .collect();
    let waiting = waits.to_string();
    let values: Vec<_> = values
        .iter()
        .map(|(name, value)| {
            (
                *name,
                if *name == "job" {
                    waiting.as_str()
                } else {
                    *value
                },
            )
        })
        .collect();

    // The server polls every second and writes its own series every fifteen. It scrapes no exporter.
    let is_of_slurm = |query: &&Query| {
        let named = metrics(&query.text);
        !is_of_beginnings(&query.text)
            && !named.is_empty()
            && named.iter().all(|name| name.starts_with("takt_slurm_"))
    };
    for query in promql().iter().filter(is_of_slurm) {
        let sent = query.sent(&values);
        if QUIET
            .iter()
            .any(|(metric, _)| metrics(&sent).iter().any(|name| name == metric))
        {
            continue;
        }
        wait_for(&format!("{}: {sent}", query.place), SOON, || {
            instant_query(&url, &sent).ok()?.first().map(|_| ())
        });
    }

    // Boards filter the series of jobs and nodes by these.
    for series in [
        format!(
            r#"takt_slurm_job_info{{jobid="{runs}", user="alice", account="lab-a", partition="gpu"}}"#
        ),
        r#"takt_slurm_node_partition{node="node2", partition="gpu"}"#.to_owned(),
    ] {
        wait_for(&series, SOON, || {
            instant_query(&url, &series).ok()?.first().map(|_| ())
        });
    }
    let outside = r#"takt_slurm_node_partition{node="node2", partition="short"}"#;
    assert!(instant_query(&url, outside).unwrap().is_empty());
    let in_sql = "SELECT \"partition\", string_agg(node, ' ' ORDER BY node) AS nodes
                  FROM partition_nodes GROUP BY ALL ORDER BY ALL";
    let in_sql: Value =
        serde_json::from_str(&takt.run(["sql", "--format", "json", in_sql]).ok()).unwrap();
    let expected = serde_json::json!({"partition": "gpu", "nodes": "node0 node1 node2"});
    assert!(list(&in_sql).any(|row| *row == expected), "{in_sql}");
    let of_slurm = |text: &str| OF_SLURM.iter().any(|table| text.contains(table));
    for query in statements().iter().filter(|query| of_slurm(&query.text)) {
        let sent = query
            .sent(&values)
            .replace("$__timeFrom()", "(now()::TIMESTAMP - INTERVAL 1 DAY)")
            .replace("$__timeTo()", "(now()::TIMESTAMP + INTERVAL 1 MINUTE)");
        wait_for(&format!("{}: {sent}", query.place), SOON, || {
            let rows = takt.run(["sql", "--format", "json", &sent]).ok();
            let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
            rows.first().map(|_| ())
        });
    }
}
