//! What other nodes, limits or requests would have changed in a past period, after a back-test with what was recorded.
//!
//! `past` turns records into a period to replay, `changes` reads what is asked.

mod changes;
mod past;
#[cfg(test)]
mod tests;

use crate::forecast::UnmodelledRule;
use crate::period::{rfc3339, the_cluster, the_period, the_zone};
use crate::{AnswerConfig, AnswerError, Question};
use changes::{applied, period_changes};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use past::PastRecords;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use takt_access::{Need, Owner, Role, Viewer};
use takt_accounting::Period;
use takt_model::UnixTime;
use takt_model::words::percent;
use takt_simulate::{
    BackTest, ChangeInterval, PeriodDifference, PeriodUse, WaitDifference, WaitGroup, back_test,
    compare_periods,
};
use takt_store::{Database, Records, is_abandoned};

/// Asks what changes would have brought in a past period. Without a change: how close the replay is to the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfQuestion {
    /// Nodes to add, `g[31-34]`.
    pub add: Option<String>,
    /// Node that the added ones resemble. Optional if all nodes are alike.
    pub like: Option<String>,
    /// Nodes to remove.
    pub remove: Option<String>,
    /// Largest time limits, `PARTITION=HOURS`, with commas.
    pub limit: Option<String>,
    /// `used`: every job had asked for the time that it ran.
    pub runtime: Option<String>,
    /// Nodes that had not failed.
    pub node_ok: Option<String>,
    /// Number of jobs, as a factor of the recorded one.
    pub requests: Option<f64>,
    /// Month, `2026-10`. Default without a period: the last four weeks with records.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Maximum number of pairs of replays.
    pub replays: u32,
    /// Time for the replays, in seconds: fewer are made if it is over.
    pub seconds: u64,
}

impl Default for WhatIfQuestion {
    fn default() -> Self {
        Self {
            add: None,
            like: None,
            remove: None,
            limit: None,
            runtime: None,
            node_ok: None,
            requests: None,
            month: None,
            from: None,
            to: None,
            cluster: None,
            replays: 15,
            seconds: 20,
        }
    }
}

/// What changes would have brought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhatIfAnswer {
    /// Cluster.
    pub cluster: String,
    /// Name of the period: `2026-10`, or its days.
    pub period: String,
    /// First instant of the period.
    pub from: UnixTime,
    /// First instant after the period.
    pub to: UnixTime,
    /// Time zone of the period's days (IANA name).
    pub timezone: String,
    /// Jobs that were replayed.
    pub jobs: usize,
    /// Nodes that were replayed.
    pub nodes: usize,
    /// Waits of the replay and of the records.
    pub back_test: BackTest,
    /// Utilization of the replay and of the records.
    pub back_test_use: Vec<UseRow>,
    /// Whether the replay is close enough to the records to answer from it.
    pub is_close: bool,
    /// How close the replay is, as a sentence.
    pub words: String,
    /// Rules of the site that the replays do not know.
    pub not_modelled: Vec<UnmodelledRule>,
    /// What the changes are, a sentence each. Empty without changes.
    pub changes: Vec<String>,
    /// Pairs of replays. 0 without changes, and if the replay is not close to the records.
    pub pairs: u32,
    /// Waits before and after, of all jobs, then by partition, size, account and user.
    pub rows: Vec<WaitDifference>,
    /// Utilization before and after.
    pub uses: Vec<UseRow>,
    /// Change of the utilization of the cluster, from 0 to 1.
    pub use_change: ChangeInterval,
    /// GPU-hours within the period before and after.
    pub gpu_hours: [f64; 2],
    /// Jobs that never start after the change.
    pub lost_jobs: usize,
    /// Whether rows about others are left out.
    pub is_reduced: bool,
}

/// Two utilizations of a partition: recorded and replayed, or before and after a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UseRow {
    /// Partition; empty for the cluster.
    pub partition: String,
    /// Recorded, or before: share of the GPUs, or of the CPUs where there are none. `None` without any.
    pub first: Option<f64>,
    /// Replayed, or after.
    pub second: Option<f64>,
}

/// Weeks of the default period.
const WEEKS: i32 = 4;

/// Distance between the replayed and the recorded utilization of the cluster up to which a replay is close.
const MOST_USE_ERROR: f64 = 0.05;

/// Longest time for replays, in seconds.
const MOST_SECONDS: u64 = 120;

