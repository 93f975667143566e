//! `takt` without a command: the state of the server, or how to start one.

use crate::cli::Place;
use crate::client::Server;
use crate::output::stdout;
use crate::place;
use crate::source;
use anyhow::Context;
use reqwest::Method;
use serde_json::Value;
use std::io::Write;
use takt_model::words::{amount, percent};
use takt_questions::{AboutQuestion, SqlQuestion, UsageQuestion};
use takt_server::{Config, Failure};

/// Number of alerts that are named.
const NAMED: usize = 2;

const HOW_TO_START: &str = "\
Takt monitors GPU clusters. No server runs here. Three ways to start:

  takt demo                      see Takt with a simulated cluster; needs no GPU and no Slurm
  takt up                        monitor this machine; needs no configuration
  takt init                      propose a configuration for a cluster, for: takt serve

To query the server of another machine: takt --server http://head:9856 jobs
takt help lists all commands.
";

/// Counts of nodes, GPUs and jobs. A node without a value is no longer a target, and is not counted.
/// A GPU without one is on a node whose exporter does not answer.
pub(super) const COUNTS: &str = "
SELECT
    (SELECT count(*) FROM nodes WHERE up IS NOT NULL),
    (SELECT count(*) FROM nodes WHERE up),
    g.count, g.up, g.busy, j.running, j.pending
FROM (
    SELECT count(*) AS count, count(*) FILTER (c.up AND n.up IS NOT FALSE) AS up,
        avg(utilization_ratio) FILTER (c.up AND n.up IS NOT FALSE AND utilization_ratio BETWEEN 0 AND 1) AS busy
    FROM gpus AS c
    LEFT JOIN (SELECT cluster, node, bool_or(up) AS up FROM nodes GROUP BY ALL) AS n USING (cluster, node)
    WHERE c.last_seen > (SELECT max(last_seen) FROM gpus) - INTERVAL 3 MINUTES OR n.up IS FALSE
) AS g, (
    SELECT count(*) FILTER (state = 'RUNNING') AS running, count(*) FILTER (state = 'PENDING') AS pending
    FROM jobs WHERE end_time IS NULL
) AS j";

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    let mistake = place::mistake(place);
    let at = match &mistake {
        Some(_) => place::whereabouts(place, &Config::default())?,
        None => place::find(place)?.1,
    };

    let is_named = place.server.is_some();
    match source::server(at) {
        Ok(server) => show(&server)?,
        Err(error) if is_named || place.config.is_some() => return Err(error),
        Err(_) if mistake.is_none() => stdout().write_all(HOW_TO_START.as_bytes())?,
        Err(_) => {}
    }

    match mistake {
        Some((mistake, _)) => Err(Failure::Usage(mistake)),
        None => Ok(()),
    }
}

fn show(server: &Server) -> Result<(), Failure> {
    let about = server.ask(&AboutQuestion {})?;
    let statement = COUNTS.to_owned();
    let counts = server
        .ask(&SqlQuestion { statement })
        .and_then(|mut answer| Ok(answer.rows.pop().context("no counts")?));
    // Not every user may query all samples.
    let counted = |words: fn(&[Value]) -> String| match &counts {
        Ok(counts) => words(counts),
        Err(failure) => reason(failure),
    };
    let usage = UsageQuestion {
        cluster: about.cluster.clone(),
        ..UsageQuestion::default()
    };

    let lines = [
        format!(
            "Takt {} monitors {} ({})",
            about.version,
            about.cluster.as_deref().unwrap_or("several clusters"),
            server.url()
        ),
        format!("  nodes   {}", counted(nodes)),
        format!("  GPUs    {}", counted(gpus)),
        format!("  jobs    {}", counted(jobs)),
        format!(
            "  alerts  {}",
            alerts(server).unwrap_or_else(|failure| reason(&failure))
        ),
        format!("  month   {}", month(server, &usage)),
    ];

    let mut out = stdout();
    Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?)
}

fn nodes(counts: &[Value]) -> String {
    match count(&counts[0]) {
        0 => "none: no target is configured ([scrape] in docs/configuration.md)".to_owned(),
        all => format!("{} of {all} answer", count(&counts[1])),
    }
}

fn gpus(counts: &[Value]) -> String {
    let busy = counts[4].as_f64();
    let busy = busy.map_or_else(String::new, |ratio| format!(", {} busy", percent(ratio)));
    match count(&counts[2]) {
        0 => "none found".to_owned(),
        all => format!("{} of {all} answer{busy}", count(&counts[3])),
    }
}

fn jobs(counts: &[Value]) -> String {
    let running = count(&counts[5]);
    let pending = count(&counts[6]);
    format!("{running} running, {pending} pending")
}

/// Returns why a line has no values.
fn reason(failure: &Failure) -> String {
    let (Failure::Usage(error) | Failure::Failed(error)) = failure;
    format!("unknown: {error:#}")
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns the number of firing alerts that report a fault, and names the first ones.
fn alerts(server: &Server) -> Result<String, Failure> {
    let filter = [("filter", "severity!=\"none\"")];
    let answer = server.alertmanager(Method::GET, "alerts", &filter, None)?;
    let alerts = answer.as_array().map_or(&[][..], Vec::as_slice);

    let named = alerts
        .iter()
        .take(NAMED)
        .map(|alert| {
            let label = |name: &str| alert["labels"][name].as_str().unwrap_or_default();
            match label("node") {
                "" => label("alertname").to_owned(),
                node => format!("{} on {node}", label("alertname")),
            }
        })
        .collect::<Vec<_>>()
        .join(", ");

    let more = alerts.len().saturating_sub(NAMED);
    Ok(match (alerts.len(), more) {
        (0, _) => "none firing".to_owned(),
        (firing, 0) => format!("{firing} firing: {named}"),
        (firing, more) => format!("{firing} firing: {named} and {more} more"),
    })
}

/// Returns the usage of the current month; the reason if the server has none.
fn month(server: &Server, question: &UsageQuestion) -> String {
    let report = match server.ask(question) {
        Ok(report) => report,
        Err(failure) => return reason(&failure),
    };

    let totals = &report.totals;
    let gpu_hours = totals
        .gpu_hours
        .filter(|hours| *hours > 0.0)
        .map_or_else(String::new, |hours| {
            format!("{} GPU-hours and ", amount(hours))
        });
    let cpu_hours = amount(totals.cpu_hours);

    format!(
        "{gpu_hours}{cpu_hours} CPU-hours since {}",
        &report.from[..10]
    )
}
