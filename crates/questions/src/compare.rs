//! Several jobs side by side, aligned at their starts.

use super::job::{JobQuestion, JobReport};
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_store::Store;

/// Asks for several jobs side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompareQuestion {
    /// Job ids, separated by commas: two to six.
    pub jobs: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Maximum number of steps of a curve.
    pub steps: usize,
}

impl Default for CompareQuestion {
    fn default() -> Self {
        Self {
            jobs: String::new(),
            cluster: None,
            steps: 120,
        }
    }
}

/// Several jobs side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareAnswer {
    /// Time zone of the cluster (IANA name).
    pub timezone: String,
    /// The jobs, in the order of the question.
    pub jobs: Vec<JobReport>,
    /// Longest run time of the jobs, in seconds: the common axis of the curves.
    pub longest_seconds: u64,
    /// Rows of the comparison; those that differ first.
    pub rows: Vec<CompareRow>,
}

/// One property of all jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareRow {
    /// Name of the property.
    pub name: String,
    /// Whether the jobs differ: numbers by more than a twentieth.
    pub differs: bool,
    /// Value of each job.
    pub values: Vec<CompareValue>,
}

/// A value in a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareValue {
    /// Unknown.
    #[default]
    Unknown,
    /// A text.
    Text(String),
    /// A count.
    Count(u64),
    /// A ratio, 0 to 1.
    Ratio(f64),
    /// A time in seconds.
    Seconds(f64),
    /// An amount of memory, in bytes.
    Bytes(f64),
    /// GPU-hours.
    GpuHours(f64),
    /// Energy in kWh.
    Kwh(f64),
    /// Power in watts.
    Watts(f64),
}

/// Largest number of jobs in a comparison.
const MOST_JOBS: usize = 6;

/// Relative difference below which two numbers count as equal.
const ALIKE: f64 = 0.05;

impl Question for CompareQuestion {
    const PATH: &'static str = "/api/takt/v1/compare";
    const NEED: Need = Need::SignedIn;
    type Answer = CompareAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<CompareAnswer, AnswerError> {
        // The order of the question is that of the columns.
        let mut ids: Vec<&str> = Vec::new();
        for id in self.jobs.split(',').map(str::trim) {
            if !id.is_empty() && !ids.contains(&id) {
                ids.push(id);
            }
        }
        if !(2..=MOST_JOBS).contains(&ids.len()) {
            return Err(AnswerError::Usage(format!(
                "name two to {MOST_JOBS} different jobs: jobs=123,124"
            )));
        }

        let mut timezone = String::new();
        let mut jobs = Vec::new();
        // Each answer checks for itself what the viewer may see.
        for id in ids {
            let question = JobQuestion {
                job_id: id.to_owned(),
                cluster: self.cluster.clone(),
                steps: self.steps,
                ..JobQuestion::default()
            };
            let answer = question.answer(viewer, store, config)?;
            timezone = answer.timezone;
            let report = answer.report.ok_or_else(|| {
                AnswerError::Usage(format!(
                    "{id} is an array; name one of its tasks, such as {id}_1"
                ))
            })?;
            jobs.push(*report);
        }

        // The sort is stable: within both groups, rows keep the order of the table.
        let mut rows: Vec<CompareRow> = ROWS
            .iter()
            .map(|(name, of)| row(name, *of, &jobs))
            .collect();
        rows.sort_by_key(|row| !row.differs);
        Ok(CompareAnswer {
            timezone,
            longest_seconds: jobs
                .iter()
                .filter_map(|job| job.ran_seconds)
                .max()
                .unwrap_or(0),
            rows,
            jobs,
        })
    }
}

type Property = fn(&JobReport) -> CompareValue;

