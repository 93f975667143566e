//! What the cluster had in a period and what became of it, and how that compares with what `sreport` says.

use super::Problem;
use super::questions::{the_cluster, the_period, the_zone};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_accounting::Period;
use takt_accounting::capacity::{
    CapacityReport, CapacityRun, CapacitySpan, Effect, NodeCapacity, ReservedPeriod,
    capacity as compute,
};
use takt_accounting::reservation::{ReservedRun, by_name, effect, idle_charges};
use takt_slurm::Amounts;
use takt_slurm::JobRun;
use takt_slurm::tres::TresCounts;
use takt_slurm::{Owner, Reservation};
use takt_store::{Database, Records};

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

/// What became of the cluster's resources, and what Slurm charges for reservations that nobody used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    /// What became of them.
    #[serde(flatten)]
    pub report: CapacityReport,
    /// CPU-seconds of idle reservations, which `sreport` adds to what their owners used.
    #[serde(default)]
    pub reservations_charged: Vec<Charge>,
    /// Reservations in the period, by name.
    #[serde(default)]
    pub reservations: Vec<String>,
}

/// What Slurm charges an owner of reservations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Who.
    #[serde(flatten)]
    pub owner: Owner,
    /// CPUs × seconds.
    pub cpu_seconds: u64,
}

/// Answers a [`CapacityQuestion`], as of now.
///
/// # Errors
/// A question that makes no sense, or a database that does not answer.
pub fn capacity(
    database: &Database,
    question: &CapacityQuestion,
) -> Result<CapacityAnswer, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let (zone, now) = (the_zone(&cluster)?, Timestamp::now());
    let period = the_period(&question.month, &question.from, &question.to, &zone, now)?;
    let nodes = records
        .node_capacities(&cluster.cluster)
        .map_err(Problem::failed)?;
    let reservations = records
        .reservations(&cluster.cluster, period.from())
        .map_err(Problem::failed)?;
    let runs = records
        .capacity_runs(&cluster.cluster, period.from(), period.to())
        .map_err(Problem::failed)?;
    let reserved: Vec<ReservedRun<'_>> = runs
        .iter()
        .filter_map(|run| reserved(run, now.as_second()))
        .collect();
    let charged = idle_charges(
        &reservations,
        &reserved,
        (period.from(), period.to().min(now.as_second())),
    );
    let mut names: Vec<String> = reservations
        .iter()
        .filter(|kept| kept.from < period.to())
        .map(|kept| kept.name.clone())
        .collect();
    names.dedup();
    Ok(CapacityAnswer {
        report: report(
            &records,
            &cluster.cluster,
            &period,
            (&nodes, &reservations, &runs),
            now,
        )?,
        reservations_charged: charged
            .into_iter()
            .map(|(owner, cpu_seconds)| Charge { owner, cpu_seconds })
            .collect(),
        reservations: names,
    })
}

/// Computes the report of a period from nodes, reservations and runs of the records.
pub(super) fn report(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    (nodes, reservations, runs): (&[NodeCapacity], &[Reservation], &[JobRun]),
    now: Timestamp,
) -> Result<CapacityReport, Problem> {
    let spans = records
        .capacity_spans(cluster, period.from())
        .map_err(Problem::failed)?;
    let spans = with_reservations(spans, reservations, nodes);
    let kept = kept(reservations);
    let mut wanted: HashMap<&str, Amounts> = HashMap::new();
    let runs = runs.iter().map(|run| {
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
            wanted: run.req_tres.as_deref().map_or(held, |text| {
                *wanted.entry(text).or_insert_with(|| amounts(text))
            }),
            node_list: run.node_list.as_deref(),
            reservation: run.reservation.as_deref(),
        }
    });
    Ok(compute(
        cluster,
        period,
        &spans,
        &kept,
        nodes,
        runs,
        now.as_second(),
    ))
}

/// What the nodes' history and the reservations did to what there was.
fn with_reservations(
    spans: Vec<CapacitySpan>,
    reservations: &[Reservation],
    nodes: &[NodeCapacity],
) -> Vec<CapacitySpan> {
    let has = by_name(nodes);
    let span = |kept: &Reservation| {
        Some(CapacitySpan {
            effect: effect(kept)?,
            from: kept.from,
            to: Some(kept.to),
            amounts: kept.amounts(&has),
        })
    };
    spans
        .into_iter()
        .chain(reservations.iter().filter_map(span))
        .collect()
}

/// The reservations that keep something for somebody.
fn kept(reservations: &[Reservation]) -> Vec<ReservedPeriod<'_>> {
    let is_kept = |kept: &&Reservation| effect(kept) == Some(Effect::Reserved);
    reservations
        .iter()
        .filter(is_kept)
        .map(|kept| ReservedPeriod {
            name: &kept.name,
            from: kept.from,
            to: kept.to,
        })
        .collect()
}

/// A run in a reservation.
fn reserved(run: &JobRun, now: i64) -> Option<ReservedRun<'_>> {
    Some(ReservedRun {
        reservation: run.reservation.as_deref()?,
        start: run.start?,
        end: run.end.unwrap_or(now),
    })
}

fn amounts(tres: &str) -> Amounts {
    let tres = TresCounts::parse(tres).ok().flatten().unwrap_or_default();
    Amounts {
        cpus: tres.cpus.unwrap_or(0),
        gpus: tres.gpus.unwrap_or(0),
        mem_bytes: tres.mem_bytes.unwrap_or(0),
    }
}
