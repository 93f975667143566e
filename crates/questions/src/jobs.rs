//! Job runs: filtered, sorted, page by page.

use super::forecast::add_forecasts;
use super::listed_run::{ListedRun, listed_run};
use super::near::did_you_mean;
use super::period::{the_common_zone, the_interval};
use super::visible::{own_runs, visible_runs};
use super::{AnswerConfig, AnswerError, Question, write_json};
use crate::query_memory::account_of;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Write;
use takt_access::{Need, Viewer};
use takt_model::UnixTime;
use takt_store::{
    Database, HeldMemory, JobCursor, JobFilter, JobOrder, JobSort, MemoryAccount, MemoryUse,
    Records, SortValue, VisibleRuns,
};

/// Runs that are read at once.
const PART: usize = 10_000;

/// Memory of a listed run, in bytes: its columns and texts.
const RUN_BYTES: u64 = 2 << 10;

/// Asks for job runs; by default the newest first. Filters combine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsQuestion {
    /// Cluster. Default: all clusters.
    pub cluster: Option<String>,
    /// Job id; its array tasks and components are included.
    pub job_id: Option<String>,
    /// User of the runs.
    pub user: Option<String>,
    /// Account of the runs.
    pub account: Option<String>,
    /// Partition of the runs.
    pub partition: Option<String>,
    /// States, separated by commas; names or Slurm's letters (`R`, `PD`).
    pub state: Option<String>,
    /// Node that the runs held.
    pub node: Option<String>,
    /// GPU model, as the scheduler names it.
    pub gpu_model: Option<String>,
    /// Runs that were queued or ran after this time: a date, an RFC 3339 time, or
    /// UTC seconds.
    pub from: Option<String>,
    /// Runs submitted before this time.
    pub to: Option<String>,
    /// Part of the job's name.
    pub name: Option<String>,
    /// Least number of GPUs.
    pub min_gpus: Option<u64>,
    /// Least waste, in GPU-hours. Only assessed runs have a known waste.
    pub min_waste: Option<f64>,
    /// Column to sort by: `submit`, `start`, `end`, `length`, `gpus`, `waste`, `utilization`,
    /// `user`, `name` or `state`; with `-` in front, the highest first. Default: `-submit`.
    pub sort: Option<String>,
    /// Position behind which the list begins: the `cursor` of the last run of the page before.
    pub after: Option<String>,
    /// Maximum number of runs.
    pub limit: usize,
}

impl Default for JobsQuestion {
    fn default() -> Self {
        Self {
            cluster: None,
            job_id: None,
            user: None,
            account: None,
            partition: None,
            state: None,
            node: None,
            gpu_model: None,
            from: None,
            to: None,
            name: None,
            min_gpus: None,
            min_waste: None,
            sort: None,
            after: None,
            limit: 1000,
        }
    }
}

impl Question for JobsQuestion {
    const PATH: &'static str = "/api/takt/v1/jobs";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<ListedRun>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<ListedRun>, AnswerError> {
        let memory = account_of(&config.memory, viewer);
        let (listed, _held) = self.listed(viewer, database, config, &memory)?;
        Ok(listed)
    }

    /// Holds the memory of the list until it is written.
    fn write_answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
        memory: &MemoryAccount,
        out: &mut dyn Write,
    ) -> Result<(), AnswerError> {
        let (listed, _held) = self.listed(viewer, database, config, memory)?;
        write_json(&listed, out)
    }
}

impl JobsQuestion {
    /// Returns the runs, and the memory that they take. It is taken before each part of the list is read.
    fn listed(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
        memory: &MemoryAccount,
    ) -> Result<(Vec<ListedRun>, HeldMemory), AnswerError> {
        let records = Records::of(database);
        let order = self.order()?;
        let mut filter = JobFilter {
            visible: self.visible(viewer, order.by),
            ..self.filter(&records, config)?
        };
        let mut after = self
            .after
            .as_deref()
            .map(|text| cursor(text, order.by))
            .transpose()?;
        let rules = &config.accounting.efficiency;

        let mut held = memory.holder(MemoryUse::Query);
        let mut listed = Vec::new();
        loop {
            let part = (self.limit - listed.len()).min(PART);
            held.grow(part as u64 * RUN_BYTES)?;
            filter.limit = Some(part);
            let found = records.listed(&filter, order, after.as_ref())?;
            let is_last = found.len() < part;
            after = found.last().map(|row| row.cursor.clone());

            listed.extend(found.into_iter().map(|row| ListedRun {
                cursor: Some(cursor_text(&row.cursor)),
                ..listed_run(row, rules, viewer)
            }));
            if is_last || listed.len() >= self.limit {
                add_forecasts(&records, config, order.now, &mut listed)?;
                return Ok((listed, held));
            }
        }
    }

    fn filter(
        &self,
        records: &Records<'_>,
        config: &AnswerConfig,
    ) -> Result<JobFilter, AnswerError> {
        let (from, to) = if self.from.is_some() || self.to.is_some() {
            let zone = the_common_zone(records, self.cluster.as_deref(), &config.accounting)?;
            the_interval(self.from.as_deref(), self.to.as_deref(), &zone)?
        } else {
            (None, None)
        };
        let states = self.state.iter().flat_map(|states| states.split(','));
        Ok(JobFilter {
            cluster: self.cluster.clone(),
            job_id: self.job_id.clone(),
            job_number: None,
            user: self.user.clone(),
            account: self.account.clone(),
            partition: self.partition.clone(),
            states: states.map(state_of).collect::<Result<_, _>>()?,
            node: self.node.clone(),
            gpu_model: self.gpu_model.clone(),
            name: self.name.clone(),
            whole_name: None,
            min_gpus: self.min_gpus,
            min_wasted_gpu_seconds: self.min_waste.map(wasted_seconds).transpose()?,
            from,
            to,
            limit: Some(self.limit),
            visible: None,
        })
    }

