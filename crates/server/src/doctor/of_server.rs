//! Checks of the server, its configuration and Slurm.

use super::certificates::CertificateEnd;
use super::facts::{Facts, Reading};
use super::of_release::newest_api_version;
use super::{Finding, Severity, finding, word};
use crate::setup::ExporterFiles;
use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};
use takt_collector::schedulers::{
    CONTROLLER_DOWN, DATABASE_DOWN, JOB_RECORDS, JOBS_HIDDEN, NOT_READ, OTHER_CLUSTER, PollState,
    SlurmrestdConfig, TOKEN_REFUSED,
};
use takt_model::words::duration;
use takt_store::FailingChannel;

/// Seconds after the server's start in which targets may be unscraped yet.
const START_SECONDS: f64 = 60.0;

/// Free share of the disk below which it is nearly full.
const FREE_RATIO: f64 = 0.1;

/// Age at which a backup is old, in seconds, and age from which data need one.
const BACKUP_SECONDS: f64 = 7.0 * 86_400.0;

/// Remaining validity at which a token ends soon, in seconds.
const TOKEN_SECONDS: f64 = 7.0 * 86_400.0;

/// Age at which job records are old, in seconds: the server reads Slurm once a minute.
const RECORDS_SECONDS: f64 = 3600.0;

/// Difference of slurmctld's clock that is a finding, in seconds.
const SLURM_CLOCK_SECONDS: f64 = 1.0;

/// Remaining validity at which a certificate ends soon, in seconds.
const CERTIFICATE_SECONDS: f64 = 14.0 * 86_400.0;

/// Time without pushed samples, and lag of remote write, that is a finding, in seconds. The same as
/// in the rules of alerts.
const SILENT_SECONDS: f64 = 900.0;

/// Share of the running GPU jobs whose GPUs must be known.
const JOINED_RATIO: f64 = 0.9;

pub(super) fn server_runs(facts: &Facts) -> Vec<Finding> {
    let Some(dir) = &facts.config.unserved else {
        return Vec::new();
    };
    // A packaged server is a service, and one with a file of its own was started by hand.
    let start = match &facts.config.file {
        Some(file) if file.starts_with("/etc") => "sudo systemctl start takt".to_owned(),
        Some(file) => format!("takt serve --config {}", file.display()),
        None => format!("takt serve --data-dir {}", dir.display()),
    };
    vec![finding(
        Severity::Failure,
        "",
        format!("no server runs on {}", dir.display()),
        "Nothing is measured, no alert is sent, and the other findings are of the last stored data.",
        [start],
    )]
}

pub(super) fn config_valid(facts: &Facts) -> Vec<Finding> {
    let Some((mistakes, file)) = facts
        .config_mistake
        .as_ref()
        .zip(facts.config.file.as_ref())
    else {
        return Vec::new();
    };
    let each = mistakes.lines();
    each.map(|mistake| mistake_in_config(mistake, file))
        .collect()
}

/// Returns the finding about a configuration file, whose mistake `mistake` describes.
pub(super) fn mistake_in_config(mistake: &str, file: &Path) -> Finding {
    finding(
        Severity::Failure,
        "",
        mistake.to_owned(),
        "A running server keeps its previous configuration, but does not start again.",
        [
            format!("takt check-config --config {}", file.display()),
            "sudo systemctl reload takt        # when the file is right".to_owned(),
        ],
    )
}

pub(super) fn config_read(facts: &Facts) -> Vec<Finding> {
    let unread = &facts.config.unread;
    // A file below `/etc` belongs to the service, so systemd reloads it.
    let is_installed = facts.config.file.as_ref();
    let is_installed = is_installed.is_some_and(|file| file.starts_with("/etc"));

    let changed = |what: &[String], evidence: &str, cost: &str, installed: &str, own: &str| {
        let fix = if is_installed { installed } else { own };
        let evidence = format!("{} {evidence}", what.join(", "));
        let found = finding(Severity::Warning, "", evidence, cost, [fix.to_owned()]);
        (!what.is_empty()).then_some(found)
    };

    let by_reload = changed(
        &unread.for_reload,
        "changed after the server read the configuration",
        "The running server works as it was configured before.",
        "sudo systemctl reload takt",
        "takt reload",
    );
    let by_restart = changed(
        &unread.for_restart,
        "changed after the server's start, and a reload does not apply it",
        "The running server works as it was configured before.",
        "sudo systemctl restart takt",
        "# stop and start takt serve",
    );
    by_reload.into_iter().chain(by_restart).collect()
}

