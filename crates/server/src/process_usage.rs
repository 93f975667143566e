//! Derives job records from the exporters' process samples: the GPUs of each job, and usage on
//! machines without a scheduler.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use takt_collector::schedulers::PollStatus;
use takt_jobs::Entry;
use takt_jobs::process_usage::{GAP_SECONDS, ProcessSighting, ProcessUsage, sighting_of};
use takt_model::{Matcher, Timestamp};
use takt_store::{
    Corrections, GivenGpu, JobFilter, Origin, Records, Shifted, Store, StoreError, spawn_blocking,
};
use tokio::sync::watch;
use tokio::time;

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(15);

/// Lookback of a round: a target may miss a scrape.
const LOOKBACK: Duration = Duration::from_secs(60);

/// The GPUs of a job change rarely, so not every round stores them.
const ROUNDS_A_NOTE: u64 = 4;

/// Source name in `jobs.source`.
const SOURCE: &str = "processes";

/// Runs the rounds until the future is dropped. Usage is derived only while no scheduler is found.
pub async fn watch(store: Arc<Store>, cluster: String, polls: Option<watch::Receiver<PollStatus>>) {
    let mut seen: Option<ProcessUsage> = None;
    for round in 0_u64.. {
        time::sleep(INTERVAL).await;
        // Also with a scheduler: its records may lack the GPUs of jobs.
        if round % ROUNDS_A_NOTE == 0 {
            let store = Arc::clone(&store);
            let cluster = cluster.clone();
            match spawn_blocking(move || note_given(&store, &cluster)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = %error, "cannot store the GPUs of jobs")
                }
                Err(_) => return,
            }
        }

        // A scheduler may be found later, as when Slurm's commands are installed.
        let no_scheduler = polls
            .as_ref()
            .is_none_or(|polls| polls.borrow().state.is_absent());
        if !no_scheduler {
            continue;
        }

        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        // Moved into the task. After an error it is read again from the records.
        let known = seen.take();
        let looked = spawn_blocking(move || {
            let mut seen = match known {
                Some(seen) => seen,
                None => resumed(&store, &cluster)?,
            };
            look(&store, &cluster, &mut seen)?;
            Ok::<_, StoreError>(seen)
        });

        match looked.await {
            Ok(Ok(looked)) => seen = Some(looked),
            Ok(Err(error)) => tracing::warn!(error = %error, "cannot store the usage of GPUs"),
            Err(_) => return,
        }
    }
}

/// Returns the runs that were open when the server stopped. A run continues if its process is still
/// there; otherwise it ends with its last sample.
fn resumed(store: &Store, cluster: &str) -> Result<ProcessUsage, StoreError> {
    let mut seen = ProcessUsage::default();
    let filter = JobFilter {
        cluster: Some(cluster.to_owned()),
        states: vec!["RUNNING".to_owned()],
        ..JobFilter::default()
    };
    for run in Records::of(store.database()).jobs(&filter)? {
        // A record of another form is not of this source.
        let Some(sighting) = sighting_of(&run) else {
            continue;
        };

        // The last sample of the user on this node ends the run if the process is gone.
        let of_user = [
            Matcher::metric(ON_GPU),
            Matcher::equal("node", &sighting.node),
            Matcher::equal("user", &sighting.user),
        ];
        let now = Timestamp::from(SystemTime::now());
        let day = now.minus(Duration::from_secs(86_400));
        let samples = store.range(&of_user, day, now)?;
        let last = samples
            .iter()
            .flat_map(|series| &series.samples)
            .map(|sample| sample.at.whole_seconds())
            .max()
            // Without a sample in a day, the run ends where it began.
            .unwrap_or(run.submit)
            .max(run.submit);
        seen.resume(sighting, run.submit, last);
    }
    Ok(seen)
}

/// Stores the GPUs of each job, used or not.
fn note_given(store: &Store, cluster: &str) -> Result<(), StoreError> {
    let now = Timestamp::from(SystemTime::now());
    let job_gpus = store.instant(
        &[
            Matcher::metric("takt_gpu_job_info"),
            Matcher::equal("cluster", cluster),
        ],
        now,
        LOOKBACK,
    )?;
    let given: Vec<GivenGpu> = job_gpus
        .iter()
        .filter_map(|series| {
            let label = |name| {
                // An empty label is an absent one, and gives no GPU.
                series
                    .labels
                    .get(name)
                    .filter(|value| !value.is_empty())
                    .map(str::to_owned)
            };
            Some(GivenGpu {
                number: label("jobid")?,
                node: label("node")?,
                uuid: label("uuid")?,
            })
        })
        .collect();
    Records::of(store.database()).note_given_gpus(cluster, &given, now.whole_seconds())
}

/// Processes outside of jobs.
const ON_GPU: &str = "takt_gpu_process_without_job";

fn look(store: &Store, cluster: &str, seen: &mut ProcessUsage) -> Result<(), StoreError> {
    let now = Timestamp::from(SystemTime::now());
    let records = Records::of(store.database());
    // With a scheduler, its own records count. Usage outside of its jobs is not charged.
    if records.has_scheduler(cluster)? {
        return Ok(());
    }

    let gpus = store.instant(
        &[Matcher::metric("takt_gpu_info")],
        now,
        // The index of a GPU is still known when its last scrapes have failed.
        Duration::from_secs(GAP_SECONDS as u64),
    )?;
    let on_gpus = store.instant(&[Matcher::metric(ON_GPU)], now, LOOKBACK)?;

    let sightings = on_gpus.iter().filter_map(|series| {
        let label = |name| series.labels.get(name).filter(|value| !value.is_empty());
        let node = label("node")?;
        let uuid = label("uuid")?;
        let user = label("user")?;
        // Without `takt_gpu_info`, the UUID stands for the index.
        let gpu = gpus.iter().find(|gpu| gpu.labels.get("uuid") == Some(uuid));
        let info = |name| gpu.and_then(|gpu| gpu.labels.get(name)).map(str::to_owned);
        Some(ProcessSighting {
            node: node.to_owned(),
            gpu: info("index").unwrap_or_else(|| uuid.to_owned()),
            user: user.to_owned(),
            model: info("model"),
        })
    });

    let accounts = records.accounts_of_users(cluster)?;
    let account = |user: &str| accounts.get(user).cloned().unwrap_or_default();
    let changed = seen.observe(cluster, sightings, now.whole_seconds(), account);
    if changed.is_empty() {
        return Ok(());
    }

    let origin = Origin {
        source: SOURCE,
        name: SOURCE,
        timezone: None,
        complete_until: None,
        shifted: Shifted::Keep,
        corrections: Corrections::Accept,
    };
    let entries = changed
        .into_iter()
        .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
    records
        .import(&origin, entries)
        .map(drop)
        .map_err(|error| match error {
            takt_store::ImportError::Store(error) => error,
            // A shifted run is kept, and no other error of an import concerns records that are made here.
            _ => unreachable!("the runs are our own, and shifted ones are kept"),
        })
}
