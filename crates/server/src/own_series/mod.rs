//! The server's own series: its metrics about itself and the state of Slurm. They are stored next
//! to the scraped series, so that rules, dashboards and SQL can use them. Their label `job` is
//! `takt-server`.

mod slurm;

use crate::alerting::Writer;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use takt_collector::schedulers::{PollState, PollStatus};
use takt_model::exposition::{Format, Line, Page};
use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp};
use takt_questions::{AnswerConfig, AnswerError, GpuNow, SlowJob, gpus_now, slow_jobs_now};
use takt_store::{Records, SeriesData, Store, StoreError};
use tokio::sync::watch;
use tokio::time;

/// Time between two rows.
const INTERVAL: Duration = Duration::from_secs(15);

/// Rows between two looks for slow GPUs: a minute.
const SLOW_GPUS_EVERY: u64 = 4;

/// Prefixes of the stored metrics. Metrics of requests and the runtime are only on the server's
/// page.
const SELECTED: [&str; 10] = [
    "process_",
    "prometheus_rule_group_",
    "takt_alerts_",
    "takt_collector_",
    "takt_lake_",
    "takt_notifications_",
    "takt_push_",
    "takt_remote_write_",
    "takt_server_",
    "takt_store_",
];

/// Sources of the series.
#[derive(Clone)]
pub struct OwnSeries {
    /// The store.
    pub store: Arc<Store>,
    /// The server's metrics.
    pub registry: Arc<Registry>,
    /// Name of the cluster.
    pub cluster: String,
    /// Listening address of the server.
    pub address: SocketAddr,
    /// State of polling, if Slurm is polled.
    pub polls: Option<watch::Receiver<PollStatus>>,
    /// Configuration of answers, for the states of GPUs.
    pub answers: Arc<AnswerConfig>,
}

impl OwnSeries {
    /// Writes the series until the future is dropped.
    pub async fn keep_writing(self) {
        let mut writer = Writer::new(&self.store);
        let mut pause = time::interval(INTERVAL);
        let mut slow_gpus = Row::new();
        let mut has_adopted = false;
        for number in 0_u64.. {
            pause.tick().await;
            let status = self.polls.as_ref().map(|polls| polls.borrow().clone());
            let store = Arc::clone(&self.store);
            let registry = Arc::clone(&self.registry);
            let cluster = self.cluster.clone();
            let address = self.address;
            let answers = Arc::clone(&self.answers);
            // A problem that goes on must not end meanwhile.
            let is_read = status
                .as_ref()
                .is_none_or(|status| status.state != PollState::Waiting);
            let adopts = is_read && !has_adopted;
            has_adopted |= adopts;

            let row = takt_store::spawn_blocking(move || {
                let now = Timestamp::from(SystemTime::now());
                let mut row = of_registry(&registry);
                row.extend(of_disk(&store.path()));
                if let Some(status) = &status {
                    let records = Records::of(store.database());

                    match records.scheduler_now(&cluster, now.whole_seconds()) {
                        Ok(scheduler) => row.extend(slurm::series(&scheduler, status, now)),
                        Err(error) => tracing::warn!(%error, "cannot write the series about Slurm"),
                    }
                }

                let gpus = gpus(&store, &cluster, &answers);
                row.extend(of_gpus(&gpus));

                // Looking for slow GPUs compares the series of whole jobs, which is too much for each row.
                if number % SLOW_GPUS_EVERY == 0 {
                    slow_gpus = of_slow_gpus(&store, &cluster, &gpus);
                }
                row.extend(slow_gpus.iter().cloned());

                let own = [
                    ("job", "takt-server".to_owned()),
                    ("instance", address.to_string()),
                    ("cluster", cluster),
                ];
                for (labels, _) in &mut row {
                    own.iter().for_each(|(name, value)| labels.set(name, value));
                }
                if adopts {
                    match problems_of_an_earlier_start(&store, now) {
                        Ok(series) => writer.adopt(series),
                        Err(error) => tracing::warn!(%error, "cannot read the last state of Slurm"),
                    }
                }
                if let Err(error) = writer.write_row(row, now) {
                    tracing::warn!(%error, "cannot write the server's own series");
                }
                (writer, slow_gpus)
            });

            match row.await {
                Ok(back) => (writer, slow_gpus) = back,
                // The task panicked and has the writer: the supervisor starts this one again.
                Err(_) => return,
            }
        }
    }
}

type Row = Vec<(Labels, f64)>;

/// Time in which a series that did not end counts as current.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Returns the problems of sources that are still current. Those of an earlier start, which the server's end did not end,
/// would be shown beside those of now.
fn problems_of_an_earlier_start(store: &Store, now: Timestamp) -> Result<Vec<Labels>, StoreError> {
    let problems = [Matcher::metric("takt_source_problem")];
    let found = store.own_range(&problems, now.minus(LOOKBACK), now)?;
    let is_current = |series: &SeriesData| {
        let last = series.samples.last();
        last.is_some_and(|last| !last.value.is_nan())
    };
    let current = found.into_iter().filter(is_current);
    Ok(current.map(|series| series.labels).collect())
}