pub(super) fn tls_certificate(facts: &Facts) -> Vec<Finding> {
    let near = facts
        .certificates
        .iter()
        .filter(|certificate| certificate.ends_at - facts.now < CERTIFICATE_SECONDS);
    let report = |certificate: &CertificateEnd| {
        let left = certificate.ends_at - facts.now;
        let title = certificate.service.title();
        // Whole days, rounded down: on the last day it says 0.
        let days = (left.abs() / 86_400.0).floor();
        let (severity, evidence) = if left <= 0.0 {
            (
                Severity::Failure,
                format!("the certificate of {title} ended {days:.0} days ago"),
            )
        } else {
            (
                Severity::Warning,
                format!("the certificate of {title} ends in {days:.0} days"),
            )
        };
        finding(
            severity,
            &certificate.service.node,
            evidence,
            "After its end, connections to this service are refused.",
            [certificate.service.command()],
        )
    };
    near.map(report).collect()
}

pub(super) fn config_names(facts: &Facts) -> Vec<Finding> {
    let report = |said: &String| {
        finding(
            Severity::Failure,
            "",
            said.clone(),
            "What the key is for does not work, and the server may not start with it.",
            ["takt check-config        # when the key is right".to_owned()],
        )
    };
    facts.config.unusable.iter().map(report).collect()
}

pub(super) fn config_doubts(facts: &Facts) -> Vec<Finding> {
    let report = |doubt: &String| {
        finding(
            Severity::Warning,
            "",
            doubt.clone(),
            "The server does what is written.",
            ["takt check-config        # when the key is right".to_owned()],
        )
    };
    facts.config.doubts.iter().map(report).collect()
}

pub(super) fn config_cluster(facts: &Facts) -> Vec<Finding> {
    if let Some((name, slurm)) = facts
        .config
        .cluster
        .as_ref()
        .zip(facts.slurm.slurm_cluster.as_ref())
    {
        let found = finding(
            Severity::Failure,
            "",
            format!("the configuration has cluster = \"{name}\"; Slurm's ClusterName is {slurm}"),
            "Slurm is not read: its jobs would be stored as those of another cluster.",
            [
                format!("cluster = \"{slurm}\"        # in takt.toml, or leave the key out"),
                "sudo systemctl restart takt".to_owned(),
            ],
        );
        return Some(found).filter(|_| name != slurm).into_iter().collect();
    }

    let clusters = &facts.recorded_clusters;
    let configured = facts.config.cluster.as_ref();
    // Without any record, no name can be wrong.
    let stranger = configured.filter(|name| !clusters.is_empty() && !clusters.contains(name));
    let report = |name: &String| {
        finding(
            Severity::Failure,
            "",
            format!(
                "the configuration has cluster = \"{name}\"; the job records are of {}",
                clusters.join(", ")
            ),
            "Pages, reports and rules show no jobs.",
            [format!(
                "cluster = \"{}\"        # in takt.toml, or leave the key out",
                clusters[0]
            )],
        )
    };
    stranger.map(report).into_iter().collect()
}

pub(super) fn config_secrets(facts: &Facts) -> Vec<Finding> {
    facts
        .config
        .open_secrets
        .iter()
        .map(|path| {
            let path = path.display();
            finding(
                Severity::Warning,
                "",
                format!("every user of this machine can read {path}"),
                "A user who reads it can change alerts and records, or write into your channel.",
                [format!("sudo chmod 640 {path} && sudo chgrp takt {path}")],
            )
        })
        .collect()
}

pub(super) fn data_disk(facts: &Facts) -> Vec<Finding> {
    if let Some(reason) = &facts.unwritten {
        return vec![finding(
            Severity::Failure,
            "",
            format!("samples are not stored: {reason}"),
            "They wait in memory; a restart loses them.",
            [
                "takt store stat".to_owned(),
                "retention_days = 7        # below [store] in takt.toml".to_owned(),
            ],
        )];
    }

    let last = |metric: &str| facts.values(metric).last().map(|reading| reading.value);
    let free = last("takt_store_disk_free_bytes");
    let size = last("takt_store_disk_size_bytes");

    let Some((free, size)) = free
        .zip(size)
        .filter(|(free, size)| free / size < FREE_RATIO)
    else {
        return Vec::new();
    };
    let gib = |bytes: f64| bytes / 1_073_741_824.0;
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "{:.1} of {:.0} GiB are free on the disk with the data",
            gib(free),
            gib(size)
        ),
        "Below `store.min_free_bytes` Takt stops storing samples.",
        [
            "takt store stat".to_owned(),
            "retention_days = 7        # below [store] in takt.toml".to_owned(),
        ],
    )]
}

