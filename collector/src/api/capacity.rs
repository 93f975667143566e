//! What the cluster had in a period and what became of it, and how that compares with what `sreport` says.

use super::Problem;
use super::questions::{the_cluster, the_period, the_zone};
use crate::accounting::capacity::{Amounts, CapacityReport, CapacityRun, capacity as compute};
use crate::jobs::tres::Tres;
use crate::store::{Database, Records};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What became of the cluster's resources in a period?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityQuestion {
    /// A month, `2026-10`; the current one where no period is given.
    pub month: Option<String>,
    /// The first day.
    pub from: Option<String>,
    /// The first day that is outside.
    pub to: Option<String>,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
}

/// Answers a [`CapacityQuestion`], as of now.
///
/// # Errors
/// A question that makes no sense, or a database that does not answer.
pub fn capacity(database: &Database, question: &CapacityQuestion) -> Result<CapacityReport, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let (zone, now) = (the_zone(&cluster)?, Timestamp::now());
    let period = the_period(&question.month, &question.from, &question.to, &zone, now)?;
    let spans = records.capacity_spans(&cluster.cluster, period.from()).map_err(Problem::failed)?;
    let nodes = records.node_capacities(&cluster.cluster).map_err(Problem::failed)?;
    let runs = records.capacity_runs(&cluster.cluster, period.from(), period.to()).map_err(Problem::failed)?;
    let mut wanted: HashMap<&str, Amounts> = HashMap::new();
    let runs: Vec<CapacityRun<'_>> = runs
        .iter()
        .map(|run| {
            let held = Amounts {
                cpus: run.cpus.unwrap_or(0),
                gpus: run.gpus.unwrap_or(0),
                mem_bytes: run.mem_bytes.unwrap_or(0),
            };
            CapacityRun {
                eligible: run.eligible,
                start: run.start,
                end: run.end,
                suspended: run.suspended.unwrap_or(0),
                held,
                wanted: run
                    .req_tres
                    .as_deref()
                    .map_or(held, |text| *wanted.entry(text).or_insert_with(|| amounts(text))),
                node_list: run.node_list.as_deref(),
            }
        })
        .collect();
    Ok(compute(&cluster.cluster, &period, &spans, &nodes, runs, now.as_second()))
}

fn amounts(tres: &str) -> Amounts {
    let tres = Tres::parse(tres).ok().flatten().unwrap_or_default();
    Amounts { cpus: tres.cpus.unwrap_or(0), gpus: tres.gpus.unwrap_or(0), mem_bytes: tres.mem_bytes.unwrap_or(0) }
}
