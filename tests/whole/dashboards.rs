//! The Grafana boards: each panel explains itself, and its queries return data from Takt and from
//! Debian's Prometheus, which scrape the same exporters.

mod boards;
mod declared;
mod lab;
mod lint;
mod with_slurm;

use serde_json::Value;
use std::process::Command;
use std::time::Duration;

use crate::support::takt::Takt;
use crate::support::{need_program, or_skip};
use boards::{Query, boards, metrics, repository};
use lab::{Lab, hardware};
use std::thread;

/// Variables of the boards with a value each: one of two clusters, everything in it, and one job.
pub const VALUES: [(&str, &str); 15] = [
    ("cluster", "lab"),
    ("node", ".*"),
    ("gpu", ".*"),
    ("user", ".*"),
    ("account", ".*"),
    ("partition", ".*"),
    ("job", "101"),
    ("price", "0.25"),
    ("co2", "30"),
    ("budget", "100"),
    ("__rate_interval", "1m"),
    ("__interval", "45s"),
    ("__interval_ms", "45000"),
    ("__range", "5m"),
    ("__timezone", "UTC"),
];

/// Metrics without samples in a healthy test, and why.
const QUIET: [(&str, &str); 6] = [
    (
        "takt_notifications_attempts_total",
        "the test has no channel",
    ),
    ("takt_store_dropped_samples_total", "no sample is dropped"),
    ("takt_store_keeper_failures_total", "nothing fails"),
    ("node_boot_time_seconds", "no machine reboots"),
    (
        "node_filesystem_avail_bytes",
        "no disk fills within a day, and a container may have none",
    ),
    ("node_filesystem_readonly", "a container may have no disk"),
];

/// Tables without rows here, and why or which file has some.
const EMPTY: [(&str, &str); 10] = [
    ("node_events", "with_slurm.rs"),
    ("scheduler_nodes", "with_slurm.rs"),
    ("reservations", "with_slurm.rs"),
    ("job_reasons", "with_slurm.rs"),
    ("share_settings", "with_slurm.rs"),
    ("credits", "no hours were given back"),
    ("notifications", "the test has no channel"),
    ("silences", "nothing is silenced"),
    ("lost_gpu_seconds", "no fault ends a job here"),
    (
        "link_bound_ratio",
        "only jobs of several nodes wait for the network",
    ),
];

/// Efficiency is computed from series that the exporter must declare.
#[test]
fn the_exporter_declares_what_efficiency_reads() {
    let declared = declared::Declared::read();
    for metric in takt_accounting::efficiency::METRICS {
        assert!(
            declared.metrics.contains_key(metric),
            "no collector declares {metric}"
        );
    }
}