pub(super) fn lake_written(facts: &Facts) -> Vec<Finding> {
    let Some((path, error)) = facts.config.lake.as_ref().zip(facts.lake_error.as_ref()) else {
        return Vec::new();
    };
    let path = path.display().to_string();
    // A lake in an object store has no folder to look at.
    let mut remedy = vec!["takt lake status".to_owned()];
    if !path.starts_with("s3://") {
        remedy.insert(0, format!("df -h {path}; ls -ld {path}"));
    }
    vec![finding(
        Severity::Failure,
        "",
        format!("the data lake in {path} is not written: {error}"),
        "Other engines do not see new days. Takt keeps them and writes them once the cause is gone.",
        remedy,
    )]
}

pub(super) fn query_remote(facts: &Facts) -> Vec<Finding> {
    let Some(url) = &facts.config.remote else {
        return Vec::new();
    };
    if let Some(error) = &facts.remote_error {
        return vec![finding(
            Severity::Failure,
            "",
            error.clone(),
            "Pages, queries and efficiency have no samples, and rules keep their last state. Checks of nodes were left out.",
            [
                format!("curl -sS '{url}/api/v1/query?query=1'        # from this machine"),
                "remote_timeout_seconds = 60        # below [query] in takt.toml, if it is only slow".to_owned(),
            ],
        )];
    }
    // Without `remote_write`, the engine gets its samples from elsewhere, or not at all.
    if facts.config.sends_samples {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        format!("samples are read from {url}, but none are sent anywhere"),
        "Results of rules, the server's own series and what it scrapes stay in its own store, which nothing reads.",
        [
            "[[remote_write]]        # in takt.toml".to_owned(),
            format!("url = \"{url}/api/v1/write\"        # or where this engine takes samples"),
        ],
    )]
}

pub(super) fn push_senders(facts: &Facts) -> Vec<Finding> {
    let age = |reading: &Reading| facts.now - reading.value;
    facts
        .select("takt_push_newest_timestamp_seconds", |reading| {
            age(reading) > SILENT_SECONDS
        })
        .map(|reading| {
            let name = reading.labels.get("sender").unwrap_or_default();
            let silence = duration(age(reading));
            finding(
                Severity::Warning,
                "",
                format!("{name} pushed no samples for {silence}"),
                "Its series end, and rules over them see nothing.",
                [
                    "takt query 'takt_push_requests_total'        # codes of the last replies"
                        .to_owned(),
                    "takt query 'takt_push_rejected_samples_total > 0'".to_owned(),
                ],
            )
        })
        .collect()
}

pub(super) fn rules_time(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_alerts_slowest_rule_seconds", |_| true)
        .map(|reading| {
            let label = |name| reading.labels.get(name).unwrap_or_default();
            let took = duration(reading.value);
            finding(
                Severity::Warning,
                "",
                format!(
                    "the group {} takes longer than its interval; its rule {} takes {took}",
                    label("rule_group"),
                    label("rule")
                ),
                "Evaluations of this group are skipped, and its alerts come late. Other groups are \
                 not delayed.",
                [
                    "takt alerts check FILE        # names rules with a query for each alert"
                        .to_owned(),
                    "interval: 5m        # in the group, if its alerts may come late".to_owned(),
                ],
            )
        })
        .collect()
}

pub(super) fn remote_write_lag(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_remote_write_lag_seconds", |reading| {
            reading.value > SILENT_SECONDS
        })
        .map(|reading| {
            let name = reading.labels.get("destination").unwrap_or_default();
            let lag = duration(reading.value);
            finding(
                Severity::Warning,
                "",
                format!("{name} has no samples of the last {lag}"),
                "Takt sends them when the destination takes samples again, those of the last \
                 remote_write.catch_up_hours at most.",
                [
                    "journalctl -u takt | grep 'remote write'        # the destination's answer"
                        .to_owned(),
                ],
            )
        })
        .collect()
}

