//! `takt doctor`: what is wrong, what it costs, and the command that repairs it.
//!
//! Facts are collected once. Each check is a pure function of the facts, so a test can give it the
//! facts of a broken cluster.

mod accepted;
mod certificates;
mod facts;
mod live;
mod of_auth;
mod of_jobs;
mod of_names;
mod of_nodes;
mod of_release;
mod of_server;
#[cfg(test)]
mod tests;

use crate::Config;
use crate::alerting::{self, Loaded};
use crate::config::Unread;
pub use accepted::AcceptedFindings;
use certificates::TlsService;
use facts::Facts;
pub use live::{LiveSources, ServerDoctor};
pub use of_names::ReferredNames;
use std::path::{Path, PathBuf};
use takt_alerts::config::AlertsConfig;
use takt_collector::schedulers::SlurmrestdConfig;
use takt_identity::AuthConfig;
use takt_mail::EmailConfig;
use takt_model::Labels;
use takt_model::shown::{printable, printable_lines, shell_word};
use takt_questions::{AnswerError, Diagnosis, Doctor, DoctorQuestion, Finding, Severity};
use takt_slurm::releases::Release;
use takt_store::Store;

/// The part of the configuration that checks depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DoctorConfig {
    /// Name of the cluster, if configured.
    pub cluster: Option<String>,
    /// Data directory, if configured.
    pub data_dir: Option<PathBuf>,
    /// Whether alerts are sent to at least one channel.
    pub has_channel: bool,
    /// The setting for which no rule is evaluated; empty if rules are.
    pub evaluates_nothing: &'static str,
    /// The mail server.
    pub email: EmailConfig,
    /// Whether the configuration has the address that people use.
    pub has_external_url: bool,
    /// Whether `alerts.heartbeat_url` is set.
    pub has_heartbeat: bool,
    /// Files with secrets that every user can read.
    pub open_secrets: Vec<PathBuf>,
    /// Mistakes in the keys that name files, folders and commands of this machine, and targets.
    pub unusable: Vec<String>,
    /// Settings that are valid and probably not meant.
    pub doubts: Vec<String>,
    /// Scopes of rules whose critical alerts reach no channel.
    pub unsent_scopes: Vec<&'static str>,
    /// The slurmrestd that is read instead of Slurm's commands; without a URL, the commands are.
    pub slurmrestd: SlurmrestdConfig,
    /// Whether the job records come from Slurm's completion file instead of slurmdbd.
    pub reads_completion_file: bool,
    /// Whether slurmctld's own metrics are a target.
    pub scrapes_slurmctld: bool,
    /// Sign-in and privacy.
    pub auth: AuthConfig,
    /// Folder of the data lake, if configured.
    pub lake: Option<PathBuf>,
    /// The engine that samples are read from, if it is not the own store.
    pub remote: Option<String>,
    /// Whether samples are sent on by remote write.
    pub sends_samples: bool,
    /// Findings that are wanted.
    pub accepted: AcceptedFindings,
    /// Whether the server polls Slurm.
    pub polls_slurm: bool,
    /// The configuration file, if the configuration is of one.
    pub file: Option<PathBuf>,
    /// Whether the configuration lists targets.
    pub has_targets: bool,
    /// What was changed after the server read it.
    pub unread: Unread,
    /// The data directory, if no server runs on it.
    pub unserved: Option<PathBuf>,
    /// Services with TLS certificates.
    pub tls_services: Vec<TlsService>,
    /// Names that the configuration refers to.
    pub referred: ReferredNames,
    /// Labels `job` of targets with https.
    pub encrypted_jobs: Vec<String>,
}

/// Values of the label `scope` of shipped rules about the cluster.
const SCOPES: [&str; 5] = ["gpu", "node", "nfs", "slurm", "takt"];

/// The services to ask for the facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ServicesAsked {
    /// The services of `[auth]`.
    sign_in: bool,
    /// The services with TLS certificates.
    certificates: bool,
    /// The mail server.
    mail: bool,
}