    /// The runs that the viewer may select. A filter or an order by what the viewer does not see of
    /// others would give it away.
    fn visible(&self, viewer: &Viewer, by: JobSort) -> Option<VisibleRuns> {
        let by_details = self.name.is_some() || by == JobSort::Name;
        let by_measurements =
            self.min_waste.is_some() || matches!(by, JobSort::Waste | JobSort::Utilization);
        let is_hidden =
            by_details && !viewer.sees_all() || by_measurements && !viewer.sees_samples();
        if is_hidden {
            Some(own_runs(viewer))
        } else {
            visible_runs(viewer)
        }
    }

    fn order(&self) -> Result<JobOrder, AnswerError> {
        let asked = self.sort.as_deref().unwrap_or("-submit");
        let name = asked.strip_prefix('-').unwrap_or(asked);
        let (_, by) = JobSort::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| {
                let names = JobSort::ALL.iter().map(|(name, _)| *name);
                AnswerError::Usage(format!(
                    "jobs cannot be sorted by '{name}'{}",
                    did_you_mean(name, names)
                ))
            })?;
        Ok(JobOrder {
            by: *by,
            is_descending: asked.starts_with('-'),
            now: UnixTime::from(Timestamp::now()),
        })
    }
}

fn wasted_seconds(hours: f64) -> Result<u64, AnswerError> {
    if hours.is_finite() && hours >= 0.0 {
        Ok((hours * 3600.0).ceil() as u64)
    } else {
        let error = format!("a waste of {hours} GPU-hours is impossible: 0 or more is expected");
        Err(AnswerError::Usage(error))
    }
}

/// A position as text: time of submission, job id and value, separated by commas. The value is
/// last, because names may contain commas.
fn cursor_text(cursor: &JobCursor) -> String {
    let value = match &cursor.value {
        SortValue::Number(number) => number.to_string(),
        SortValue::Text(text) => text.clone(),
    };
    format!("{},{},{value}", cursor.submit, cursor.job_id)
}

fn cursor(text: &str, by: JobSort) -> Result<JobCursor, AnswerError> {
    let parts: Vec<&str> = text.splitn(3, ',').collect();
    let is_text = matches!(by, JobSort::User | JobSort::Name | JobSort::State);
    let parsed = match parts.as_slice() {
        [submit, job_id, value] => submit.parse().ok().and_then(|submit| {
            let value = if is_text {
                SortValue::Text((*value).to_owned())
            } else {
                SortValue::Number(value.parse().ok()?)
            };
            Some(JobCursor {
                value,
                submit,
                job_id: (*job_id).to_owned(),
            })
        }),
        _ => None,
    };
    parsed.ok_or_else(|| {
        AnswerError::Usage(format!(
            "'{text}' is not a position in this list; begin again without 'after'"
        ))
    })
}

/// The state with this name or these letters of `squeue` and `sacct`.
fn state_of(asked: &str) -> Result<String, AnswerError> {
    let asked = asked.trim().to_uppercase();
    let known = STATES
        .iter()
        .find(|(letters, name)| *letters == asked || *name == asked);
    known.map(|(_, name)| (*name).to_owned()).ok_or_else(|| {
        let near = did_you_mean(&asked, STATES.iter().map(|(_, name)| *name));
        let known: Vec<&str> = STATES.iter().map(|(_, name)| *name).collect();
        let near = if near.is_empty() {
            format!(" (expected {})", known.join(", "))
        } else {
            near
        };
        AnswerError::Usage(format!("jobs have no state '{asked}'{near}"))
    })
}

/// The states of Slurm's jobs, with their letters.
pub const STATES: &[(&str, &str)] = &[
    ("BF", "BOOT_FAIL"),
    ("CA", "CANCELLED"),
    ("CD", "COMPLETED"),
    ("CF", "CONFIGURING"),
    ("CG", "COMPLETING"),
    ("DL", "DEADLINE"),
    // Slurm has no letters for it.
    ("EXPEDITING", "EXPEDITING"),
    ("F", "FAILED"),
    ("NF", "NODE_FAIL"),
    ("OOM", "OUT_OF_MEMORY"),
    ("PD", "PENDING"),
    ("PR", "PREEMPTED"),
    ("R", "RUNNING"),
    ("RQ", "REQUEUED"),
    ("RS", "RESIZING"),
    ("RV", "REVOKED"),
    ("S", "SUSPENDED"),
    ("ST", "STOPPED"),
    ("TO", "TIMEOUT"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::Privacy;
    use takt_store::{DataDir, MemoryBudget, Settings};
    use tempfile::tempdir;

    #[test]
    fn a_list_takes_its_memory_before_it_is_read() {
        let root = tempdir().unwrap();
        let directory = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&directory, &Settings::default()).unwrap();
        let viewer = Viewer::anonymous(Privacy::Open);
        let config = AnswerConfig {
            memory: MemoryBudget::of_bytes(1 << 20),
            ..AnswerConfig::default()
        };
        let list = |limit: usize| {
            let question = JobsQuestion {
                limit,
                ..JobsQuestion::default()
            };
            question.answer(&viewer, &database, &config)
        };

        assert_eq!(list(100).unwrap().len(), 0);
        let refused = list(usize::MAX).unwrap_err().to_string();
        assert!(refused.contains("memory_budget_mib"), "{refused}");
        assert_eq!(config.memory.held_bytes(), 0);
    }
}