pub(super) fn targets_complete(facts: &Facts) -> Vec<Finding> {
    let scraped: BTreeSet<&str> = facts.values("up").iter().map(Reading::node).collect();
    let missing: Vec<&str> = facts
        .slurm_nodes
        .keys()
        .map(String::as_str)
        .filter(|node| !scraped.contains(node))
        .collect();

    let is_new = facts
        .server_started_at()
        // Targets are not scraped all at once, so a young server has not missed any.
        .is_none_or(|start| facts.now - start < START_SECONDS);
    if missing.is_empty() || is_new {
        return Vec::new();
    }

    let list = missing.join(" ");
    let words: Vec<&str> = missing.into_iter().map(word).collect();
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "{} of {} nodes of Slurm are not scraped: {list}",
            words.len(),
            facts.slurm_nodes.len()
        ),
        "Faults and jobs on these nodes stay unseen.",
        [
            ExporterFiles::find(Path::new("/")).loop_over(&words.join(" ")),
            "slurm_sd_configs = [{ port = 9855 }]        # below [[scrape.configs]] in takt.toml"
                .to_owned(),
        ],
    )]
}

pub(super) fn targets_discovered(facts: &Facts) -> Vec<Finding> {
    let problems = facts.discovery_problems.iter();
    let found = problems.map(|problem| {
        finding(
            Severity::Warning,
            "",
            format!("job {:?}: {}", problem.job, problem.problem),
            "Targets of this list are not scraped, or those of the list before it still are.",
            ["takt doctor        # again, some seconds after the list is right".to_owned()],
        )
    });
    found.collect()
}

pub(super) fn slurm_answers(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.slurm.state == PollState::Unconfigured {
        found.push(finding(
            Severity::Warning,
            "",
            facts.slurm.detail.clone().unwrap_or_default(),
            "Takt has no jobs, queue and node states.",
            [
                "sudo -u takt scontrol show config        # copy slurm.conf to /etc/slurm until it answers"
                    .to_owned(),
                "poll = false        # below [jobs] in takt.toml, on a machine without Slurm".to_owned(),
            ],
        ));
    }

    let silent = facts.select("takt_slurm_up", |reading| reading.value == 0.0);

    // The series says that a daemon is silent, the poller's status has its words.
    found.extend(silent.map(|reading| {
        let daemon = reading.label("daemon");
        let (cost, asked) = match daemon {
            "slurmdbd" => (
                "Accounting records (ends of jobs, usage, shares, history of nodes) are missing until it answers; the queue \
                 and node states are slurmctld's.",
                "sacctmgr show cluster",
            ),
            _ => (
                "New jobs, the queue and node states are missing until it answers.",
                "sdiag | head",
            ),
        };
        let problem = format!("{daemon} does not answer");
        let mut sources = facts.slurm.sources.values();
        let said = sources
            .find(|source| source.problem.as_ref() == Some(&problem))
            .and_then(|source| source.detail.as_ref())
            .map_or_else(String::new, |detail| format!(": {detail}"));
        finding(
            Severity::Failure,
            "",
            format!("{daemon} did not answer the last request{said}"),
            cost,
            [format!("systemctl status {daemon}"), asked.to_owned()],
        )
    }));
    found
}

/// Returns what asks a source of Slurm as the server does, to read the answer.
fn ask_by_hand(facts: &Facts, source: &str) -> Vec<String> {
    let SlurmrestdConfig {
        url,
        user,
        token_file,
        version,
    } = &facts.config.slurmrestd;
    // The commands are those that the server runs, as its user, so permissions show as well.
    if url.is_empty() {
        let command = match source {
            "queue" => "squeue --all --json",
            "nodes" => "scontrol show nodes --json",
            "slurmdbd" => "sacctmgr show event",
            _ => "sacct -a -S now-1hour",
        };
        return vec![format!(
            "sudo -u takt {command} | head        # what the server sees"
        )];
    }

    // Each release has other versions, and every slurmrestd lists its own.
    let path = match version.as_deref().or_else(|| newest_api_version(facts)) {
        Some(version) => format!("slurm/{version}/ping"),
        None => "openapi/v3".to_owned(),
    };
    let token = token_file.as_ref().map_or_else(String::new, |file| {
        let file = file.display();
        format!(" -H 'X-SLURM-USER-NAME: {user}' -H \"X-SLURM-USER-TOKEN: $(sudo cat {file})\"")
    });
    // `curl` needs a URL besides the path of a socket, whose host does not matter.
    let (socket, address) = match url.strip_prefix("unix:") {
        Some(path) => (format!(" --unix-socket {path}"), "http://localhost"),
        None => (String::new(), url.trim_end_matches('/')),
    };
    vec![
        format!("curl -sS{socket}{token} {address}/{path}        # what the server sees"),
        "url, token_file        # below [jobs.slurmrestd] in takt.toml, if they are wrong"
            .to_owned(),
        "systemctl status slurmrestd        # on its machine".to_owned(),
    ]
}