impl DoctorConfig {
    /// Returns the part of `config` that checks depend on. Reads the files that it names: rules, routes, and the
    /// modes of secrets.
    pub fn of(config: &Config) -> Self {
        let loaded = alerting::load(config);
        let loaded = loaded.as_ref();
        Self {
            has_channel: has_channel(&config.alerts, loaded.ok()),
            open_secrets: config.open_secrets(),
            unusable: unusable(config, loaded.err()),
            doubts: config.doubts(loaded.ok()),
            unsent_scopes: unsent_scopes(config, loaded.ok()),
            ..Self::without_files(config)
        }
    }

    /// As [`of`](Self::of), without what only the files tell.
    fn without_files(config: &Config) -> Self {
        let alerts = &config.alerts;
        Self {
            cluster: config.cluster.clone(),
            data_dir: config.data_dir.clone(),
            evaluates_nothing: match alerts {
                alerts if !alerts.enabled => "alerts.enabled is false",
                alerts if !alerts.shipped_rules && alerts.rule_dirs.is_empty() => {
                    "alerts.shipped_rules is false, and alerts.rule_dirs names no rules"
                }
                _ => "",
            },
            email: config.email.clone(),
            has_external_url: config.public_url().is_some(),
            has_heartbeat: alerts.heartbeat_url.is_some(),
            slurmrestd: config.jobs.slurmrestd.clone(),
            reads_completion_file: config.jobs.jobcomp_file.is_some(),
            scrapes_slurmctld: of_release::scrapes_slurmctld(&config.scrape),
            auth: config.auth.clone(),
            lake: config.lake.path.clone(),
            remote: config.query.remote.clone(),
            sends_samples: !config.remote_write.is_empty(),
            accepted: config.doctor.clone(),
            polls_slurm: config.jobs.poll,
            file: config.file.clone(),
            has_targets: !config.scrape.targets.is_empty(),
            referred: ReferredNames::of(config),
            tls_services: certificates::services(config),
            encrypted_jobs: config.scrape.encrypted_jobs(),
            ..Self::default()
        }
    }
}

/// Returns whether alerts are sent to at least one channel. `loaded` is `None` if routes or channels cannot be used: they
/// count as some then, since another check names the mistake.
fn has_channel(alerts: &AlertsConfig, loaded: Option<&Loaded>) -> bool {
    !alerts.email_to.is_empty()
        || alerts.slack_token_file.is_some()
        || alerts.slack_webhook_file.is_some()
        || alerts.webhook_url.is_some()
        || alerts.ntfy_topic.is_some()
        || alerts.alertmanager_file.is_some()
            // Without alerts, the file is not read.
            && loaded.is_none_or(|loaded| !alerts.enabled || loaded.routing.has_channels())
}

/// Returns the mistakes of [`Config::defects`], and why rules, routes or channels cannot be used.
fn unusable(config: &Config, of_alerts: Option<&anyhow::Error>) -> Vec<String> {
    let data_dir = config.data_dir.as_deref().unwrap_or(Path::new(""));
    let mut found: Vec<String> = config
        .defects(data_dir)
        .iter()
        .map(|error| format!("{error:#}"))
        .collect();

    // A missing file is named already.
    if config.missing(data_dir).is_empty() {
        found.extend(of_alerts.map(|error| format!("{error:#}")));
    }
    found
}

/// Returns the scopes of shipped rules whose critical alerts reach no channel, although there is one.
fn unsent_scopes(config: &Config, loaded: Option<&Loaded>) -> Vec<&'static str> {
    let Some(routing) = loaded.map(|loaded| &loaded.routing) else {
        return Vec::new();
    };
    let is_unsent = |scope: &&&str| {
        let labels = [
            ("alertname", "Any"),
            ("severity", "critical"),
            ("scope", **scope),
        ];
        let labels: Labels = labels.into_iter().collect();
        let mut reached = routing.route_test(&labels).into_iter();
        reached.all(|to| to.channels.is_empty())
    };
    let is_sent_at_all = config.alerts.enabled && routing.has_channels();
    let scopes = SCOPES.iter().filter(|_| is_sent_at_all);
    scopes.filter(is_unsent).copied().collect()
}

/// A check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Stable id: `TOPIC.SUBJECT`.
    pub id: &'static str,
    /// Description of the findings, for the documentation.
    pub about: &'static str,
    /// Returns the findings.
    run: fn(&Facts) -> Vec<Finding>,
}

