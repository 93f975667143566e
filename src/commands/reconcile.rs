//! `takt reconcile`: our hours beside `sreport`'s, with the reason of each difference.

use super::{one_thread, print, warn_unread};
use crate::cli::{ListingFormat, Period, Place};
use crate::place;
use crate::source::{Missing, Source};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use takt_accounting::UsageReport;
use takt_accounting::capacity::CapacityReport;
use takt_accounting::reconcile::{Circumstances, Line, reconcile};
use takt_collector::schedulers;
use takt_jobs::SreportKey;
use takt_model::UnixTime;
use takt_questions::listing::{Column, Listing};
use takt_questions::{CapacityQuestion, SqlQuestion, UsageQuestion};
use takt_server::Failure;
use takt_store::Database;

#[derive(Debug, Args)]
pub struct Reconcile {
    #[command(flatten)]
    pub period: Period,
    /// Show differences only
    #[arg(long)]
    pub differences: bool,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Reconcile) -> Result<(), Failure> {
    let (config, at) = place::find(place)?;
    let cluster = asked.cluster.clone().or_else(|| config.cluster.clone());
    let source: Source<Database> = Source::open(at, &config, Missing::Refuse)?;
    let period = &asked.period;
    let usage = source.ask(&UsageQuestion {
        month: period.month.clone(),
        from: period.from.clone(),
        to: period.to.clone(),
        // The lines of `sreport cluster AccountUtilizationByUser`.
        by: "account,user".to_owned(),
        cluster: cluster.clone(),
        ..UsageQuestion::default()
    })?;
    let capacity = source.ask(&CapacityQuestion {
        month: period.month.clone(),
        from: period.from.clone(),
        to: period.to.clone(),
        cluster,
        days: false,
    })?;
    warn_unread(place);

    let mut circumstances = circumstances(&source, &usage)?;
    for charge in &capacity.reservations_charged {
        // slurmctld reports users without their accounts, and a charge of a whole account has no
        // user.
        let of = (
            charge.owner.account.clone(),
            charge.owner.user.clone().unwrap_or_default(),
        );
        circumstances
            .entry(of)
            .or_default()
            .reserved_idle_cpu_seconds += charge.cpu_seconds;
    }
    // Slurm charges idle hours of reservations to their owners, which explains some differences.
    let with_reservations = !capacity.reservations.is_empty();
    // Periods are whole local days, the format of sreport.
    let day = |instant: &str| instant.split('T').next().unwrap_or_default().to_owned();
    let sreport = one_thread()?.block_on(schedulers::sreport(
        &config.jobs,
        &usage.timezone,
        &day(&usage.from),
        &day(&usage.to),
    ))?;

    let lines = reconcile(
        &ours(&usage, &capacity.report),
        &sreport,
        &circumstances,
        with_reservations,
    );
    let differ = lines.iter().filter(|line| line.difference != 0).count();
    let shown: Vec<Line> = lines
        .into_iter()
        .filter(|line| !asked.differences || line.difference != 0)
        .collect();
    tracing::info!(
        period_from = usage.from,
        period_to = usage.to,
        timezone = usage.timezone,
        differ,
        "compared"
    );
    print(asked.format, &listing(&shown), &shown)
}

fn ours(usage: &UsageReport, capacity: &CapacityReport) -> BTreeMap<SreportKey, u64> {
    let mut ours = BTreeMap::new();
    for row in &usage.rows {
        let value = |at: usize| {
            row.group
                .0
                .get(at)
                .and_then(|(_, value)| value.clone())
                .unwrap_or_default()
        };
        let key = |resource: &str| SreportKey {
            account: value(0),
            user: value(1),
            resource: resource.to_owned(),
            part: "used".to_owned(),
        };
        let figures = &row.figures;
        // sreport has no line for users without usage.
        let used = [
            ("cpu", figures.cpu_seconds),
            ("gres/gpu", figures.gpu_seconds.unwrap_or(0)),
        ];
        ours.extend(
            used.into_iter()
                .filter(|(_, seconds)| *seconds > 0)
                .map(|(name, seconds)| (key(name), seconds)),
        );
    }

    // The lines of `sreport cluster utilization`, which have no account and no user.
    for row in &capacity.rows {
        let parts = [
            ("allocated", row.allocated),
            ("down", row.down),
            ("planned_down", row.planned_down),
            ("idle", row.idle),
            ("planned", row.planned),
            ("reported", row.reported),
        ];
        ours.extend(parts.into_iter().map(|(part, seconds)| {
            (
                SreportKey {
                    resource: row.resource.clone(),
                    part: part.to_owned(),
                    ..SreportKey::default()
                },
                seconds,
            )
        }));
    }
    ours
}