/// Returns the command that writes a new token for slurmrestd.
fn new_token(slurmrestd: &SlurmrestdConfig) -> String {
    let file = slurmrestd.token_file.as_deref().unwrap_or(Path::new(""));
    // Without `user`, the token is for the server's own user.
    let user = match slurmrestd.user.as_str() {
        "" => "takt",
        user => user,
    };
    format!(
        "scontrol token username={user} lifespan=2592000 | cut -d= -f2 | sudo tee {file} >/dev/null",
        file = file.display()
    )
}

pub(super) fn sources_complete(facts: &Facts) -> Vec<Finding> {
    let report = |reading: &Reading| {
        let (source, problem) = (reading.label("source"), reading.label("problem"));
        let cost = "What this source has is old or missing in lists, usage and reports.";

        // Only operators and SlurmUser see the jobs of others where `PrivateData` hides them.
        let remedy = match problem {
            DATABASE_DOWN => vec!["systemctl status slurmdbd".to_owned()],
            CONTROLLER_DOWN => vec!["systemctl status slurmctld".to_owned()],
            OTHER_CLUSTER => vec!["takt doctor --only config.cluster        # both names".to_owned()],
            JOBS_HIDDEN => vec![
                "sacctmgr add user takt account=root adminlevel=operator        # with slurmdbd".to_owned(),
                "User=slurm        # without slurmdbd: SlurmUser sees all jobs; below [Service], with: sudo \
                 systemctl edit takt"
                    .to_owned(),
                "sudo systemctl restart takt".to_owned(),
            ],
            _ => {
                // The new token first, since the old one would be refused again.
                let mut remedy = ask_by_hand(facts, source);
                if problem == TOKEN_REFUSED {
                    remedy.insert(0, new_token(&facts.config.slurmrestd));
                }
                remedy.push("journalctl -u takt | grep Slurm".to_owned());
                remedy
            }
        };

        let state = facts.slurm.sources.get(source);
        let detail = state
            .filter(|source| source.problem.as_deref() == Some(problem))
            .and_then(|source| source.detail.as_ref())
            .map_or_else(String::new, |detail| format!(": {detail}"));

        let source = source.replace('_', " ");
        finding(
            Severity::Failure,
            "",
            format!("{source}: {problem}{detail}"),
            cost,
            remedy,
        )
    };
    facts
        .select("takt_source_problem", |reading| {
            reading.label("problem") != NOT_READ
        })
        .map(report)
        .collect()
}

pub(super) fn slurm_tres(facts: &Facts) -> Vec<Finding> {
    // Without GPUs, no job has an unknown number of them.
    let has_gpus = facts.slurm_nodes.values().any(|gpus| *gpus > 0);
    let unknown = facts.unknown_gpus;
    if !has_gpus || unknown == 0 {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        format!("Slurm does not say how many GPUs {unknown} jobs of the last week had"),
        "Jobs of the past have an unknown number of GPUs; reports exclude and list them.",
        [
            "AccountingStorageTRES=gres/gpu        # in slurm.conf, only with slurmdbd: without it \
             slurmctld does not start; then: scontrol reconfigure"
                .to_owned(),
        ],
    )]
}

pub(super) fn slurm_size(facts: &Facts) -> Vec<Finding> {
    // The nodes' own GPUs are the number that a registration should have.
    let of_nodes: u64 = facts.slurm_nodes.values().sum();
    let Some(size) = &facts.registered_size else {
        return Vec::new();
    };
    let (cluster, records, gpus) = (&size.cluster, size.open_records, size.gpus);

    let evidence = if records > 1 {
        format!("slurmdbd has {records} records of the size of {cluster} that have not ended")
    } else if of_nodes > 0 && gpus > of_nodes {
        format!("slurmdbd records {gpus} GPUs of {cluster}; its nodes have {of_nodes}")
    } else {
        return Vec::new();
    };
    vec![finding(
        Severity::Warning,
        "",
        evidence,
        "Takt counts the newest record only; sreport may report more GPU-hours than there were.",
        [
            format!(
                "sacctmgr show event event=cluster cluster={cluster} format=TimeStart,TimeEnd,TRES"
            ),
            "sudo systemctl restart slurmctld        # registers the size again".to_owned(),
        ],
    )]
}