const fn check(id: &'static str, about: &'static str, run: fn(&Facts) -> Vec<Finding>) -> Check {
    Check { id, about, run }
}

/// All checks.
pub const CHECKS: &[Check] = &[
    check(
        "server.runs",
        "no server runs on the data directory",
        of_server::server_runs,
    ),
    check(
        "exporter.answers",
        "an exporter does not answer",
        of_nodes::exporter_answers,
    ),
    check(
        "exporter.version",
        "an exporter is of another version than the server",
        of_nodes::exporter_version,
    ),
    check(
        "gpu.answers",
        "a GPU does not answer",
        of_nodes::gpu_answers,
    ),
    check(
        "gpu.count",
        "a node has another number of GPUs than Slurm",
        of_nodes::gpu_count,
    ),
    check(
        "gpu.process",
        "a process uses a GPU outside any job",
        of_nodes::gpu_process,
    ),
    check(
        "gpu.persistence",
        "persistence mode of a node's GPUs is off",
        of_nodes::gpu_persistence,
    ),
    check(
        "gpu.remap",
        "a GPU could not replace a row of its memory",
        of_nodes::gpu_remap,
    ),
    check(
        "kernel.log",
        "the exporter may not read the kernel log",
        of_nodes::kernel_log,
    ),
    check(
        "jobs.seen",
        "Slurm runs jobs on a node where the exporter sees none",
        of_nodes::jobs_seen,
    ),
    check(
        "jobs.environment",
        "the exporter may not read the environment of jobs",
        of_nodes::jobs_environment,
    ),
    check(
        "jobs.gpu_order",
        "the exporter counts GPUs in another order than Slurm",
        of_jobs::gpu_order,
    ),
    check(
        "jobs.isolation",
        "a job uses, or can open, GPUs that it was not given",
        of_jobs::isolation,
    ),
    check(
        "node.name",
        "the name of a target is not a node name of Slurm",
        of_nodes::node_name,
    ),
    check(
        "node.clock",
        "the clock of a node is wrong or not synchronised",
        of_nodes::node_clock,
    ),
    check(
        "nfs.hung",
        "an NFS mount does not answer",
        of_nodes::nfs_hung,
    ),
    check(
        "mount.hung",
        "a mount that is not NFS does not answer",
        of_nodes::mount_hung,
    ),
    check(
        "link.speed",
        "a network link is slower than both sides can",
        of_nodes::link_speed,
    ),
    check(
        "pcie.width",
        "a GPU has fewer PCIe lanes than card and slot have",
        of_nodes::pcie_width,
    ),
    check(
        "hardware.health",
        "a disk reports that it fails",
        of_nodes::hardware_health,
    ),
    check(
        CONFIG_VALID,
        "the configuration file has a mistake",
        of_server::config_valid,
    ),
    check(
        "config.read",
        "the configuration or a file of alerts was changed, and the running server has not read it",
        of_server::config_read,
    ),
    check(
        "config.names",
        "the configuration names a file, folder or command that is not there, or a target that can never be scraped",
        of_server::config_names,
    ),
    check(
        "config.doubts",
        "the configuration is valid, and something in it is probably not meant",
        of_server::config_doubts,
    ),
    check(
        "config.cluster",
        "the configured cluster is not that of Slurm, or of the job records",
        of_server::config_cluster,
    ),
    check(
        "config.subjects",
        "the configuration names an account, a user or a node that nobody knows",
        of_names::config_subjects,
    ),
    check(
        "config.prices",
        "a GPU model that jobs use has no price, or a price is of a model that no job has used",
        of_names::config_prices,
    ),
    check(
        "config.secrets",
        "every user can read a file with a secret",
        of_server::config_secrets,
    ),
    check(
        "data.disk",
        "samples are not stored, or the disk with the data is nearly full",
        of_server::data_disk,
    ),
    check(
        "query.remote",
        "the engine that has the samples does not answer, or gets none",
        of_server::query_remote,
    ),
    check(
        "push.senders",
        "a sender pushes no samples",
        of_server::push_senders,
    ),
    check(
        "remote_write.lag",
        "a destination of remote write lacks samples",
        of_server::remote_write_lag,
    ),
    check(
        "rules.time",
        "a group of rules takes longer than its interval",
        of_server::rules_time,
    ),
    check(
        "targets.complete",
        "a node of Slurm has no exporter",
        of_server::targets_complete,
    ),
    check(
        "targets.discovered",
        "a file or server lists targets that cannot be read or scraped",
        of_server::targets_discovered,
    ),
    check(
        "slurm.answers",
        "slurmctld or slurmdbd does not answer",
        of_server::slurm_answers,
    ),
    check(
        "sources.complete",
        "a source of data is not complete: job records, the queue, states of nodes",
        of_server::sources_complete,
    ),
    check(
        "slurm.tres",
        "Slurm does not record the GPUs of jobs",
        of_server::slurm_tres,
    ),
    check(
        "slurm.size",
        "slurmdbd records the size of the cluster twice, or larger than its nodes",
        of_server::slurm_size,
    ),
    check(
        "slurm.records",
        "job records are old",
        of_server::slurm_records,
    ),
    check(
        "server.clock",
        "the server's clock was set, or differs from those of the nodes",
        of_server::server_clock,
    ),
    check(
        "slurm.clock",
        "slurmctld's clock differs from the server's",
        of_server::slurm_clock,
    ),
    check(
        "slurm.token",
        "the token for slurmrestd ends soon",
        of_server::slurm_token,
    ),
    check(
        "jobs.joined",
        "the GPUs of running jobs are unknown",
        of_server::jobs_joined,
    ),
    check(
        "jobs.recorded",
        "Slurm does not list jobs that run",
        of_server::jobs_recorded,
    ),
    check(
        "messages.rules",
        "no rule is evaluated",
        of_server::messages_rules,
    ),
    check(
        "messages.channels",
        "alerts are sent to no channel",
        of_server::messages_channels,
    ),
    check(
        "messages.links",
        "links in messages lead to an address that only this machine can open",
        of_server::messages_links,
    ),
    check(
        "messages.heartbeat",
        "no outside service watches this server",
        of_server::messages_heartbeat,
    ),
    check(
        MESSAGES_DELIVERED,
        "messages do not arrive in a channel, or the mail server refuses Takt",
        of_server::messages_delivered,
    ),
    check(
        TLS_CERTIFICATE,
        "a TLS certificate ends within two weeks",
        of_server::tls_certificate,
    ),
    check(
        "auth.ldap",
        "the LDAP directory does not answer, or refuses Takt",
        of_auth::ldap,
    ),
    check(
        "auth.oidc",
        "the OpenID Connect provider does not answer, or has another issuer",
        of_auth::oidc,
    ),
    check(
        "auth.munge",
        "munge does not work on the server's machine",
        of_auth::munge,
    ),
    check(
        "auth.proxy",
        "others than the proxies can name a client address",
        of_auth::proxy,
    ),
    check(
        "auth.privacy",
        "Takt shows more than Slurm's PrivateData allows, or PrivateData is not known",
        of_auth::privacy,
    ),
    check(
        "lake.written",
        "the data lake is not written",
        of_server::lake_written,
    ),
    check(
        "data.damaged",
        "a file of the data was damaged and set aside",
        of_server::data_damaged,
    ),
    check(
        "backup.last",
        "no backup is newer than a week, or it is on the disk of the data",
        of_server::backup_last,
    ),
];