/// The same for others than administrators and support.
const MOST_SECONDS_OF_USER: u64 = 20;

/// Most pairs of replays.
const MOST_REPLAYS: u32 = 100;

impl Question for WhatIfQuestion {
    const PATH: &'static str = "/api/takt/v1/whatif";
    const NEED: Need = Need::SignedIn;
    type Answer = WhatIfAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<WhatIfAnswer, AnswerError> {
        config.kept.answer(self, viewer, database, || {
            self.read(viewer, &Records::of(database), config)
        })
    }
}

impl WhatIfQuestion {
    fn read(
        &self,
        viewer: &Viewer,
        records: &Records<'_>,
        config: &AnswerConfig,
    ) -> Result<WhatIfAnswer, AnswerError> {
        let known = the_cluster(
            records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&known, &config.accounting)?;
        let cluster = known.cluster;
        let period = self.the_period(records, &cluster, &zone)?;
        let now = UnixTime::from(Timestamp::now());
        let to = period.to().min(now);
        if to <= period.from() {
            let error = format!(
                "the period {} is still to come: choose a past one",
                period.label()
            );
            return Err(AnswerError::Usage(error));
        }

        let past = PastRecords::read(records, &cluster, period.from(), to)?;
        let changes = period_changes(self, &past)?;
        let mut changed = past.period.clone();
        let mut words = Vec::new();
        for change in &changes {
            words.push(applied(change, &mut changed)?);
        }

        let clock = ReplayClock::start(self.seconds, viewer);
        let before = &past.period;
        let Some(replayed) = before.replay(0, &mut || clock.has_patience()) else {
            return Err(clock.error(before.jobs.len()));
        };
        let capacity = before.capacity();
        let mut answer = WhatIfAnswer {
            cluster,
            period: period.label(),
            from: period.from(),
            to,
            timezone: period.zone_name(),
            jobs: before.jobs.len(),
            nodes: before.cluster.nodes.len(),
            back_test: back_test(&before.waited(&replayed)),
            back_test_use: use_rows(
                (&before.recorded_use(), &capacity),
                (&replayed.used, &capacity),
            ),
            changes: words,
            ..WhatIfAnswer::default()
        };
        answer.not_modelled = past.not_modelled;
        if replayed.without_start > 0 {
            answer.not_modelled.push(UnmodelledRule {
                rule: "jobs that ran, but by what is known fit on no nodes".to_owned(),
                count: Some(replayed.without_start),
            });
        }
        answer.judge();

        if answer.is_close && !changes.is_empty() {
            let most = self.replays.clamp(1, MOST_REPLAYS);
            let found = compare_periods(before, &changed, |pairs| match pairs {
                0 => clock.has_patience(),
                pairs => pairs < most && clock.has_time(),
            });
            let Some(found) = found else {
                return Err(clock.error(before.jobs.len()));
            };
            answer.tell(found, &capacity, &changed.capacity());
        }
        answer.reduce(viewer);
        Ok(answer)
    }

    /// The period of the question. Without one, the last four weeks of whole days with records.
    fn the_period(
        &self,
        records: &Records<'_>,
        cluster: &str,
        zone: &TimeZone,
    ) -> Result<Period, AnswerError> {
        let now = Timestamp::now();
        if self.month.is_some() || self.from.is_some() || self.to.is_some() {
            return the_period(&self.month, &self.from, &self.to, zone, now);
        }
        let Some((first, last)) = records.extent(cluster)? else {
            let error =
                format!("cluster {cluster} has no job records: a what-if replays past jobs");
            return Err(AnswerError::Input(error));
        };

        // The day that is not over yet is left out, unless there is no other.
        let last = Timestamp::try_from(last).unwrap_or(now).min(now);
        let midnight = last.to_zoned(zone.clone()).start_of_day();
        let end = midnight.map_or(last, |midnight| midnight.timestamp());
        let end = if UnixTime::from(end) > first {
            end
        } else {
            last
        };
        let weeks = end.to_zoned(zone.clone()).checked_sub(WEEKS.weeks());
        let begin = weeks.map_or(end, |begin| begin.timestamp());
        let from = UnixTime::from(begin).max(first);
        let to = UnixTime::from(end).max(from + 1);
        Period::span(&rfc3339(from), &rfc3339(to), zone, now).map_err(AnswerError::usage)
    }
}