pub(super) fn jobs_joined(facts: &Facts) -> Vec<Finding> {
    let known: BTreeSet<&str> = facts
        .values("takt_gpu_job_info")
        .iter()
        .map(|reading| reading.label("jobid"))
        .collect();

    let all: Vec<_> = facts
        .running
        .iter()
        .filter(|job| job.gpus.is_some_and(|gpus| gpus > 0))
        .collect();

    let unknown: Vec<_> = all
        .iter()
        .filter(|job| !known.contains(job.number.as_str()))
        .collect();

    let joined = all.len() - unknown.len();
    // Jobs that have just started are not seen by an exporter yet, so not all need to be known.
    if all.is_empty() || joined as f64 / all.len() as f64 >= JOINED_RATIO {
        return Vec::new();
    }

    let nodes: BTreeSet<&str> = unknown
        .iter()
        .flat_map(|job| &job.nodes)
        .map(String::as_str)
        .collect();
    let nodes: Vec<&str> = nodes.into_iter().collect();
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "the GPUs of {joined} of {} running jobs are known; the others run on {}",
            all.len(),
            nodes.join(" ")
        ),
        "Without its GPUs a job has no efficiency.",
        unknown
            .first()
            .map(|job| format!("takt job {}        # says why", word(&job.number))),
    )]
}

pub(super) fn jobs_recorded(facts: &Facts) -> Vec<Finding> {
    let Some((_, node)) = facts.unrecorded.first() else {
        return Vec::new();
    };

    let ids: Vec<&str> = facts
        .unrecorded
        .iter()
        .map(|(number, _)| number.as_str())
        .collect();
    vec![finding(
        Severity::Failure,
        node,
        format!("Slurm does not list running jobs: {}", ids.join(", ")),
        "Their usage is missing in all reports. PrivateData in slurm.conf or slurmdbd.conf may hide \
         jobs from the user takt.",
        iter::once("sacctmgr add user takt account=root adminlevel=operator".to_owned())
            .chain(ask_by_hand(facts, JOB_RECORDS)),
    )]
}

pub(super) fn messages_rules(facts: &Facts) -> Vec<Finding> {
    let why = facts.config.evaluates_nothing;
    if why.is_empty() {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        format!("no rule is evaluated: {why}"),
        "No fault becomes an alert, on pages or in messages.",
        ["takt check-config --reference        # see [alerts]".to_owned()],
    )]
}

pub(super) fn messages_channels(facts: &Facts) -> Vec<Finding> {
    if let [first, ..] = facts.config.unsent_scopes.as_slice() {
        let scopes = facts.config.unsent_scopes.join(", ");
        return vec![finding(
            Severity::Failure,
            "",
            format!("critical alerts with scope {scopes} go to receivers without a channel"),
            "Faults are on the page and nowhere else.",
            [format!(
                "takt alerts route-test severity=critical scope={first}        # shows the route"
            )],
        )];
    }
    if facts.config.has_channel {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        "no channel is configured".to_owned(),
        "Faults are on the page and nowhere else.",
        [
            "slack_webhook_file = \"/etc/takt/slack-webhook\"        # below [alerts] in takt.toml"
                .to_owned(),
            "takt alerts test-send".to_owned(),
        ],
    )]
}

pub(super) fn messages_links(facts: &Facts) -> Vec<Finding> {
    if !facts.config.has_channel || facts.config.has_external_url {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        "alerts.external_url is not set".to_owned(),
        "Links in messages lead to an address of this machine that others cannot open.",
        [
            "external_url = \"https://takt.lab.example\"        # below [alerts] in takt.toml"
                .to_owned(),
        ],
    )]
}

