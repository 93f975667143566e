//! Side by side with Debian's node_exporter: the same series and, where values stand still, the same values.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::{Running, fixtures, paths};

/// The collectors that both have.
const COLLECTORS: &[&str] = &[
    "arp",
    "conntrack",
    "cpu",
    "diskstats",
    "entropy",
    "filefd",
    "filesystem",
    "loadavg",
    "meminfo",
    "netclass",
    "netdev",
    "netstat",
    "pressure",
    "sockstat",
    "softnet",
    "stat",
    "time",
    "udp_queues",
    "uname",
    "vmstat",
];

/// Series in which we follow node_exporter's newer versions, not Debian's 1.5.
const NEWER: &[&str] = &[
    // Also told of a mount that cannot be read.
    "only in ours: node_filesystem_readonly",
    "only in ours: node_pressure_irq_",
    "only in ours: node_netstat_TcpExt_TCPOFOQueue",
    "only in ours: node_netstat_TcpExt_TCPRcvQDrop",
    "only in ours: node_softnet_backlog_len",
    "only in ours: node_softnet_cpu_collision_total",
    "only in ours: node_softnet_flow_limit_count_total",
    "only in ours: node_softnet_received_rps_total",
];

/// How often is looked before two values are said to differ: one may change between two looks.
const LOOKS: usize = 8;

#[test]
fn this_machine() {
    compare(&[], &[]);
}

#[test]
fn captured_node() {
    compare_tree("firecracker-vm_debian-12_6.18");
}

#[test]
fn odd_node() {
    compare_tree("made-up/odd-node");
}

fn compare_tree(tree: &str) {
    let flags = paths(&fixtures().join(tree));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    // Over netlink it would look at this machine's devices.
    compare(&flags, &["--no-collector.netdev.netlink"]);
}

fn compare(flags: &[&str], only_theirs: &[&str]) {
    let flags: Vec<_> = flags.iter().copied().chain(["--collector.stat.softirq"]).collect();
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
    let is_netlink = |series: &str| !only_theirs.is_empty() && series.contains("node_network_receive_nohandler_total");
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
    names.iter().filter_map(line).filter(|line| !NEWER.iter().any(|newer| line.starts_with(newer))).collect()
}

/// Neither exporter's own affairs.
fn is_compared(series: &str) -> bool {
    series.starts_with("node_")
        && !["node_scrape_collector_duration_seconds", "node_exporter_build_info"]
            .iter()
            .any(|own| series.starts_with(own))
}