fn of_registry(registry: &Registry) -> Row {
    let mut text = String::new();
    if encode(&mut text, registry).is_err() {
        return Row::new();
    }
    let mut page = Page::new(Format::OpenMetrics, text.as_bytes());
    let mut row = Row::new();
    while let Ok(Some(line)) = page.next_line(b"") {
        let Line::Sample(sample) = line else { continue };
        // Buckets of histograms would be most of the series.
        if let Ok(labels) = sample.labels()
            && SELECTED
                .iter()
                .any(|prefix| labels.metric().starts_with(prefix))
            && !labels.metric().ends_with("_bucket")
        {
            row.push((labels, sample.value));
        }
    }
    row
}

/// Returns each GPU with its node, as pages and commands show it. None while another engine has the samples: SQL does
/// not read it, and it is not to be asked every few seconds.
fn gpus(store: &Store, cluster: &str, answers: &AnswerConfig) -> Vec<(String, GpuNow)> {
    if store.remote().is_some() {
        return Vec::new();
    }
    gpus_now(store, cluster, answers).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot write the states of GPUs");
        Vec::new()
    })
}

fn of_gpus(gpus: &[(String, GpuNow)]) -> Row {
    gpus.iter()
        .map(|(node, gpu)| {
            let labels = [
                ("node", node.as_str()),
                ("uuid", &gpu.uuid),
                ("index", &gpu.index),
                ("state", gpu.state.as_str()),
            ];
            (named("takt_cluster_gpu_state", &labels), 1.0)
        })
        .collect()
}

/// Returns the GPUs that make the others of their jobs wait.
fn of_slow_gpus(store: &Store, cluster: &str, gpus: &[(String, GpuNow)]) -> Row {
    let records = Records::of(store.database());
    let running = records.running_jobs(cluster).map_err(AnswerError::failed);
    let found = running.and_then(|running| slow_jobs_now(store, cluster, &running, gpus));
    found.map_or_else(
        |error| {
            tracing::warn!(%error, "cannot look for slow GPUs");
            Row::new()
        },
        |jobs| jobs.iter().map(of_slow_gpu).collect(),
    )
}

fn of_slow_gpu(job: &SlowJob) -> (Labels, f64) {
    let labels = [
        ("jobid", job.number.as_str()),
        ("user", &job.user),
        ("node", &job.slow.node),
        ("uuid", job.slow.uuid.as_deref().unwrap_or_default()),
        ("index", &job.index),
        ("cause", job.slow.cause.as_str()),
        ("certainty", job.slow.certainty.as_str()),
    ];
    let waits = job.slow.others_wait_ratio.unwrap_or(0.0);
    (named("takt_job_slow_gpu_wait_ratio", &labels), waits)
}

/// Returns the size of the data's disk and the space that is free for Takt.
fn of_disk(path: &PathBuf) -> Row {
    let Ok(disk) = rustix::fs::statvfs(path) else {
        return Row::new();
    };
    // `f_bavail` leaves out the blocks that only root may use.
    let bytes = |blocks: u64| (blocks * disk.f_frsize) as f64;
    vec![
        (
            named("takt_store_disk_free_bytes", &[]),
            bytes(disk.f_bavail),
        ),
        (
            named("takt_store_disk_size_bytes", &[]),
            bytes(disk.f_blocks),
        ),
    ]
}

fn named(metric: &str, labels: &[(&str, &str)]) -> Labels {
    labels
        .iter()
        .copied()
        .chain([(METRIC_NAME, metric)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::store_in;
    use tempfile::tempdir;

    #[test]
    fn a_problem_of_an_earlier_start_ends() {
        let folder = tempdir().unwrap();
        let store = store_in(&folder.path().join("data"));
        let problem = |words: &str| {
            let labels = [("source", "job_records"), ("problem", words)];
            (named("takt_source_problem", &labels), 1.0)
        };
        let now = Timestamp::from(SystemTime::now());
        let earlier = vec![problem("slurmrestd rejects the token")];
        Writer::new(&store).write_row(earlier, now).unwrap();

        let mut writer = Writer::new(&store);
        writer.adopt(problems_of_an_earlier_start(&store, now).unwrap());
        let later = Timestamp(now.0 + 15_000);
        let current = problem("the request to Slurm failed");
        writer.write_row(vec![current.clone()], later).unwrap();
        let left = problems_of_an_earlier_start(&store, later).unwrap();
        assert_eq!(left, [current.0]);
    }
}
