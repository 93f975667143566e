//! Side by side with Debian's node_exporter: the same series and, where values stand still, the same values.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::{Running, fixtures, paths};

/// The collectors that both have.
const COLLECTORS: &[&str] = &[
    "arp",
    "bonding",
    "conntrack",
    "cpu",
    "cpufreq",
    "diskstats",
    "dmi",
    "drm",
    "edac",
    "entropy",
    "filefd",
    "filesystem",
    "hwmon",
    "infiniband",
    "loadavg",
    "mdadm",
    "meminfo",
    "meminfo_numa",
    "netclass",
    "netdev",
    "netstat",
    "nfs",
    "nfsd",
    "nvme",
    "os",
    "powersupplyclass",
    "pressure",
    "rapl",
    "schedstat",
    "selinux",
    "sockstat",
    "softnet",
    "stat",
    "textfile",
    "thermal_zone",
    "time",
    "timex",
    "udp_queues",
    "uname",
    "vmstat",
];

/// Series in which we follow node_exporter's newer versions, not Debian's 1.5, or know better.
const ON_PURPOSE: &[&str] = &[
    // Also told of a mount that cannot be read.
    "only in ours: node_filesystem_readonly",
    "only in ours: node_pressure_irq_",
    "only in ours: node_cpu_scaling_governor",
    // A bond whose files are not there is no reason to say nothing of the others.
    r#"node_scrape_collector_success{collector="bonding"}: theirs 0, ours 1"#,
    "only in ours: node_netstat_TcpExt_TCPOFOQueue",
    "only in ours: node_netstat_TcpExt_TCPRcvQDrop",
    "only in ours: node_softnet_backlog_len",
    "only in ours: node_softnet_cpu_collision_total",
    "only in ours: node_softnet_flow_limit_count_total",
    "only in ours: node_softnet_received_rps_total",
    // It takes these from the places of other operations.
    r#"node_nfsd_requests_total{method="Verify", proto="4"}: theirs"#,
    r#"node_nfsd_requests_total{method="Write", proto="4"}: theirs"#,
    r#"node_nfsd_requests_total{method="RelLockOwner", proto="4"}: theirs"#,
    // Forgotten there.
    r#"only in ours: node_nfsd_requests_total{method="Null", proto="2"}"#,
    r#"only in ours: node_nfsd_requests_total{method="Null", proto="3"}"#,
    r#"only in ours: node_nfsd_requests_total{method="SymLink", proto="2"}"#,
];

/// Debian's has a directory of its own by default, upstream's and ours none.
const NO_TEXTFILES: &str = "--collector.textfile.directory=";

/// How often is looked before two values are said to differ: one may change between two looks.
const LOOKS: usize = 8;

#[test]
fn this_machine() {
    compare(&[], &[NO_TEXTFILES]);
}

#[test]
fn captured_node() {
    compare_tree("firecracker-vm_debian-12_6.18");
}

#[test]
fn odd_node() {
    compare_tree("made-up/odd-node");
}

#[test]
fn much_hardware() {
    compare_tree("made-up/much-hardware");
}

/// Its collector is off by default, has a series for each operation, which here are only those that ours names too, and
/// for each kind of event, which ours leaves out.
#[test]
fn nfs_mounts() {
    let node = tempfile::tempdir().unwrap();
    let own = node.path().join("10");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink("10", node.path().join("self")).unwrap();
    for file in ["mountstats", "mountinfo"] {
        std::fs::copy(fixtures().join("made-up/nfs-client").join(file), own.join(file)).unwrap();
    }
    let procfs = format!("--path.procfs={}", node.path().display());
    let flags = [procfs.as_str(), "--collector.disable-defaults", "--collector.mountstats"];
    let Some(theirs) = Running::node_exporter(&flags) else { return };
    let ours = Running::takt(&flags, &[]);
    let page = |exporter: &Running| {
        let mut series = exporter.series("");
        series.retain(|series, _| series.starts_with("node_mountstats_nfs_") && !series.contains("_event_"));
        series
    };
    let theirs = page(&theirs);
    assert!(theirs.len() > 80, "{theirs:?}");
    assert_eq!(difference(&theirs, &page(&ours), &theirs), BTreeSet::new());
}

fn compare_tree(tree: &str) {
    let flags = paths(&fixtures().join(tree));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    // Over netlink it would look at this machine's devices.
    let mut only_theirs = vec!["--no-collector.netdev.netlink"];
    if !flags.iter().any(|flag| flag.starts_with("--collector.textfile")) {
        only_theirs.push(NO_TEXTFILES);
    }
    compare(&flags, &only_theirs);
}

fn compare(flags: &[&str], only_theirs: &[&str]) {
    let more = ["--collector.stat.softirq", "--collector.meminfo_numa", "--collector.drm"];
    let flags: Vec<_> = flags.iter().copied().chain(more).collect();
    let Some(theirs) = Running::node_exporter(&[&flags, only_theirs].concat()) else { return };
    let ours = Running::takt(&flags, &[]);
    let query = COLLECTORS
        .iter()
        .map(|name| format!("collect[]={name}"))
        .collect::<Vec<_>>()
        .join("&")
        .replace('[', "%5B")
        .replace(']', "%5D");
    let query = format!("?{query}");
    let is_netlink = |series: &str| {
        only_theirs.contains(&"--no-collector.netdev.netlink")
            && series.contains("node_network_receive_nohandler_total")
    };
    let page = |exporter: &Running| {
        let mut series = exporter.series(&query);
        series.retain(|series, _| is_compared(series) && !is_netlink(series));
        series
    };

    let mut differences: Option<BTreeSet<String>> = None;
    for _ in 0..LOOKS {
        let found = difference(&page(&theirs), &page(&ours), &page(&theirs));
        let left = differences.map_or(found.clone(), |before| &before & &found);
        if left.is_empty() {
            return;
        }
        differences = Some(left);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let lines = Vec::from_iter(differences.unwrap());
    panic!("{} series differ from node_exporter's:\n{}", lines.len(), lines.join("\n"));
}

/// What is in one page and not in the other, and what stood still in theirs and is another value in ours.
fn difference(
    before: &BTreeMap<String, f64>,
    ours: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeSet<String> {
    let names: BTreeSet<_> = before.keys().chain(ours.keys()).chain(after.keys()).collect();
    let line = |name: &&String| match (before.get(*name), ours.get(*name), after.get(*name)) {
        (Some(before), Some(ours), Some(after)) if before == after && ours != before => {
            Some(format!("{name}: theirs {before}, ours {ours}"))
        }
        (Some(_), None, Some(_)) => Some(format!("missing in ours: {name}")),
        (None, Some(_), None) => Some(format!("only in ours: {name}")),
        _ => None,
    };
    names.iter().filter_map(line).filter(|line| !ON_PURPOSE.iter().any(|known| line.starts_with(known))).collect()
}

/// Neither exporter's own affairs; the odd node's textfile has others' names.
fn is_compared(series: &str) -> bool {
    ["node_", "backup_", "untold"].iter().any(|prefix| series.starts_with(prefix))
        && !["node_scrape_collector_duration_seconds", "node_exporter_build_info"]
            .iter()
            .any(|own| series.starts_with(own))
}