/// The compared properties.
const ROWS: &[(&str, Property)] = &[
    ("verdict", |job| {
        text(job.verdict.as_ref().map(|verdict| verdict.grade.word()))
    }),
    ("GPU utilization", |job| {
        ratio(
            job.efficiency
                .as_ref()
                .and_then(|seen| seen.gpu_utilization_mean),
        )
    }),
    ("GPU memory", |job| {
        bytes(
            job.efficiency
                .as_ref()
                .and_then(|seen| seen.gpu_memory_peak_bytes),
        )
    }),
    ("GPU power", |job| {
        job.efficiency
            .as_ref()
            .and_then(|seen| seen.gpu_power_mean_watts)
            .map_or(CompareValue::Unknown, CompareValue::Watts)
    }),
    ("longest idle time", |job| {
        let seen = job.efficiency.as_ref();
        seconds(seen.and_then(|seen| seen.gpu_idle_longest_seconds))
    }),
    ("wasted", |job| {
        let split = job.split_gpu_hours.as_ref();
        split
            .and_then(|split| split.known_waste())
            .map_or(CompareValue::Unknown, CompareValue::GpuHours)
    }),
    ("run time", |job| {
        seconds(job.ran_seconds.map(|ran| ran as f64))
    }),
    ("time waited", |job| {
        seconds(Some(job.waited_seconds as f64))
    }),
    ("state", |job| text(Some(&job.run.state))),
    ("exit code", |job| text(job.run.exit_code.as_deref())),
    ("CPU use", |job| {
        ratio(job.efficiency.as_ref().and_then(|seen| seen.cpu_ratio))
    }),
    ("memory", |job| {
        bytes(
            job.efficiency
                .as_ref()
                .and_then(|seen| seen.memory_peak_bytes),
        )
    }),
    ("energy", |job| {
        job.cost
            .map(|cost| cost.kwh)
            .filter(|kwh| *kwh > 0.0)
            .map_or(CompareValue::Unknown, CompareValue::Kwh)
    }),
    ("GPUs", |job| count(job.run.gpus)),
    ("GPU model", |job| text(job.run.gpu_model.as_deref())),
    ("CPUs", |job| count(job.run.cpus)),
    ("memory requested", |job| {
        bytes(job.run.mem_bytes.map(|bytes| bytes as f64))
    }),
    ("time limit", |job| {
        seconds(job.run.timelimit.map(|limit| limit as f64))
    }),
    ("nodes", |job| text(job.run.node_list.as_deref())),
    ("partition", |job| text(Some(&job.run.partition))),
    ("QOS", |job| text(job.run.qos.as_deref())),
    ("user", |job| text(Some(&job.run.user))),
    ("account", |job| text(Some(&job.run.account))),
    ("name", |job| text(job.run.name.as_deref())),
];

fn text(text: Option<&str>) -> CompareValue {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => CompareValue::Text(text.to_owned()),
        None => CompareValue::Unknown,
    }
}

fn count(count: Option<u64>) -> CompareValue {
    count.map_or(CompareValue::Unknown, CompareValue::Count)
}

fn ratio(ratio: Option<f64>) -> CompareValue {
    ratio.map_or(CompareValue::Unknown, CompareValue::Ratio)
}

fn seconds(seconds: Option<f64>) -> CompareValue {
    seconds.map_or(CompareValue::Unknown, CompareValue::Seconds)
}

fn bytes(bytes: Option<f64>) -> CompareValue {
    bytes.map_or(CompareValue::Unknown, CompareValue::Bytes)
}

fn row(name: &str, of: Property, jobs: &[JobReport]) -> CompareRow {
    let values: Vec<CompareValue> = jobs.iter().map(of).collect();
    // Each job is compared with the first one.
    let first = &values[0];
    CompareRow {
        name: name.to_owned(),
        differs: values.iter().any(|value| !is_alike(first, value)),
        values,
    }
}

fn is_alike(a: &CompareValue, b: &CompareValue) -> bool {
    match (a.number(), b.number()) {
        // Relative to the larger one, so that the order does not matter; two zeros are alike.
        (Some(a), Some(b)) => (a - b).abs() <= ALIKE * a.abs().max(b.abs()),
        _ => a == b,
    }
}

impl CompareValue {
    fn number(&self) -> Option<f64> {
        match self {
            Self::Ratio(value)
            | Self::Seconds(value)
            | Self::Bytes(value)
            | Self::GpuHours(value)
            | Self::Kwh(value)
            | Self::Watts(value) => Some(*value),
            // Counts are configured, so any difference matters.
            Self::Unknown | Self::Text(_) | Self::Count(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_jobs::JobRun;
    use takt_model::UnixTime;
    use tempfile::tempdir;

    #[test]
    fn what_differs_comes_first() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let run = |job_id: &str, cpus, end| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(100),
            start: Some(UnixTime(100)),
            end: Some(UnixTime(end)),
            state: "COMPLETED".into(),
            user: "ann".into(),
            cpus: Some(cpus),
            ..JobRun::default()
        };
        // Two jobs with one CPU and one per cent of run time between them, and an array without a job of its own.
        let runs = [
            run("1", 4, 1100),
            run("2", 5, 1110),
            run("3_1", 1, 200),
            run("3_2", 1, 200),
        ];
        import(store.database(), Some("UTC"), runs);

        let ask = |jobs: &str| {
            let question = CompareQuestion {
                jobs: jobs.into(),
                ..CompareQuestion::default()
            };
            question.answer(&Viewer::server(), &store, &AnswerConfig::default())
        };

        let answer = ask("1, 2").unwrap();
        let differing: Vec<&str> = answer
            .rows
            .iter()
            .filter(|row| row.differs)
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(differing, ["CPUs"], "a run time 1 % longer is alike");

        assert_eq!(
            answer.rows[0].values,
            [CompareValue::Count(4), CompareValue::Count(5)]
        );
        assert_eq!(answer.longest_seconds, 1010);

        let error = |jobs: &str| ask(jobs).unwrap_err().to_string();
        let expected = "name two to 6 different jobs: jobs=123,124";
        assert_eq!(error("1,1"), expected);
        assert_eq!(error("1,2,3,4,5,6,7"), expected);
        assert_eq!(error("1,9"), "no job 9 is recorded");
        assert_eq!(
            error("1,3"),
            "3 is an array; name one of its tasks, such as 3_1"
        );
    }
}