pub(super) fn messages_heartbeat(facts: &Facts) -> Vec<Finding> {
    const NOBODY_SAYS_SO: &str =
        "If the server or its machine fails, alerts stop and no message says so.";
    let last = facts.values("takt_alerts_heartbeat_up");
    // The setting alone is not enough: the service may be down, or the URL wrong.
    if facts.config.has_heartbeat && last.iter().any(|reading| reading.value == 0.0) {
        return vec![finding(
            Severity::Failure,
            "",
            "the last heartbeat did not arrive at the service of alerts.heartbeat_url".to_owned(),
            NOBODY_SAYS_SO,
            ["journalctl -u takt -g heartbeat        # the reason".to_owned()],
        )];
    }
    if !facts.config.has_channel || facts.config.has_heartbeat {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        "no outside service watches this server: alerts.heartbeat_url is not set".to_owned(),
        NOBODY_SAYS_SO,
        [
            "heartbeat_url = \"https://hc-ping.com/UUID\"        # below [alerts] in takt.toml; a \
             check of healthchecks.io, for example"
                .to_owned(),
        ],
    )]
}

pub(super) fn messages_delivered(facts: &Facts) -> Vec<Finding> {
    let mail = facts.mail_error.iter().map(|error| {
        finding(
            Severity::Failure,
            "",
            format!("the mail server of [email] takes no mail from Takt: {error}"),
            "Alerts and reports by mail do not arrive.",
            ["takt alerts test-send".to_owned()],
        )
    });
    let channels = facts.failing_channels.iter().map(|failing| {
        let FailingChannel { channel, error } = failing;
        finding(
            Severity::Failure,
            "",
            format!("the last message to {channel} was not delivered: {error}"),
            "Alerts do not arrive in this channel.",
            [
                format!("takt alerts test-send --channel {channel}"),
                "takt alerts history --messages".to_owned(),
            ],
        )
    });
    mail.chain(channels).collect()
}

pub(super) fn slurm_records(facts: &Facts) -> Vec<Finding> {
    // The first reading of the records takes a while after the start.
    let is_new = facts
        .server_started_at()
        .is_none_or(|start| facts.now - start < START_SECONDS);
    if is_new || !facts.config.polls_slurm {
        return Vec::new();
    }
    // Both times are by slurmctld's clock.
    let age = |at: f64| facts.now + slurm_clock_ahead(facts) - at;

    let hours = |seconds: f64| (seconds / 3600.0).floor();
    let polled = facts.records_read_at.map(age);
    let newest = facts.newest_record_at.map(age);
    // Nodes that run jobs, although no record of a running job exists.
    let busy: f64 = facts
        .values("takt_slurm_nodes")
        .iter()
        .filter(|nodes| ["allocated", "mixed", "completing"].contains(&nodes.label("state")))
        .map(|nodes| nodes.value)
        .sum();

    // Old records are normal in an empty cluster, and not beside nodes that run jobs.
    let evidence = match (polled, newest) {
        (Some(polled), _) if polled > RECORDS_SECONDS => {
            format!("job records were last read {} hours ago", hours(polled))
        }
        (_, Some(newest)) if newest > RECORDS_SECONDS && busy > 0.0 && facts.running.is_empty() => {
            format!(
                "{busy} nodes run jobs, and the newest job record is {} hours old",
                hours(newest)
            )
        }
        _ => return Vec::new(),
    };
    vec![finding(
        Severity::Failure,
        "",
        evidence,
        "Reports, fair share and efficiency lack the jobs since then.",
        ask_by_hand(facts, JOB_RECORDS).into_iter().chain([
            "sudo journalctl -u takt --grep Slurm -n 20".to_owned(),
            "JobCompType=jobcomp/filetxt        # in slurm.conf, without slurmdbd".to_owned(),
        ]),
    )]
}

/// Returns the seconds by which slurmctld's clock is ahead of this machine's; 0 if unknown.
fn slurm_clock_ahead(facts: &Facts) -> f64 {
    facts
        .values("takt_slurm_clock_ahead_seconds")
        .last()
        .map_or(0.0, |reading| reading.value)
}

pub(super) fn server_clock(facts: &Facts) -> Vec<Finding> {
    let last = |metric| facts.values(metric).last().map(|reading| reading.value);
    if last("takt_store_clock_trusted") != Some(0.0) {
        return Vec::new();
    }

    let ahead = last("takt_store_clock_ahead_seconds").unwrap_or(0.0);
    let side = if ahead > 0.0 { "ahead of" } else { "behind" };
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "the clock is {} {side} the time that has passed for sure, and most NTP-kept clocks of nodes do not confirm it",
            duration(ahead.abs())
        ),
        "Nothing is deleted, reports and the data lake wait, and samples may have wrong times.",
        [
            "timedatectl; chronyc tracking        # on the server and on a node".to_owned(),
            "sudo timedatectl set-ntp true".to_owned(),
        ],
    )]
}

