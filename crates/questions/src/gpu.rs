//! The life of a GPU: where it is, its errors, and the jobs that held it.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};
use takt_access::{Need, OTHER_USER, Owner, Viewer};
use takt_model::{Matcher, Timestamp, UnixTime};
use takt_store::{GpuHold, Records, Store};

/// Lookback of the readings.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Maximum number of periods that are listed.
const MOST_HOLDS: usize = 500;

/// Asks for the life of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuQuestion {
    /// UUID of the GPU, from NVML.
    pub uuid: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// The life of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuAnswer {
    /// Node in which the GPU is now; `None` if no exporter reports it.
    pub node: Option<String>,
    /// Current readings: metric, further labels, value.
    pub readings: Vec<GpuReading>,
    /// Periods in which jobs held the GPU, the newest first.
    pub holds: Vec<GpuHeld>,
}

/// A reading of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// Name of the metric.
    pub metric: String,
    /// Labels beyond the GPU's own: `type="uncorrected"`.
    pub labels: String,
    /// Value in the metric's unit.
    pub value: f64,
}

/// A period in which a job held the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHeld {
    /// Job id; empty if the viewer may not see the job.
    pub job_id: String,
    /// User of the job; empty if the job is unknown.
    pub user: String,
    /// Account of the job; empty if the job is unknown.
    pub account: String,
    /// Node in which the GPU was.
    pub node: String,
    /// UUID of the GPU.
    pub uuid: String,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

/// Labels of every series of a GPU.
const OWN: [&str; 6] = ["__name__", "uuid", "node", "cluster", "instance", "job"];

/// Readings about jobs and processes, which are shown by job.
const OF_JOBS: [&str; 3] = ["takt_gpu_job", "takt_gpu_process", "takt_gpu_mig"];

impl Question for GpuQuestion {
    const PATH: &'static str = "/api/takt/v1/gpu";
    const NEED: Need = Need::SignedIn;
    type Answer = GpuAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<GpuAnswer, AnswerError> {
        let records = Records::of(store.database());
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?;
        let now = Timestamp::from(SystemTime::now());
        let of_gpu = [Matcher::equal("uuid", &self.uuid)];
        let mut answer = GpuAnswer::default();
        for series in store.instant(&of_gpu, now, LOOKBACK)? {
            let name = series.labels.get("__name__").unwrap_or_default();
            // Readings of jobs and processes name users; the page shows them by job.
            if !name.starts_with("takt_gpu_") || OF_JOBS.iter().any(|start| name.starts_with(start))
            {
                continue;
            }
            // Series of the GPU's former node may still be within the lookback; the last one counts.
            answer.node = series.labels.get("node").map(str::to_owned).or(answer.node);
            let labels: Vec<String> = series
                .labels
                .iter()
                .filter(|(label, _)| !OWN.contains(label))
                .map(|(name, value)| format!("{name}=\"{value}\""))
                .collect();
            answer.readings.push(GpuReading {
                metric: name.to_owned(),
                labels: labels.join(" "),
                value: series
                    .samples
                    .last()
                    .map_or(f64::NAN, |sample| sample.value),
            });
        }

        answer
            .readings
            .sort_by(|a, b| (&a.metric, &a.labels).cmp(&(&b.metric, &b.labels)));
        answer.holds = records
            .holds_of_gpu(&cluster.cluster, &self.uuid, MOST_HOLDS)?
            .into_iter()
            .map(|hold| held(viewer, hold))
            .collect();
        Ok(answer)
    }
}

/// A period, without names if the viewer may not see the job.
pub(super) fn held(viewer: &Viewer, hold: GpuHold) -> GpuHeld {
    let [from, to] = hold.period;
    let shown = GpuHeld {
        job_id: hold.job_id,
        user: hold.user,
        account: hold.account,
        node: hold.node,
        uuid: hold.uuid,
        from,
        to,
    };
    // A period without names is kept, or the GPU would look free.
    if viewer.sees_job(Owner::new(&shown.user, &shown.account)) {
        return shown;
    }
    GpuHeld {
        job_id: String::new(),
        user: OTHER_USER.to_owned(),
        account: String::new(),
        ..shown
    }
}
