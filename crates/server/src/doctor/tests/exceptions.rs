//! Facts that look like a defect and are in order, and the limits of defects.

use super::*;

/// Right after the start, most targets were not scraped yet and were reported as missing.
#[test]
fn targets_are_not_missing_before_their_first_scrape() {
    let without = |age: Option<f64>| {
        broken(|facts| {
            facts.readings.remove("up");
            facts.readings.remove("process_start_time_seconds");
            if let Some(age) = age {
                let server = [("job", "takt-server")];
                let start = NOW - age;
                reading(facts, "process_start_time_seconds", &server, start);
            }
        })
    };
    // Ten minutes after the start, missing targets are missing.
    assert!(without(Some(600.0)).contains(&"targets.complete".to_owned()));
    // Five seconds after it, and before the server's first own sample.
    for young in [Some(5.0), None] {
        assert!(!without(young).contains(&"targets.complete".to_owned()));
    }
}

#[test]
fn a_certificate_that_has_ended_is_a_failure() {
    let mut facts = in_order();
    facts.certificates = vec![certificate("g01", NOW - 2.5 * DAY)];
    let found = examine(&facts).findings.remove(0);
    assert_eq!(found.severity, Severity::Failure);
    assert_eq!(found.node.as_str(), "g01");
    assert_eq!(
        found.evidence,
        "the certificate of target (g01:9855) ended 2 days ago"
    );
    assert!(found.fix[0].starts_with("openssl s_client -connect g01:9855 "));
}

/// NFS has a check of its own, and a mount that the exporter may not read is in order.
#[test]
fn mounts_that_fail_for_other_reasons_do_not_hang() {
    let found = broken(|facts| {
        for (kind, error) in [
            ("nfs4", "mountpoint timeout"),
            ("fuse.sshfs", "permission denied"),
        ] {
            let mount = [
                ("node", "g01"),
                ("mountpoint", "/m"),
                ("fstype", kind),
                ("device_error", error),
            ];
            reading(facts, "node_filesystem_device_error", &mount, 1.0);
        }
    });
    assert!(found.is_empty(), "{found:?}");
}

/// A cluster at rest has no new records, and a server that has just started has read none.
#[test]
fn records_of_a_quiet_cluster_are_not_old() {
    let found = broken(|facts| {
        facts.running.clear();
        reading(facts, "takt_slurm_nodes", &[("state", "mixed")], 0.0);
    });
    assert!(found.is_empty(), "{found:?}");

    let found = broken(|facts| {
        facts.records_read_at = Some(NOW - 7200.0);
        let server = [("job", "takt-server")];
        facts.readings.remove("process_start_time_seconds");
        reading(facts, "process_start_time_seconds", &server, NOW - 5.0);
    });
    assert!(found.is_empty(), "{found:?}");
    // A slurmctld that is two hours behind was read a minute ago by its own clock.
    let found = broken(|facts| {
        facts.records_read_at = Some(NOW - 7260.0);
        reading(facts, "takt_slurm_clock_ahead_seconds", &[], -7200.0);
    });
    assert_eq!(found, ["slurm.clock"]);
}

/// The job holds a part of the divided GPU.
#[test]
fn a_job_on_a_part_of_a_gpu_is_no_stray() {
    let found = broken(|facts| {
        stray(facts, &[["g01", "0", "0"]], &["MIG-1"]);
        let part = [("node", "g01"), ("uuid", "g01"), ("mig_uuid", "MIG-1")];
        reading(facts, "takt_gpu_mig_info", &part, 1.0);
        facts.readings.remove("takt_gpu_process_without_job");
    });
    assert!(found.is_empty(), "{found:?}");
}

/// Slurm counts the parts of a divided GPU, and nodes without a scheduler have no number to compare.
#[test]
fn other_numbers_of_gpus_can_be_in_order() {
    let part = [("node", "g02"), ("uuid", "g02"), ("mig_uuid", "m1")];
    let found = broken(|facts| {
        facts.slurm_nodes.insert("g02".to_owned(), 7);
        reading(facts, "takt_gpu_mig_info", &part, 1.0);
        facts.slurm_nodes.remove("g01");
    });
    assert!(!found.contains(&"gpu.count".to_owned()), "{found:?}");
}

