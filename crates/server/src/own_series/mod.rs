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
use takt_collector::schedulers::PollStatus;
use takt_model::exposition::{Format, Line, Page};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_questions::{AnswerConfig, gpus_now};
use takt_store::{Records, Store};
use tokio::sync::watch;
use tokio::time;

/// Time between two rows.
const INTERVAL: Duration = Duration::from_secs(15);

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
        loop {
            pause.tick().await;
            let status = self.polls.as_ref().map(|polls| polls.borrow().clone());
            let store = Arc::clone(&self.store);
            let registry = Arc::clone(&self.registry);
            let cluster = self.cluster.clone();
            let address = self.address;
            let answers = Arc::clone(&self.answers);
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
                row.extend(of_gpus(&store, &cluster, &answers));
                let own = [
                    ("job", "takt-server".to_owned()),
                    ("instance", address.to_string()),
                    ("cluster", cluster),
                ];
                for (labels, _) in &mut row {
                    own.iter().for_each(|(name, value)| labels.set(name, value));
                }
                if let Err(error) = writer.write_row(row, now) {
                    tracing::warn!(%error, "cannot write the server's own series");
                }
                writer
            });
            match row.await {
                Ok(back) => writer = back,
                Err(_) => return,
            }
        }
    }
}

type Row = Vec<(Labels, f64)>;

fn of_registry(registry: &Registry) -> Row {
    let mut text = String::new();
    if encode(&mut text, registry).is_err() {
        return Row::new();
    }
    let mut page = Page::new(Format::OpenMetrics, text.as_bytes());
    let mut row = Row::new();
    while let Ok(Some(line)) = page.next_line(b"") {
        let Line::Sample(sample) = line else { continue };
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

/// Returns the state of each GPU, as pages and commands show it. None while another engine has the samples: SQL does
/// not read it, and it is not to be asked every few seconds.
fn of_gpus(store: &Store, cluster: &str, answers: &AnswerConfig) -> Row {
    if store.remote().is_some() {
        return Row::new();
    }
    let gpus = match gpus_now(store, cluster, answers) {
        Ok(gpus) => gpus,
        Err(error) => {
            tracing::warn!(%error, "cannot write the states of GPUs");
            return Row::new();
        }
    };
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

/// Returns the size of the data's disk and the space that is free for Takt.
fn of_disk(path: &PathBuf) -> Row {
    let Ok(disk) = rustix::fs::statvfs(path) else {
        return Row::new();
    };
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