/// The time that the replays of one answer may take.
struct ReplayClock {
    began: Instant,
    time: Duration,
    /// Time for the first replays.
    patience: Duration,
}

impl ReplayClock {
    fn start(seconds: u64, viewer: &Viewer) -> Self {
        // A few users must not hold all places of questions for minutes.
        let (most, patience) = match viewer.role() {
            Role::Admin | Role::Support => (MOST_SECONDS, 3),
            _ => (MOST_SECONDS_OF_USER, 1),
        };
        let time = Duration::from_secs(seconds.clamp(1, most));
        Self {
            began: Instant::now(),
            time,
            patience: time * patience,
        }
    }

    fn has_time(&self) -> bool {
        self.began.elapsed() < self.time && !is_abandoned()
    }

    /// The first replays, without which there is no answer, may have more time.
    fn has_patience(&self) -> bool {
        self.began.elapsed() < self.patience && !is_abandoned()
    }

    fn error(&self, jobs: usize) -> AnswerError {
        AnswerError::Input(format!(
            "{jobs} jobs could not be replayed within {} s: choose a shorter period, or more seconds (at most {MOST_SECONDS})",
            self.patience.as_secs()
        ))
    }
}

impl WhatIfAnswer {
    /// Decides whether the replay is close enough to the records.
    fn judge(&mut self) {
        let all = self.back_test_use.first();
        let both = all.and_then(|row| row.first.zip(row.second));
        let use_error = both.map_or(0.0, |(recorded, replayed)| (replayed - recorded).abs());
        let alike = self.back_test.alike_ratio();
        self.is_close = self.back_test.is_within() && use_error <= MOST_USE_ERROR;

        let waits = match alike {
            Some(ratio) => format!(
                "{} of the jobs are in classes whose median wait and 90th percentile are within 10 min or a factor of 2 of the \
                 recorded ones (least: {})",
                percent(ratio),
                percent(BackTest::LEAST_ALIKE_RATIO)
            ),
            None => format!("{} jobs are compared all together", self.back_test.all.jobs),
        };
        let use_words = both.map_or_else(String::new, |(recorded, replayed)| {
            format!(
                "; the utilization is {} in the replay and {} in the records (largest difference: {} points)",
                percent(replayed),
                percent(recorded),
                (MOST_USE_ERROR * 100.0).round()
            )
        });
        self.words = if self.is_close {
            format!("The replay is close to the records: {waits}{use_words}.")
        } else {
            format!(
                "The replay is not close to the records, so no what-if is answered: {waits}{use_words}. Rules that it does \
                 not know are listed below."
            )
        };
    }

    fn tell(&mut self, found: PeriodDifference, before: &PeriodUse, after: &PeriodUse) {
        self.pairs = found.pairs;
        self.rows = found.rows;
        self.uses = use_rows((&found.before, before), (&found.after, after));
        self.use_change = found.use_change;
        self.gpu_hours = [&found.before, &found.after].map(|use_| use_.gpu_seconds("") / 3600.0);
        self.lost_jobs = found.lost_jobs;
    }

    /// Leaves the totals and the own rows to a viewer who may not see the sums of others.
    fn reduce(&mut self, viewer: &Viewer) {
        if viewer.sees_usage(Owner::new("", "")) {
            return;
        }
        // A partition or a size may be one user's.
        self.is_reduced = true;
        self.back_test.rows.clear();
        for uses in [&mut self.back_test_use, &mut self.uses] {
            uses.retain(|row| row.partition.is_empty());
        }
        self.rows.retain(|row| match row.by {
            WaitGroup::All => true,
            WaitGroup::User => viewer.sees_usage(Owner::new(&row.name, "")),
            WaitGroup::Account => viewer.sees_usage(Owner::new("", &row.name)),
            WaitGroup::Partition | WaitGroup::Size => false,
        });
    }
}

/// Utilization of the cluster, then of each partition, of two uses with their capacities.
fn use_rows(first: (&PeriodUse, &PeriodUse), second: (&PeriodUse, &PeriodUse)) -> Vec<UseRow> {
    let mut names = vec![""];
    names.extend(first.1.partitions());
    names
        .into_iter()
        .map(|name| UseRow {
            partition: name.to_owned(),
            first: first.0.ratio(first.1, name),
            second: second.0.ratio(second.1, name),
        })
        .collect()
}
