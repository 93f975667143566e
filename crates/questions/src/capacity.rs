//! Use of the cluster's resources in a period, as `sreport cluster utilization` reports it.

use super::period::{at_most_days, the_cluster, the_period, the_zone};
use super::visible::shown_owner;
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_access::{Need, Viewer};
use takt_accounting::capacity::{
    CapacityReport, CapacityRow, CapacityRun, Effect, NodeCapacity, ReservedPeriod,
    capacity as compute,
};
use takt_accounting::reservation::{ReservedRun, by_name, effect, idle_charges, spans};
use takt_accounting::{Period, TimeSlice, Unit};
use takt_jobs::{Amounts, Owner, Reservation};
use takt_model::UnixTime;
use takt_slurm::tres::TresCounts;
use takt_store::{Database, HoldingRun, Records};

/// Asks for the use of the cluster's resources in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// Whether the answer also has the use of each day.
    pub days: bool,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// Use of the cluster's resources, and Slurm's charges for idle reservations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    /// Use of the resources.
    #[serde(flatten)]
    pub report: CapacityReport,
    /// CPU-seconds of idle reservations, which `sreport` adds to the usage of their owners.
    #[serde(default)]
    pub reservations_charged: Vec<Charge>,
    /// Names of the reservations in the period.
    #[serde(default)]
    pub reservations: Vec<String>,
    /// Use of each day that has begun, if the question asks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<CapacityDay>,
}

/// Use of the cluster's resources on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityDay {
    /// Date, `2026-10-25`.
    pub date: String,
    /// One row per resource.
    pub rows: Vec<CapacityRow>,
}

/// Slurm's charge to the owner of reservations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Account and user.
    #[serde(flatten)]
    pub owner: Owner,
    /// CPUs × seconds.
    pub cpu_seconds: u64,
}

impl Question for CapacityQuestion {
    const PATH: &'static str = "/api/takt/v1/capacity";
    const NEED: Need = Need::SignedIn;
    type Answer = CapacityAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<CapacityAnswer, AnswerError> {
        let records = Records::of(database);
        let cluster = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&cluster, &config.accounting)?;
        let cluster = cluster.cluster;
        let now = Timestamp::now();
        let period = the_period(&self.month, &self.from, &self.to, &zone, now)?;
        if self.days {
            at_most_days(&period, MOST_DAYS)?;
        }

        let nodes = records.node_capacities(&cluster)?;
        let reservations = records.reservations(&cluster, period.from())?;
        let runs = records.capacity_runs(&cluster, period.from(), period.to())?;
        let held = (&*nodes, &*reservations, &*runs);
        let records_from = records.extent(&cluster)?.map(|(from, _)| from);
        // Idle time before the first record is unknown: the cluster may have had jobs.
        let records_from = records_from.filter(|begin| period.begins_unrecorded(*begin));
        let days = if self.days {
            days(&records, &cluster, &period, held, records_from, now)?
        } else {
            Vec::new()
        };

        let now = UnixTime::from(now);
        let reserved: Vec<ReservedRun<'_>> =
            runs.iter().filter_map(|run| reserved(run, now)).collect();
        let until_now = (period.from(), period.to().min(now));
        let charged = idle_charges(&reservations, &reserved, until_now);
        let mut names: Vec<String> = reservations
            .iter()
            .filter(|reservation| reservation.from < period.to())
            .map(|reservation| reservation.name.clone())
            .collect();
        names.dedup();

        Ok(CapacityAnswer {
            report: report(&records, &cluster, &period, held, records_from, now)?,
            days,
            reservations_charged: charged
                .into_iter()
                .map(|(owner, cpu_seconds)| Charge {
                    owner: shown_owner(viewer, owner),
                    cpu_seconds,
                })
                .collect(),
            reservations: names,
        })
    }
}

/// Longest period of which each day is listed, in days: ten years. Each reads the states of the nodes.
const MOST_DAYS: i64 = 3_653;

/// Nodes, reservations and runs of a period.
type Held<'h> = (&'h [NodeCapacity], &'h [Reservation], &'h [HoldingRun]);

/// The use of each day of the period until now.
fn days(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    (nodes, reservations, runs): Held<'_>,
    records_from: Option<UnixTime>,
    now: Timestamp,
) -> Result<Vec<CapacityDay>, AnswerError> {
    period
        .slices(Unit::Day)
        .into_iter()
        .filter(|day| day.from < now.into())
        .map(|slice| {
            // A day is computed as a period of its own, from the runs that touch it.
            let day = Period::of_slice(&slice, &period.zone());
            let runs: Vec<HoldingRun> = runs
                .iter()
                .filter(|run| run.submit < slice.to && run.end.is_none_or(|end| end > slice.from))
                .cloned()
                .collect();
            let held = (nodes, reservations, &*runs);
            let report = report(records, cluster, &day, held, records_from, now.into())?;
            Ok(CapacityDay {
                date: slice.name,
                rows: report.rows,
            })
        })
        .collect()
}