/// Check of the configuration file. `takt doctor` makes it by itself if the file is unusable.
const CONFIG_VALID: &str = "config.valid";

/// Check for which the services with certificates are asked.
const TLS_CERTIFICATE: &str = "tls.certificate";

/// The check that asks the mail server.
const MESSAGES_DELIVERED: &str = "messages.delivered";

/// Topic of the checks for which the services of `[auth]` are asked.
const AUTH: &str = "auth.";

impl Doctor for ServerDoctor {
    fn diagnose(
        &self,
        question: &DoctorQuestion,
        store: &Store,
        unserved: Option<&Path>,
    ) -> Result<Diagnosis, AnswerError> {
        // A question about an upgrade is not about this moment, so no service is asked.
        if let Some(release) = &question.slurm {
            let release = release
                .parse::<Release>()
                .map_err(|error| AnswerError::Usage(format!("{release:?}: {error}")))?;
            let facts = Facts::gather(
                store,
                &DoctorConfig::without_files(&self.config()),
                &self.live,
                ServicesAsked::default(),
            )?;
            return Ok(of_release::diagnose(&facts, release));
        }

        let checks: Vec<&Check> = CHECKS
            .iter()
            // `only` and `skip` are the beginning of an id: `gpu.` stands for all checks of GPUs.
            .filter(|check| {
                let begins = |text: &Option<String>| {
                    text.as_ref()
                        .map(|text| check.id.starts_with(text.as_str()))
                };
                begins(&question.only).unwrap_or(true) && !begins(&question.skip).unwrap_or(false)
            })
            .collect();

        if checks.is_empty() {
            let ids: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
            return Err(AnswerError::Usage(format!(
                "no such check; the checks are {}",
                ids.join(", ")
            )));
        }

        // Services are asked only if a check needs them: they belong to others, and each may take seconds.
        let asked = ServicesAsked {
            sign_in: checks.iter().any(|check| check.id.starts_with(AUTH)),
            certificates: checks.iter().any(|check| check.id == TLS_CERTIFICATE),
            mail: checks.iter().any(|check| check.id == MESSAGES_DELIVERED),
        };

        let config = DoctorConfig {
            unserved: unserved.map(Path::to_owned),
            unread: self.unread(),
            ..DoctorConfig::of(&self.config())
        };

        let facts = Facts::gather(store, &config, &self.live, asked)?;
        Ok(diagnose(&facts, &checks))
    }
}

