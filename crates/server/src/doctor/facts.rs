//! The facts of all checks, read once.

use super::certificates::{self, CertificateEnd, TlsService};
use super::of_names::KnownNames;
use super::{DoctorConfig, LiveSources, ServicesAsked};
use crate::Config;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp as Now;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_collector::schedulers::{NOT_READ, PollStatus};
use takt_collector::scrape::{DiscoveryProblem, TargetStatus};
use takt_identity::{SignInDefect, sign_in_defects};
use takt_jobs::{JobRun, nodelist};
use takt_lake::LakeState;
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher, Timestamp, UnixTime};
use takt_questions::AnswerError;
use takt_questions::password::knows_user;
use takt_store::{
    CONFIGURED, FailingChannel, Health, JobFilter, Records, RegisteredSize, Snapshot, Store,
    StoreError,
};

/// How far back the last sample of a series may be.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Series that checks read.
const METRICS: &[&str] = &[
    "up",
    "takt_exporter_build_info",
    "takt_gpu_info",
    "takt_gpu_up",
    "takt_gpu_mig_info",
    "takt_gpu_persistence_enabled",
    "takt_gpu_process_without_job",
    "takt_gpu_row_remap_failed",
    "takt_gpu_pcie_degraded",
    "takt_gpu_job_info",
    "takt_gpu_job_memory_used_bytes",
    "takt_job_info",
    "takt_jobs_unreadable",
    "takt_kernel_log_followed",
    "node_time_seconds",
    "node_timex_sync_status",
    "takt_nfs_mount_hung_seconds",
    "node_filesystem_device_error",
    "takt_link_negotiated_bits_per_second",
    "takt_link_capability_bits_per_second",
    "takt_link_partner_bits_per_second",
    "takt_disk_healthy",
    "takt_nvme_critical_warning",
    "takt_store_clock_ahead_seconds",
    "takt_store_clock_trusted",
    "takt_store_disk_free_bytes",
    "takt_store_disk_size_bytes",
    "takt_push_newest_timestamp_seconds",
    "takt_remote_write_lag_seconds",
    "takt_alerts_slowest_rule_seconds",
    "takt_alerts_heartbeat_up",
    "takt_slurm_up",
    "takt_slurm_info",
    "takt_slurm_nodes",
    "takt_slurm_clock_ahead_seconds",
    "takt_slurm_constrains_devices",
    "takt_source_last_success_timestamp_seconds",
    "takt_source_problem",
    "process_start_time_seconds",
];

/// Jobs that are younger may be missing in the records: the server reads Slurm once a minute.
const RECORDED_WITHIN: Duration = Duration::from_secs(150);

/// Age up to which ended runs, and attempts to send a message, count.
const RECENT: Duration = Duration::from_secs(7 * 86_400);

/// Age up to which GPU-hours without a price count.
const PRICED: Duration = Duration::from_secs(31 * 86_400);

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
    /// Targets whose last scrape failed; none without a running server.
    pub failing_targets: Vec<TargetStatus>,
    /// Lists of targets that cannot be read, and listed targets that cannot be scraped.
    pub discovery_problems: Vec<DiscoveryProblem>,
    /// State of the poller of Slurm; the default without a running server.
    pub slurm: PollStatus,
    /// Size of the cluster, as slurmdbd records it.
    pub registered_size: Option<RegisteredSize>,
    /// Names that job records and associations have.
    pub names: KnownNames,
    /// Running jobs of the scheduler.
    pub running: Vec<RunningJob>,
    /// Number of runs of the last week, and of running ones, whose number of GPUs is unknown.
    pub unknown_gpus: u64,
    /// Clusters that have job records.
    pub recorded_clusters: Vec<String>,
    /// Number and node of jobs that exporters see and Slurm's records lack.
    pub unrecorded: Vec<(String, String)>,
    /// Channels whose last message was not delivered.
    pub failing_channels: Vec<FailingChannel>,
    /// Why the mail server does not take mails.
    pub mail_error: Option<String>,
    /// Services of `[auth]` that do not work.
    pub sign_in: Vec<SignInDefect>,
    /// Slurm's `PrivateData`, if it is known.
    pub private_data: Option<String>,
    /// Why `PrivateData` is not known, where a Slurm is.
    pub unknown_privacy: Option<String>,
    /// The mistakes in the configuration file as it is now, which the server may not have read, a line for each.
    pub config_mistake: Option<String>,
    /// Ends of TLS certificates.
    pub certificates: Vec<CertificateEnd>,
    /// Time of the last complete reading of Slurm's job records, UTC seconds; `None` if they were
    /// never read.
    pub records_read_at: Option<f64>,
    /// Latest submission, start or end in a job record, UTC seconds.
    pub newest_record_at: Option<f64>,
    /// End of the validity of slurmrestd's token, UTC seconds.
    pub slurm_token_until: Option<f64>,
    /// The last backup, and whether it is on the disk of the data.
    pub backup: Option<(Snapshot, bool)>,
    /// Files of the data that were set aside as damaged.
    pub set_aside: Vec<PathBuf>,
    /// Time at which the data directory was created, UTC seconds.
    pub created_at: f64,
    /// The reason why samples are not written at present, if they are not.
    pub unwritten: Option<String>,
    /// The error of the last round that wrote the data lake, if it had one.
    pub lake_error: Option<String>,
    /// Why the engine of `query.remote` gave no samples. The facts then have no readings, and no nodes
    /// and jobs to compare them with.
    pub remote_error: Option<String>,
    /// Time of the facts, UTC seconds.
    pub now: f64,
    /// Version of the server.
    pub version: String,
    pub config: DoctorConfig,
}