/// Computes the report of a period from the nodes, reservations and runs of the records, which begin at `records_from` if
/// they lack a part of it.
///
/// # Errors
/// When the store fails.
pub(super) fn report(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    (nodes, reservations, runs): Held<'_>,
    records_from: Option<UnixTime>,
    now: UnixTime,
) -> Result<CapacityReport, AnswerError> {
    let events = records.node_events(cluster, period.from())?;
    let spans = spans(&events, reservations, &by_name(nodes));
    let kept = kept(reservations);
    let runs = capacity_runs(runs);

    let compute = |period: &Period| {
        let runs = runs.iter().cloned();
        compute(cluster, period, &spans, &kept, nodes, runs, now)
    };

    // Nodes are known before the records begin; what they were idle then is not idle, but unrecorded.
    let mut report = compute(period);
    if let Some(begin) = records_from.filter(|begin| *begin > period.from()) {
        let before = TimeSlice {
            name: String::new(),
            from: period.from(),
            to: begin.min(period.to()),
        };
        let unrecorded = compute(&Period::of_slice(&before, &period.zone())).rows;
        // Reservations and outages before the records are known, so only idle time is unknown.
        for (row, before) in report.rows.iter_mut().zip(unrecorded) {
            row.unrecorded = before.idle.min(row.idle);
        }
    }
    Ok(report)
}

/// The runs with the amounts that they held and requested.
fn capacity_runs<'r>(runs: &'r [HoldingRun]) -> Vec<CapacityRun<'r>> {
    // Many runs request the same TRES; each text is parsed once.
    let mut wanted: HashMap<&'r str, Amounts> = HashMap::new();
    runs.iter()
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
                wanted: run.req_tres.as_deref().map_or(held, |text| {
                    *wanted.entry(text).or_insert_with(|| amounts(text))
                }),
                node_list: run.node_list.as_deref(),
                reservation: run.reservation.as_deref(),
            }
        })
        .collect()
}

/// The reservations that keep resources free for their owners.
fn kept(reservations: &[Reservation]) -> Vec<ReservedPeriod<'_>> {
    reservations
        .iter()
        .filter(|kept| effect(kept) == Some(Effect::Reserved))
        .map(|kept| ReservedPeriod {
            name: &kept.name,
            from: kept.from,
            to: kept.to,
        })
        .collect()
}

/// The run, if it used a reservation.
fn reserved(run: &HoldingRun, now: UnixTime) -> Option<ReservedRun<'_>> {
    Some(ReservedRun {
        reservation: run.reservation.as_deref()?,
        start: run.start?,
        end: run.end.unwrap_or(now),
    })
}

/// The amounts in a TRES text; 0 for those it does not name.
fn amounts(tres: &str) -> Amounts {
    let tres = TresCounts::parse(tres).ok().flatten().unwrap_or_default();
    Amounts {
        // Amounts that the text lacks were not requested.
        cpus: tres.cpus.unwrap_or(0),
        gpus: tres.gpus.unwrap_or(0),
        mem_bytes: tres.mem_bytes.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, import};
    use takt_jobs::{JobRun, NodeEvent};

    const DAY: u64 = 86_400;

    /// The cluster was registered long before the first job that was read: the days between were no idle days.
    #[test]
    fn time_before_the_records_begin_is_unknown_and_not_idle() {
        let (_root, database) = database();
        // The job holds four of six GPUs on one of the eight recorded days.
        let at = |text: &str| UnixTime::from(text.parse::<Timestamp>().unwrap());
        let begin = at("2025-10-24T00:00:00Z");
        let run = JobRun {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: begin,
            eligible: Some(begin),
            start: Some(begin),
            end: Some(begin + 86_400),
            state: "COMPLETED".into(),
            user: "ann".into(),
            gpus: Some(4),
            ..JobRun::default()
        };
        import(&database, Some("UTC"), vec![run]);
        // An event without a node is the cluster's registration with its amounts.
        let registered = NodeEvent {
            node: String::new(),
            state: String::new(),
            reason: None,
            has: Amounts {
                gpus: 6,
                ..Amounts::default()
            },
            from: at("2025-09-01T00:00:00Z"),
            to: None,
        };
        let records = Records::of(&database);
        records
            .note_node_events("lab", &[registered], "slurmdbd")
            .unwrap();

        let question = CapacityQuestion {
            month: Some("2025-10".to_owned()),
            days: true,
            ..CapacityQuestion::default()
        };
        let answer = question
            .answer(&Viewer::server(), &database, &AnswerConfig::default())
            .unwrap();
        let gpus = |rows: &[CapacityRow]| rows[1].clone();
        let month = gpus(&answer.report.rows);
        // 23 of 31 days are before the first record.
        assert_eq!(month.unrecorded, 6 * 23 * DAY);
        assert_eq!(month.idle, 6 * 31 * DAY - 4 * DAY, "as sreport has it");
        let [held, .., idle, _] = month.parts();
        assert_eq!(idle.1, 6 * 8 * DAY - 4 * DAY);
        assert_eq!(month.ratio(held), Some(4.0 / 48.0));

        // The days add up to the month.
        let of_days: u64 = answer
            .days
            .iter()
            .map(|day| gpus(&day.rows).unrecorded)
            .sum();
        assert_eq!(of_days, month.unrecorded);
    }
}