#[test]
fn slurm_s_own_level_of_privacy_is_never_too_low() {
    let found = broken(|facts| {
        facts.private_data = Some("jobs".to_owned());
        facts.config.auth = AuthConfig::default();
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn new_data_need_no_backup_yet() {
    let found = broken(|facts| {
        facts.backup = None;
        facts.created_at = NOW - DAY;
    });
    assert!(found.is_empty(), "{found:?}");
}

/// A switch with slower ports is not a defect.
#[test]
fn a_link_at_the_speed_of_its_partner_is_in_order() {
    let link = [("node", "g01"), ("device", "eth0")];
    let found = broken(|facts| {
        reading(facts, "takt_link_partner_bits_per_second", &link, 1e9);
        reading(facts, "takt_link_negotiated_bits_per_second", &link, 1e9);
    });
    assert!(found.is_empty(), "{found:?}");
}

/// Names that do not exist were accepted without a word.
#[test]
fn names_that_nobody_knows_are_named_with_similar_ones() {
    let mut facts = in_order();
    let named = |key, name: &str| (key, name.to_owned());
    let referred = &mut facts.config.referred;
    referred.accounts = vec![
        named("reports.account_owners", "lab-bb"),
        named("budgets", "lab-a"),
    ];
    referred.users = vec![named("budgets", "alise"), named("budgets", "alise")];
    referred.nodes = vec![
        named("doctor.accept", "g99"),
        named("policy_windows", "g02"),
    ];
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    facts.names.accounts = all(&["lab-a", "lab-b"]);
    facts.names.users = all(&["alice", "bob"]);

    let evidence = |facts: &Facts| -> Vec<String> {
        let found = examine(facts).findings.into_iter();
        found.map(|one| one.evidence).collect()
    };
    assert_eq!(
        evidence(&facts),
        [
            "reports.account_owners names the account lab-bb, which neither job records nor associations have; \
             did you mean lab-b or lab-a?",
            "budgets names the user alise, which neither job records, associations nor this machine have; \
             did you mean alice?",
            "doctor.accept names the node g99, which is no node of Slurm and no target",
        ]
    );

    // Nothing is said about what is not known.
    facts.names = Default::default();
    facts.config.unserved = Some("/var/lib/takt".into());
    assert_eq!(examine(&facts).findings.len(), 1, "no server runs");
}

#[test]
fn prices_of_models_that_nothing_has_are_named() {
    let mut facts = in_order();
    facts.config.referred.gpu_models = ["A100", "l40"].map(str::to_owned).into();
    let used = [("a100", 1200.0), ("l40s", 34.0)];
    facts.names.gpu_models = used.map(|(name, hours)| (name.to_owned(), hours)).into();
    let found = examine(&facts).findings;
    let evidence: Vec<&str> = found.iter().map(|one| one.evidence.as_str()).collect();
    assert_eq!(
        evidence,
        [
            "no price for a100: 1,200 GPU-hours in 31 days; A100 differs only in upper and lower case",
            "no price for l40s: 34.0 GPU-hours in 31 days; did you mean l40?",
            "[rates] prices A100, and no job record has this model; a100 differs only in upper and lower case",
            "[rates] prices l40, and no job record has this model; did you mean l40s?",
        ]
    );
}

/// Targets whose names are nearly those of Slurm's nodes were in order; a file server is.
#[test]
fn targets_that_are_no_nodes_of_slurm_are_named_if_they_are_like_one() {
    let mut facts = in_order();
    facts.slurm_nodes = [("g01", 1), ("g02", 1), ("node0", 0)]
        .map(|(node, gpus)| (node.to_owned(), gpus))
        .into();
    for node in ["nodeO", "nas"] {
        let target = [("instance", node), ("job", "node"), ("node", node)];
        reading(&mut facts, "up", &target, 1.0);
    }
    let found = examine(&facts).findings.into_iter();
    let found: Vec<String> = found
        .filter(|one| one.id == "node.name")
        .map(|one| one.evidence)
        .collect();
    assert_eq!(found, ["Slurm has no node nodeO; did you mean node0?"]);
}