/// The boards are what their generator writes.
#[test]
fn the_committed_boards_are_up_to_date() {
    let Some(node) = or_skip(need_program("node")) else {
        return;
    };
    let generator = repository().join("dashboards/generator/main.js");
    let run = Command::new(node)
        .arg(generator)
        .arg("--check")
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

fn promql() -> Vec<Query> {
    boards()
        .into_iter()
        .flat_map(|board| {
            let annotations = board
                .annotation_queries()
                .into_iter()
                .chain(board.variable_queries());
            board
                .panel_queries()
                .into_iter()
                .chain(annotations)
                .filter(Query::is_promql)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Statements of panels and variables of all boards.
pub fn statements() -> Vec<Query> {
    boards()
        .into_iter()
        .flat_map(|board| {
            let variables = board.variable_statements();
            board
                .panel_queries()
                .into_iter()
                .filter(|query| !query.is_promql())
                .chain(variables)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a query finds what begins: it has data for one step only.
pub fn is_of_beginnings(query: &str) -> bool {
    query.contains(" offset ")
}

/// Why a query may be without data here.
fn reason(query: &str) -> Option<&'static str> {
    if is_of_beginnings(query) {
        return Some("nothing begins in the last minute");
    }
    let named = metrics(query);
    QUIET
        .iter()
        .find(|(metric, _)| named.iter().any(|name| name == metric))
        .map(|(_, why)| *why)
}

/// Whether Takt and Prometheus must answer with the same labels. The highest series, the level of a
/// value and series whose counter has just moved change from scrape to scrape, and jobs that other tests run here for
/// seconds are seen by one of the two only; without a cluster, Prometheus answers for two of them.
fn is_comparable(query: &str) -> bool {
    let changes = [
        "topk(",
        "bottomk(",
        "count_values(",
        "ALERTS",
        "last_over_time(takt_job_info",
    ];
    let has_moved = query.contains(" > 0") && query.contains('[');
    let changes =
        has_moved || is_of_beginnings(query) || changes.iter().any(|word| query.contains(word));
    !changes && query.contains("cluster=~")
}

/// Whether only Takt's server writes what the query reads.
fn is_of_server(query: &str) -> bool {
    const OTHERS: [&str; 2] = [
        "takt_server_config_reload_successful",
        "takt_scrape_refused",
    ];
    metrics(query).iter().any(|name| {
        OTHERS.contains(&name.as_str())
            || declared::OF_SERVER
                .iter()
                .any(|prefix| name.starts_with(prefix))
    })
}

/// Asks Takt and Prometheus. Gives whether their answers were compared, or what is wrong.
fn check(lab: &Lab, query: &Query) -> Result<bool, String> {
    let sent = query.sent(&VALUES);
    let may_be_empty = reason(&sent).is_some();
    let ours = lab
        .ask_takt(query.kind, &sent)
        .map_err(|error| format!("Takt: {error}"))?;
    if ours.is_empty() && !may_be_empty {
        return Err("Takt has nothing".to_owned());
    }
    let Some(prometheus) = &lab.prometheus else {
        return Ok(false);
    };
    let ask = |sent: &str| lab.ask(prometheus.url(), query.kind, sent);
    let theirs = ask(&sent).map_err(|error| format!("Prometheus: {error}"))?;

    // Two clusters with nodes of the same names: a join that mixes them is an error.
    let all = VALUES.map(|(name, value)| (name, if name == "cluster" { ".*" } else { value }));
    ask(&query.sent(&all)).map_err(|error| format!("two clusters: {error}"))?;
    if is_of_server(&sent) {
        return Ok(false);
    }
    if theirs.is_empty() && !may_be_empty {
        return Err("Prometheus has nothing".to_owned());
    }
    if ours.is_empty() || theirs.is_empty() || !is_comparable(&sent) {
        return Ok(false);
    }
    if ours == theirs {
        Ok(true)
    } else {
        Err(format!("Takt: {ours:?}\n  Prometheus: {theirs:?}"))
    }
}

#[test]
fn every_metric_panel_has_data() {
    let Some(lab) = Lab::start() else { return };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for query in promql() {
        let mut checked = check(&lab, &query);

        // Other tests start jobs, mount and make links on this machine all the time, which one of the two may scrape
        // earlier: their answers are equal at some time, not at any.
        for _ in 0..20 {
            if checked.is_err() {
                thread::sleep(Duration::from_secs(3));
                checked = check(&lab, &query);
            }
        }
        match checked {
            Ok(was_compared) => compared += usize::from(was_compared),
            Err(error) => {
                let sent = query.sent(&VALUES);
                wrong.push(format!("{}\n  {sent}\n  {error}", query.place));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} queries:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let has_both = lab.prometheus.is_some();
    assert!(
        !has_both || compared > 200,
        "only {compared} queries compared"
    );
    println!("{compared} queries compared");
    every_statement_has_data(&lab);
}

/// SQL over the same server, with a job that ended and was assessed.
fn every_statement_has_data(lab: &Lab) {
    let mut wrong = Vec::new();
    for query in statements() {
        let sent = lab.with_times(&query.sent(&VALUES));
        let run = lab.takt.run(["sql", "--format", "json", &sent]);
        if run.code != Some(0) {
            wrong.push(format!("{}\n  {sent}\n  {}", query.place, run.stderr));
            continue;
        }
        let rows: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
        let is_empty = rows
            .iter()
            .all(|row| row.as_object().unwrap().values().all(Value::is_null));
        if is_empty && !EMPTY.iter().any(|(table, _)| sent.contains(table)) {
            wrong.push(format!("{}\n  {sent}\n  no data", query.place));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} statements:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_usage_panel_has_data() {
    let takt = Takt::fresh();
    takt.import_sacct("JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
         1|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:01:00|2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,node=1|1|8|n1|7200\n\
         2|bob|b|gpu|2026-10-02T10:00:00|2026-10-02T10:01:00|Unknown|RUNNING|cpu=4,node=1|1|4|n1|0\n");
    let hours = statements()
        .into_iter()
        .find(|query| query.place == "user: By user")
        .unwrap()
        .sent(&VALUES)
        .replace("$__timeFrom()", "'2026-10-01T11:00:00Z'")
        .replace("$__timeTo()", "'2026-10-02T12:01:00Z'");
    let answer: Vec<Value> =
        serde_json::from_str(&takt.run(["sql", "--format", "json", &hours]).ok()).unwrap();
    // Alice: 61 of her 120 minutes on two GPUs; Bob, still running: two hours on four CPUs.
    assert_eq!(answer[0]["gpu_hours"], 122.0 / 60.0);
    assert_eq!(answer[1]["user"], "bob");
    assert_eq!(answer[1]["cpu_hours"], 8.0);
}

/// A run is cut at midnight of its cluster's clocks, also on days of 23 and 25 hours.
#[test]
fn days_begin_at_midnight_of_the_cluster() {
    let takt = Takt::fresh();
    takt.file(
        "jobs.txt",
        "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
         1|alice|a|gpu|2026-03-28T23:00:00|2026-03-28T23:00:00|2026-03-30T01:00:00|COMPLETED|cpu=8,gres/gpu=2,node=1|1|8|n1|90000\n\
         2|alice|a|gpu|2026-10-24T23:00:00|2026-10-24T23:00:00|2026-10-26T02:00:00|COMPLETED|cpu=8,gres/gpu=2,node=1|1|8|n1|100800\n",
    );
    let zone = ["--timezone", "Europe/Oslo", "--cluster", "lab"];
    takt.run([&["import", "sacct", "jobs.txt"], &zone[..]].concat())
        .ok();
    let daily = statements()
        .into_iter()
        .find(|query| query.place == "user: GPU-hours a day by user")
        .unwrap();
    let ask = |from: &str, to: &str| {
        let sent = daily
            .sent(&VALUES)
            .replace("$__timeFrom()", &format!("'{from}'"))
            .replace("$__timeTo()", &format!("'{to}'"));
        let answer: Vec<Value> =
            serde_json::from_str(&takt.run(["sql", "--format", "json", &sent]).ok()).unwrap();
        answer
            .iter()
            .map(|row| {
                (
                    row["time"].as_str().unwrap()[..13].replace('T', " "),
                    row["hours"].as_f64().unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ask("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        [
            ("2026-03-27 23".to_owned(), 2.0),
            ("2026-03-28 23".to_owned(), 46.0),
            ("2026-03-29 22".to_owned(), 2.0)
        ]
    );
    assert_eq!(
        ask("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        [
            ("2026-10-23 22".to_owned(), 2.0),
            ("2026-10-24 22".to_owned(), 50.0),
            ("2026-10-25 23".to_owned(), 4.0)
        ]
    );
}
