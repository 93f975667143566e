//! The facts of all checks, read once.

use super::DoctorConfig;
use crate::answers::AnswerError;
use jiff::Timestamp as Now;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher, Timestamp};
use takt_slurm::{JobRun, nodelist};
use takt_store::{JobFilter, Records, Store};

/// How far back the last sample of a series may be.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Series that checks read.
const METRICS: &[&str] = &[
    "up",
    "takt_exporter_build_info",
    "takt_gpu_info",
    "takt_gpu_up",
    "takt_gpu_process_without_job",
    "takt_gpu_row_remap_failed",
    "takt_gpu_pcie_degraded",
    "takt_gpu_job_info",
    "takt_job_info",
    "takt_jobs_unreadable",
    "takt_kernel_log_followed",
    "node_time_seconds",
    "node_timex_sync_status",
    "takt_nfs_mount_hung_seconds",
    "takt_link_negotiated_bits_per_second",
    "takt_link_capability_bits_per_second",
    "takt_link_partner_bits_per_second",
    "takt_disk_healthy",
    "takt_nvme_critical_warning",
    "takt_store_disk_free_bytes",
    "takt_store_disk_size_bytes",
    "takt_slurm_up",
    "process_start_time_seconds",
];

/// Jobs that are younger may be missing in the records: the server reads Slurm once a minute.
const RECORDED_WITHIN: Duration = Duration::from_secs(150);

/// Maximum number of unrecorded jobs.
const UNRECORDED_MAX: usize = 10;

/// The last value of a series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub labels: Labels,
    pub at: Timestamp,
    pub value: f64,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunningJob {
    /// Slurm's own number, by which exporters name the job.
    pub number: String,
    pub nodes: Vec<String>,
    /// Number of GPUs; `None` if Slurm does not say.
    pub gpus: Option<u64>,
}

/// Everything that checks need.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Last values by metric.
    pub readings: BTreeMap<String, Vec<Reading>>,
    /// Nodes of the scheduler, and their number of GPUs; empty without a scheduler.
    pub slurm_nodes: BTreeMap<String, u64>,
    /// Running jobs of the scheduler.
    pub running: Vec<RunningJob>,
    /// Number and node of jobs that exporters see and Slurm's records lack.
    pub unrecorded: Vec<(String, String)>,
    /// Time of the facts, UTC seconds.
    pub now: f64,
    /// Version of the server.
    pub version: String,
    pub config: DoctorConfig,
}

impl Facts {
    /// Reads the facts.
    pub fn gather(store: &Store, config: &DoctorConfig) -> Result<Self, AnswerError> {
        let now = Timestamp::from(Now::now());
        let metrics = Matcher::new(METRIC_NAME, MatchOp::Regex, &METRICS.join("|"));
        let metrics = metrics.map_err(AnswerError::failed)?;
        let mut readings: BTreeMap<String, Vec<Reading>> = BTreeMap::new();
        for series in store.instant(&[metrics], now, LOOKBACK)? {
            let Some(last) = series.samples.last() else {
                continue;
            };
            readings
                .entry(series.labels.metric().to_owned())
                .or_default()
                .push(Reading {
                    at: last.at,
                    value: last.value,
                    labels: series.labels,
                });
        }
        let records = Records::of(store.database());
        let clusters = records.clusters()?;
        let cluster = config
            .cluster
            .clone()
            .or_else(|| match clusters.as_slice() {
                [only] => Some(only.cluster.clone()),
                _ => None,
            });
        let mut facts = Self {
            readings,
            now: now.as_seconds(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: config.clone(),
            ..Self::default()
        };
        if let Some(cluster) = cluster {
            let nodes = records.node_capacities(&cluster)?;
            let nodes = nodes.into_iter().map(|node| (node.node, node.amounts.gpus));
            facts.slurm_nodes = nodes.collect();
            facts.unrecorded = facts.find_unrecorded(store, &records, &cluster, now)?;
            let running = records.jobs(&JobFilter {
                cluster: Some(cluster),
                states: vec!["RUNNING".to_owned()],
                ..JobFilter::default()
            })?;
            facts.running = running.into_iter().map(RunningJob::of).collect();
        }
        Ok(facts)
    }

    /// Returns Slurm's jobs that exporters have seen for some time and that have no record.
    fn find_unrecorded(
        &self,
        store: &Store,
        records: &Records<'_>,
        cluster: &str,
        now: Timestamp,
    ) -> Result<Vec<(String, String)>, AnswerError> {
        let jobs = Matcher::new(METRIC_NAME, MatchOp::Equal, "takt_job_info");
        let jobs = jobs.map_err(AnswerError::failed)?;
        let before = store.instant(&[jobs], now.minus(RECORDED_WITHIN), LOOKBACK)?;
        let before: BTreeSet<Labels> = before.into_iter().map(|series| series.labels).collect();
        let mut found = Vec::new();
        let present = self.values("takt_job_info").iter();
        let old =
            present.filter(|job| job.label("scheduler") == "slurm" && before.contains(&job.labels));
        for job in old {
            let filter = JobFilter {
                cluster: Some(cluster.to_owned()),
                job_number: Some(job.label("jobid").to_owned()),
                limit: Some(1),
                ..JobFilter::default()
            };
            if records.jobs(&filter)?.is_empty() {
                found.push((job.label("jobid").to_owned(), job.node().to_owned()));
            }
            if found.len() == UNRECORDED_MAX {
                break;
            }
        }
        Ok(found)
    }

    /// Returns when the server started, UTC seconds; `None` before its first own samples.
    pub fn server_started_at(&self) -> Option<f64> {
        let all = self.values("process_start_time_seconds").iter();
        let own = all.filter(|reading| reading.label("job") == "takt-server");
        own.map(|reading| reading.value).next_back()
    }

    /// Returns the last values of a metric.
    pub fn values(&self, metric: &str) -> &[Reading] {
        self.readings.get(metric).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes with an exporter that answers.
    pub fn nodes_up(&self) -> BTreeSet<&str> {
        let up = self.values("up").iter();
        up.filter(|reading| reading.value == 1.0)
            .map(Reading::node)
            .filter(|node| !node.is_empty())
            .collect()
    }
}

impl Reading {
    /// Returns a label, or an empty text.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).unwrap_or_default()
    }

    /// Returns the node of the series, or an empty text.
    pub fn node(&self) -> &str {
        self.label("node")
    }
}

impl RunningJob {
    fn of(run: JobRun) -> Self {
        let nodes = run
            .node_list
            .as_deref()
            .and_then(|list| nodelist::expand(list).ok());
        Self {
            number: run.raw_job_id.unwrap_or(run.job_id),
            nodes: nodes.unwrap_or_default(),
            gpus: run.gpus,
        }
    }
}
