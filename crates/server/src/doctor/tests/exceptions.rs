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