impl Facts {
    /// Reads the facts, and asks the services that `asked` names.
    pub fn gather(
        store: &Store,
        config: &DoctorConfig,
        live: &LiveSources,
        asked: ServicesAsked,
    ) -> Result<Self, AnswerError> {
        let now = Timestamp::from(Now::now());
        let metrics = Matcher::new(METRIC_NAME, MatchOp::Regex, &METRICS.join("|"))
            .map_err(AnswerError::failed)?;
        let mut readings: BTreeMap<String, Vec<Reading>> = BTreeMap::new();
        // The engine of `query.remote` may be down. Checks of the configuration and of Slurm still have their facts.
        let (found, remote_error) = match store.instant(&[metrics], now, LOOKBACK) {
            Ok(found) => (found, None),
            Err(StoreError::Remote(error)) => (Vec::new(), Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        for series in found {
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

        let database = store.database();
        let records = Records::of(database);
        let clusters = records.clusters()?;
        let recorded_clusters = clusters.iter().map(|one| one.cluster.clone()).collect();

        let cluster = config
            // Without a configured cluster, the only one of the records is meant.
            .cluster
            .clone()
            .or_else(|| match clusters.as_slice() {
                [only] => Some(only.cluster.clone()),
                _ => None,
            });

        let backup = database.last_backup().map(|backup| {
            let is_near = is_same_disk(&backup.path, &store.path());
            (backup, is_near)
        });

        let token = config.slurmrestd.token_file.as_deref();

        let mut facts = Self {
            readings,
            failing_targets: live.failing_targets(),
            discovery_problems: live.discovery_problems(),
            slurm: live.slurm(),
            unknown_privacy: live.unknown_privacy.reason(),
            recorded_clusters,
            failing_channels: records.failing_channels(now.minus(RECENT))?,
            slurm_token_until: token.and_then(expiry),
            backup,
            set_aside: database.set_aside_files(),
            created_at: database.created_at()? as f64,
            now: now.as_seconds(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_mistake: config.file.as_deref().and_then(mistake),
            config: config.clone(),
            lake_error: lake_error(config, &store.path()),
            remote_error,
            unwritten: match &*store.health().borrow() {
                Health::Writing => None,
                Health::Waiting(reason) | Health::Invalidated(reason) => Some(reason.clone()),
            },
            ..Self::default()
        };

        if asked.sign_in {
            facts.sign_in = sign_in_defects(&config.auth);
        }
        if asked.mail && config.email.is_set() {
            facts.mail_error = takt_mail::defect(&config.email);
        }
        if asked.certificates {
            facts.certificates = certificates::ends(facts.tls_services());
        }

        if let Some(cluster) = cluster {
            // Records are by cluster, so these facts are left out where several are known.
            facts.private_data = records.private_data(&cluster)?;
            facts.names = known_names(&records, &cluster, config, now)?;
            let seconds = |at: UnixTime| at.0 as f64;
            facts.newest_record_at = records.newest_change(&cluster)?.map(seconds);
            facts.records_read_at = records.last_poll_of(&cluster)?.map(seconds);
            let since = now.minus(RECENT).whole_seconds();
            facts.registered_size = records.registered_size(&cluster)?;

            facts.unknown_gpus = records.runs_with_unknown_gpus(&cluster, since)?;
            // Without samples, nodes and jobs would all look as if their exporters were missing.
            if facts.remote_error.is_some() {
                return Ok(facts);
            }

            facts.slurm_nodes = records
                .node_capacities(&cluster)?
                .into_iter()
                .map(|node| (node.node, node.amounts.gpus))
                .collect();
            facts.unrecorded = facts.find_unrecorded(store, &records, &cluster, now)?;
            facts.running = records
                .jobs(&JobFilter {
                    cluster: Some(cluster),
                    states: vec!["RUNNING".to_owned()],
                    ..JobFilter::default()
                })?
                .into_iter()
                .map(RunningJob::of)
                .collect();
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
        // A job of a minute may be missing in the records, so only jobs that were there 150 s ago count.
        let jobs = Matcher::new(METRIC_NAME, MatchOp::Equal, "takt_job_info")
            .map_err(AnswerError::failed)?;
        let before: BTreeSet<Labels> = store
            .instant(&[jobs], now.minus(RECORDED_WITHIN), LOOKBACK)?
            .into_iter()
            .map(|series| series.labels)
            .collect();

        let mut found = Vec::new();
        let old = self
            .values("takt_job_info")
            .iter()
            .filter(|job| job.label("scheduler") == "slurm" && before.contains(&job.labels));

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
            // Ten show the problem, and each further one costs a look-up.
            if found.len() == UNRECORDED_MAX {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the services with certificates: those of the configuration, and targets that answer
    /// with TLS.
    fn tls_services(&self) -> Vec<TlsService> {
        // A target that does not answer has a finding of its own.
        let targets = self
            .values("up")
            .iter()
            .filter(|reading| {
                let is_encrypted = |job| job == reading.label("job");
                reading.value == 1.0 && self.config.encrypted_jobs.iter().any(is_encrypted)
            })
            .filter_map(|reading| TlsService::target(reading.label("instance"), reading.node()));
        self.config
            .tls_services
            .iter()
            .cloned()
            .chain(targets)
            .collect()
    }

    /// Returns when the server started, UTC seconds; `None` before its first own samples.
    pub fn server_started_at(&self) -> Option<f64> {
        // Exporters have this metric as well, so the label `job` decides.
        self.values("process_start_time_seconds")
            .iter()
            .filter(|reading| reading.label("job") == "takt-server")
            .map(|reading| reading.value)
            .next_back()
    }

    /// Whether the facts of a check are not there yet, because the server has just started. A check by them would find
    /// nothing wrong.
    pub fn are_unknown(&self, id: &str) -> bool {
        // Without a server, or without its samples, nothing will come: the findings are of what is stored.
        if self.config.unserved.is_some() || self.remote_error.is_some() {
            return false;
        }
        let is_scraped = |reading: &Reading| reading.label("job") != "takt-server";
        let is_unread = |reading: &Reading| reading.label("problem") == NOT_READ;
        let starts = self.server_started_at().is_none();
        // Facts of nodes come with the first scrape, those of Slurm with the first answer of each source.
        match id.split('.').next().unwrap_or_default() {
            "exporter" | "gpu" | "kernel" | "node" | "nfs" | "mount" | "link" | "pcie"
            | "hardware" => self.config.has_targets && !self.values("up").iter().any(is_scraped),
            "slurm" | "jobs" | "targets" => {
                self.config.polls_slurm
                    && (starts || self.values("takt_source_problem").iter().any(is_unread))
            }
            "rules" | "push" | "remote_write" | "sources" => starts,
            _ => id == "server.clock" && starts,
        }
    }

    /// Returns the last values of a metric.
    pub fn values(&self, metric: &str) -> &[Reading] {
        self.readings.get(metric).map_or(&[], Vec::as_slice)
    }

    /// Returns the last values of a metric that are `wanted`.
    pub fn select(
        &self,
        metric: &str,
        wanted: impl Fn(&Reading) -> bool,
    ) -> impl Iterator<Item = &Reading> {
        self.values(metric)
            .iter()
            .filter(move |reading| wanted(reading))
    }

    /// Returns the target whose series the reading is of, if its last scrape failed.
    pub fn failing_target(&self, reading: &Reading) -> Option<&TargetStatus> {
        self.failing_targets.iter().find(|target| {
            // The labels of the target are a part of those of its series.
            let mut labels = target.labels.iter();
            labels.all(|(name, value)| reading.label(name) == value)
        })
    }

    /// Whether Slurm's settings let jobs open their own GPUs only; `None` if Slurm does not say.
    pub fn constrains_devices(&self) -> Option<bool> {
        let last = self.values("takt_slurm_constrains_devices").last()?;
        Some(last.value == 1.0)
    }

    /// Returns the nodes with an exporter that answers.
    pub fn nodes_up(&self) -> BTreeSet<&str> {
        self.values("up")
            .iter()
            .filter(|reading| reading.value == 1.0)
            .map(Reading::node)
            .filter(|node| !node.is_empty())
            .collect()
    }
}

/// Returns the names of job records and associations that the configuration's names are compared with.
fn known_names(
    records: &Records<'_>,
    cluster: &str,
    config: &DoctorConfig,
    now: Timestamp,
) -> Result<KnownNames, AnswerError> {
    let referred = &config.referred;
    let mut known = KnownNames::default();
    if !referred.accounts.is_empty() || !referred.users.is_empty() {
        let recorded = records.names(cluster)?;
        known.accounts.extend(recorded.accounts);
        known.users.extend(recorded.users);
        let shares = records.share_settings(cluster, CONFIGURED)?;
        for association in shares
            .into_iter()
            .flat_map(|known| known.settings.associations)
        {
            known.accounts.insert(association.account);
            known.users.extend(association.user);
        }
        known.accounts.remove("");
        known.users.remove("");
    }

    // An administrator need not run jobs.
    let users = referred.users.iter().map(|(_, user)| user);
    let of_machine = users.filter(|user| !known.users.contains(*user) && knows_user(user));
    let of_machine: Vec<String> = of_machine.cloned().collect();
    if !known.users.is_empty() {
        known.users.extend(of_machine);
    }

    if !referred.gpu_models.is_empty() {
        let since = now.minus(PRICED).whole_seconds();
        let used = records.gpu_hours_by_model(cluster, since, now.whole_seconds())?;
        known.gpu_models = used.into_iter().collect();
    }
    Ok(known)
}

/// Returns the end of the validity of the JWT in a file, UTC seconds; `None` if the file cannot be
/// read, or the token has no end.
fn expiry(file: &Path) -> Option<f64> {
    // A JWT has three parts. The signature is slurmrestd's to check.
    let token = fs::read_to_string(file).ok()?;
    let claims = token.trim().split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    claims["exp"].as_f64()
}

/// Returns the mistakes in a configuration file, a line for each; `None` if it is valid or cannot be read.
fn mistake(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mistake = Config::parse(&text, file).err()?;
    Some(format!("{mistake:#}"))
}

/// The error of the last round that wrote the configured data lake, if it had one.
fn lake_error(config: &DoctorConfig, data: &Path) -> Option<String> {
    config.lake.as_ref()?;
    Some(LakeState::read(data).error).filter(|error| !error.is_empty())
}

/// Whether two paths are on one disk. Paths that do not exist are on none.
fn is_same_disk(one: &Path, other: &Path) -> bool {
    let disk = |path: &Path| Some(fs::metadata(path).ok()?.dev());
    disk(one).is_some_and(|first| disk(other) == Some(first))
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
        // A list that cannot be read gives no nodes, and the job counts on none.
        Self {
            number: run.raw_job_id.unwrap_or(run.job_id),
            nodes: nodes.unwrap_or_default(),
            gpus: run.gpus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn the_end_of_a_token_is_read_from_its_claims() {
        let folder = tempdir().unwrap();
        let file = folder.path().join("token");
        let until = |text: &str| {
            fs::write(&file, text).unwrap();
            expiry(&file)
        };

        let claims = BASE64_URL_SAFE_NO_PAD.encode(r#"{"exp":1795000000,"sun":"takt"}"#);
        assert_eq!(until(&format!("e30.{claims}.c2ln\n")), Some(1.795e9));
        assert_eq!(until("e30.e30.c2ln"), None);
        assert_eq!(until("no token"), None);
        assert_eq!(expiry(&folder.path().join("none")), None);
    }
}