/// Facts about each user's runs that may explain a difference.
fn circumstances(
    source: &Source<Database>,
    usage: &UsageReport,
) -> Result<BTreeMap<(String, String), Circumstances>, Failure> {
    const DAY: u32 = 86_400;
    let instant = |text: &str| {
        let instant: jiff::Timestamp = text.parse()?;
        Ok::<_, jiff::Error>(UnixTime::from(instant))
    };
    let from = instant(&usage.from)?;
    let to = instant(&usage.to)?;
    // The name goes into a statement.
    let cluster = usage.cluster.replace('\'', "''");
    let now = UnixTime::from(jiff::Timestamp::now());
    let hour = last_full_hour(now, &usage.timezone)?;

    // Slurm rolls usage up each full hour, so what ran since then is not in sreport yet.
    let uncounted = |amount: &str| {
        format!(
            "coalesce(sum({amount} * greatest(0, least(coalesce(epoch(end_time), {now}), {now}, {to})
                 - greatest(epoch(start_time), {hour}, {from})))
                 FILTER (start_time IS NOT NULL), 0)::BIGINT"
        )
    };
    let [uncounted_cpus, uncounted_gpus] = ["cpus", "gpus"].map(uncounted);
    let statement = format!(
        "SELECT account, \"user\",
                coalesce(sum(suspended_seconds * cpus), 0)::BIGINT,
                count(*) FILTER (end_time IS NULL AND epoch(start_time) + timelimit_seconds + {DAY} < {now}),
                count(*) FILTER (end_time IS NULL AND start_time IS NOT NULL),
                count(*) FILTER (gpus IS NULL AND start_time IS NOT NULL),
                count(*) FILTER (state = 'RESIZING'),
                {uncounted_cpus}, {uncounted_gpus}
         FROM jobs
         WHERE cluster = '{cluster}' AND epoch(submit_time) < {to} AND coalesce(epoch(end_time) > {from}, true)
         GROUP BY ALL"
    );
    let answer = source.ask(&SqlQuestion { statement })?;

    // SQL gives large integers as text in JSON.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let count = |value: &Value| {
        value
            .as_u64()
            .or_else(|| value.as_str()?.parse().ok())
            .unwrap_or(0)
    };
    Ok(answer
        .rows
        .iter()
        .map(|row| {
            let of = Circumstances {
                suspended_cpu_seconds: count(&row[2]),
                runaway_runs: count(&row[3]),
                open_runs: count(&row[4]),
                gpu_unknown_runs: count(&row[5]),
                resized_jobs: count(&row[6]),
                uncounted_cpu_seconds: count(&row[7]),
                uncounted_gpu_seconds: count(&row[8]),
                ..Circumstances::default()
            };
            ((text(&row[0]), text(&row[1])), of)
        })
        .collect())
}

/// Returns the last full hour on the cluster's clocks, up to which Slurm has counted.
fn last_full_hour(now: UnixTime, timezone: &str) -> Result<UnixTime, Failure> {
    let zone = jiff::tz::TimeZone::get(timezone)?;
    let seconds = jiff::Timestamp::from_second(now.0)?.to_zoned(zone);
    let into_hour = i64::from(seconds.minute()) * 60 + i64::from(seconds.second());
    Ok(now - into_hour)
}

fn listing(lines: &[Line]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("account"),
        Text("user"),
        Text("resource"),
        Text("part"),
        Number("ours_seconds"),
        Number("sreport_seconds"),
        Number("difference"),
        Text("reason"),
    ]);
    for line in lines {
        let SreportKey {
            account,
            user,
            resource,
            part,
        } = line.key.clone();
        let numbers = [
            line.ours.to_string(),
            line.sreport.to_string(),
            line.difference.to_string(),
        ];
        listing.push(
            [account, user, resource, part]
                .into_iter()
                .chain(numbers)
                .chain([line.reason.clone()])
                .collect(),
        );
    }
    listing
}