pub(super) fn slurm_clock(facts: &Facts) -> Vec<Finding> {
    let ahead = slurm_clock_ahead(facts);
    if ahead.abs() < SLURM_CLOCK_SECONDS {
        return Vec::new();
    }
    let side = if ahead > 0.0 { "ahead of" } else { "behind" };
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "slurmctld's clock is {} {side} this machine's",
            duration(ahead.abs())
        ),
        "Jobs are joined with the samples of other times, and munge refuses credentials.",
        [
            "timedatectl; chronyc tracking        # on both machines".to_owned(),
            "sudo timedatectl set-ntp true".to_owned(),
        ],
    )]
}

pub(super) fn slurm_token(facts: &Facts) -> Vec<Finding> {
    let (Some(until), Some(file)) = (facts.slurm_token_until, &facts.config.slurmrestd.token_file)
    else {
        return Vec::new();
    };

    let left = until - facts.now;
    if left >= TOKEN_SECONDS {
        return Vec::new();
    }
    let file = file.display();
    let (severity, evidence) = if left <= 0.0 {
        (
            Severity::Failure,
            format!("the token for slurmrestd in {file} is no longer valid"),
        )
    } else {
        let hours = left / 3600.0;
        (
            Severity::Warning,
            format!("the token for slurmrestd in {file} ends in {hours:.0} hours"),
        )
    };
    vec![finding(
        severity,
        "",
        evidence,
        "Without a valid token, Takt reads no jobs, queue and node states.",
        [new_token(&facts.config.slurmrestd)],
    )]
}

pub(super) fn data_damaged(facts: &Facts) -> Vec<Finding> {
    let finding_of = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // The name of the file says which data are lost.
        let lost = if name.contains(".wal.") {
            "Its last transactions may be missing; after a power failure these are mostly not confirmed ones."
        } else if name.starts_with("records.") {
            "Job records, budgets, tokens, silences and other records from before are missing."
        } else if name.starts_with("hot.") {
            "Names of series came back from the blocks; those of the last hours may be missing."
        } else {
            "Samples of some hours are missing."
        };

        let delete = format!("sudo rm -r '{}'", file.display());
        let data = file.parent().unwrap_or(file).display();
        // `restore` replaces the whole directory, which is worth it only for lost records.
        let backup = facts
            .backup
            .as_ref()
            .filter(|_| name.starts_with("records.duckdb.damaged-"));
        let restore = backup.map(|(backup, _)| {
            let from = backup.path.display();
            format!(
                "sudo systemctl stop takt && sudo mv {data} {data}.old && sudo takt --data-dir {data} restore --from {from} && sudo chown -R takt: {data} && sudo systemctl start takt"
            )
        });
        finding(
            Severity::Failure,
            "",
            format!("{} was damaged and set aside", file.display()),
            lost,
            restore.into_iter().chain([delete]),
        )
    };
    facts.set_aside.iter().map(finding_of).collect()
}

pub(super) fn backup_last(facts: &Facts) -> Vec<Finding> {
    let days = |seconds: f64| (seconds / 86_400.0).floor();
    // New data need no backup yet, but old ones without any are the worst case.
    let evidence = match &facts.backup {
        None if facts.now - facts.created_at < BACKUP_SECONDS => return Vec::new(),
        None => format!(
            "the data are {} days old, and no backup was made",
            days(facts.now - facts.created_at)
        ),
        Some((backup, is_near)) => {
            let age = facts.now - backup.taken_at.0 as f64;
            let path = backup.path.display();
            if age >= BACKUP_SECONDS {
                format!("the last backup, {path}, is {} days old", days(age))
            } else if *is_near {
                format!("the last backup, {path}, is on the disk of the data")
            } else {
                return Vec::new();
            }
        }
    };
    vec![finding(
        Severity::Warning,
        "",
        evidence,
        "If this disk fails, job records, budgets and history are lost.",
        ["sudo -u takt takt backup --to /OTHER-DISK/takt-$(date +%F)".to_owned()],
    )]
}