/// Puts the findings about an unusable configuration file first, and drops the server's. `mistakes` has a
/// line for each; `server` says whether a server runs with an earlier configuration.
pub fn with_mistakes_in_config(
    mut diagnosis: Diagnosis,
    mistakes: &str,
    file: &Path,
    server: &str,
) -> Diagnosis {
    diagnosis
        .findings
        .retain(|finding| finding.id != CONFIG_VALID);
    diagnosis.in_order.retain(|id| id != CONFIG_VALID);

    let findings = mistakes.lines().map(|mistake| Finding {
        id: CONFIG_VALID.to_owned(),
        cost: server.to_owned(),
        ..of_server::mistake_in_config(mistake, file)
    });
    diagnosis.findings.splice(0..0, findings);
    diagnosis
}

fn diagnose(facts: &Facts, checks: &[&Check]) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    for check in checks {
        let found = (check.run)(facts);
        if found.is_empty() {
            // No finding is good news only if the facts were there.
            let ids = match facts.are_unknown(check.id) {
                true => &mut diagnosis.unknown,
                false => &mut diagnosis.in_order,
            };
            ids.push(check.id.to_owned());
        }

        let named = found.into_iter().map(|finding| Finding {
            id: check.id.to_owned(),
            ..finding
        });

        let (accepted, others): (Vec<_>, Vec<_>) =
            named.partition(|finding| facts.config.accepted.has(finding));
        let names = accepted.iter().map(accepted::name);
        diagnosis.accepted.extend(names);
        diagnosis.findings.extend(others);
    }

    diagnosis
        // Failures first, and within them those of one node together.
        .findings
        .sort_by(|a, b| (a.severity, &a.node).cmp(&(b.severity, &b.node)));
    diagnosis
}

/// Makes a finding about a node, or about the server if `node` is empty. [`diagnose`] adds the id.
fn finding(
    severity: Severity,
    node: &str,
    evidence: String,
    cost: &str,
    fix: impl IntoIterator<Item = String>,
) -> Finding {
    // Labels of exporters and texts of users are in all of them.
    Finding {
        id: String::new(),
        severity,
        node: printable(node),
        evidence: printable_lines(&evidence),
        cost: cost.to_owned(),
        fix: fix.into_iter().map(|line| printable(&line)).collect(),
    }
}

/// The text as one word of a command line that a person pastes, and that ssh has a second shell read: a name with more than
/// plain characters is left out. Users choose the names of mounts, and exporters all labels.
fn word(text: &str) -> &str {
    let is_word = !text.starts_with('-') && shell_word(text) == text;
    if is_word { text } else { "NAME" }
}
