//! Comparison with the current node_exporter, 1.12.1: series, constant values, types and help texts.
//!
//! `scripts/peers.sh node_exporter` builds it; without it, these tests are skipped. Compared are all collectors that both
//! have and that node_exporter can read: it fails for a whole collector if a fixture lacks one of its files. mountstats,
//! which is bounded here, and systemd's collectors are in `node_exporter.rs`, which compares with Debian's version.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::thread;
use support::{Running, fixtures, paths, series};
use takt_model::exposition::{Fact, Format, Line, Page};

/// Differences that docs/compatibility.md explains.
const ON_PURPOSE: &[&str] = &[
    // node_exporter has a fixed list of fields.
    "only in ours: node_memory_",
    // 0 everywhere but on macOS.
    "missing in ours: node_filesystem_purgeable_bytes",
    // The kernel lists LayoutGet before GetDeviceInfo.
    r#"node_nfs_requests_total{method="GetDeviceInfo", proto="4"}"#,
    r#"node_nfs_requests_total{method="LayoutGet", proto="4"}"#,
    r#"only in ours: node_nfsd_requests_total{method="Null", proto="#,
    // 0 in node_exporter if the kernel lacks the field.
    r#"missing in ours: node_nfsd_requests_total{method="WdelegGetattr""#,
    // Over netlink, node_exporter would read this machine instead of the fixture.
    "only in ours: node_network_receive_nohandler_total",
    "help of node_scrape_collector_",
    // The collector cpufreq has them here, which node_exporter cannot read in this fixture; there cpu has them.
    r#"missing in ours: node_cpu_frequency_hertz{core=""#,
    // node_exporter takes the kernel's KiB for bytes.
    "node_drbd_network_received_bytes_total",
    // node_exporter calls a kernel without this folder a success.
    r#"node_scrape_collector_success{collector="cpu_vulnerabilities"}: theirs 1, ours 0"#,
];

/// Collectors and series that are off by default in one of the two.
const ON_REQUEST: &[&str] = &[
    "--collector.bcache.priorityStats",
    "--collector.buddyinfo",
    "--collector.cgroups",
    "--collector.cpu.info",
    "--collector.cpu.info.bugs-include=.*",
    "--collector.cpu.info.flags-include=^(avx|sse)",
    "--collector.cpu_vulnerabilities",
    "--collector.drbd",
    "--collector.drm",
    "--collector.ethtool",
    "--collector.interrupts",
    "--collector.ksmd",
    "--collector.lnstat",
    "--collector.meminfo_numa",
    "--collector.network_route",
    "--collector.nvmesubsystem",
    "--collector.pcidevice",
    "--collector.processes",
    "--collector.qdisc",
    "--collector.slabinfo",
    "--collector.softirqs",
    "--collector.stat.softirq",
    "--collector.swap",
    "--collector.sysctl",
    "--collector.sysctl.include-info=kernel.core_pattern",
    "--collector.sysctl.include=fs.file-nr",
    "--collector.sysctl.include=kernel.threads-max",
    "--collector.tcpstat",
    "--collector.wifi",
    "--collector.xfrm",
    "--collector.zoneinfo",
];

/// Collectors that read this machine instead of a fixture's files.
const OF_THE_KERNEL: &[&str] = &["ethtool", "network_route", "qdisc", "tcpstat", "wifi"];

/// Reads of a page before two values count as different: one may change between two reads.
const READS: usize = 8;

#[test]
fn this_machine() {
    compare(&[], &[], &[]);
}

#[test]
fn captured_node() {
    compare_tree("firecracker-vm_debian-12_6.18");
}

#[test]
fn much_hardware() {
    compare_tree("made-up/much-hardware");
}

#[test]
fn odd_node() {
    compare_tree("made-up/odd-node");
}

/// Both read wireless links from the same files instead of the kernel.
#[test]
fn wireless_links() {
    let files = fixtures().join("made-up/wireless");
    let files = format!("--collector.wifi.fixtures={}", files.display());
    let flags = ["--collector.disable-defaults", "--collector.wifi", &files];
    let Some(theirs) = Running::current_node_exporter(&flags) else {
        return;
    };
    let ours = Running::takt(&flags, &[]);
    let page = ours.wait_for("read", |page| page.contains("node_wifi_station_info"));
    let theirs = theirs.page("");
    let differences = difference(&theirs, &page, &theirs);
    assert_eq!(differences, BTreeSet::new());
}

/// Types and helps of textfiles: declared, missing, in one of two files, of parts.
#[test]
fn textfiles() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).unwrap();
    };
    file(
        "a.prom",
        "# HELP node_site_a Of a.\\nTwo lines, a \\\\ and a \".\n# TYPE node_site_a gauge\nnode_site_a{x=\"1\"} 1\n\
         node_site_bare{f=\"a\"} 1\n# TYPE node_site_total counter\nnode_site_total 3\n\
         # HELP node_site_h Lengths.\n# TYPE node_site_h histogram\nnode_site_h_bucket{le=\"1\"} 1\n\
         node_site_h_bucket{le=\"+Inf\"} 2\nnode_site_h_sum 3\nnode_site_h_count 2\n\
         # TYPE node_site_s summary\nnode_site_s{quantile=\"0.5\"} 1\nnode_site_s_sum 1\nnode_site_s_count 1\n\
         # HELP node_site_empty\n# TYPE node_site_empty gauge\nnode_site_empty 1\n",
    );
    file(
        "b.prom",
        "node_site_bare{f=\"b\"} 1\n# HELP node_site_b   Blanks.\nnode_site_b 1\n",
    );
    let flag = format!(
        "--collector.textfile.directory={}",
        directory.path().display()
    );
    let flags = [
        "--collector.disable-defaults",
        "--collector.textfile",
        &flag,
    ];
    let Some(theirs) = Running::current_node_exporter(&flags) else {
        return;
    };
    let ours = Running::takt(&flags, &[]);
    let ours = ours.wait_for("read", |page| page.contains("node_site_b"));
    let theirs = theirs.page("");
    assert_eq!(difference(&theirs, &ours, &theirs), BTreeSet::new());
    let kept = |page: &str| {
        let mut lines = metadata(page);
        lines.retain(|name, _| name.contains("node_site_"));
        lines
    };
    assert_eq!(kept(&ours), kept(&theirs));
}

fn compare_tree(tree: &str) {
    let flags = paths(&fixtures().join(tree));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let no_netlink = [
        "--no-collector.netdev.netlink",
        "--no-collector.arp.netlink",
    ];
    // node_exporter reads the mounts of process 1, which a fixture has only for the exporter itself.
    compare(
        &flags,
        &no_netlink,
        &[&["filesystem"], OF_THE_KERNEL].concat(),
    );
}

fn compare(flags: &[&str], only_theirs: &[&str], left_out: &[&str]) {
    let flags = &[flags, ON_REQUEST].concat();
    let Some(theirs) = Running::current_node_exporter(&[flags, only_theirs].concat()) else {
        return;
    };
    let ours = Running::takt(flags, &[]);
    // The machine may have no other established connection, and a state without any is left out.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let query = readable(&theirs, left_out);
    let mut differences: Option<BTreeSet<String>> = None;
    // Only what differs each time counts.
    for _ in 0..READS {
        let before = theirs.page(&query);
        let found = difference(&before, &ours.page(&query), &theirs.page(&query));
        let left = differences.map_or(found.clone(), |before| &before & &found);
        if left.is_empty() {
            return;
        }
        differences = Some(left);
        thread::sleep(std::time::Duration::from_millis(300));
    }
    let lines = Vec::from_iter(differences.unwrap());
    panic!("{} differences:\n{}", lines.len(), lines.join("\n"));
}

/// Returns the query for the collectors that node_exporter can read.
fn readable(theirs: &Running, left_out: &[&str]) -> String {
    let success = r#"node_scrape_collector_success{collector=""#;
    let names: Vec<String> = theirs
        .series("")
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix(success)?.strip_suffix("\"}")?;
            // The query's brackets are escaped.
            (value == 1.0 && !left_out.contains(&name)).then(|| format!("collect%5B%5D={name}"))
        })
        .collect();
    // Fewer would mean that node_exporter read next to nothing.
    assert!(names.len() > 20, "{names:?}");
    format!("?{}", names.join("&"))
}

/// Returns the differences of two pages. A value differs if it is equal in both of node_exporter's pages.
fn difference(before: &str, ours: &str, after: &str) -> BTreeSet<String> {
    let [before_series, our_series, after_series] =
        [before, ours, after].map(|page| series(Format::Text, page));
    let names: BTreeSet<_> = before_series.keys().chain(our_series.keys()).collect();
    let of_series = names.into_iter().filter_map(|name| {
        let all = [&before_series, &our_series, &after_series].map(|page| page.get(name));
        match all {
            // A value that changes between the two pages cannot be compared.
            [Some(before), Some(ours), Some(after)] if before == after && ours != before => {
                Some(format!("{name}: theirs {before}, ours {ours}"))
            }
            [Some(_), None, Some(_)] => Some(format!("missing in ours: {name}")),
            [None, Some(_), None] => Some(format!("only in ours: {name}")),
            _ => None,
        }
    });
    let our_metadata = metadata(ours);
    let theirs = metadata(before);
    let of_metadata = theirs.iter().filter_map(|(key, theirs)| {
        // Missing metrics are found by their series.
        let ours = our_metadata.get(key)?;
        (ours != theirs).then(|| format!("{key}: theirs {theirs}, ours {ours}"))
    });
    of_series
        .chain(of_metadata)
        .filter(|line| is_compared(line))
        .collect()
}

/// Help texts and types by metric.
fn metadata(page: &str) -> BTreeMap<String, String> {
    let mut page = Page::new(Format::Text, page.as_bytes());
    let mut found = BTreeMap::new();
    while let Some(line) = page.next_line(b"").unwrap() {
        let Line::Metadata(metadata) = line else {
            continue;
        };
        let name = metadata.metric();
        match metadata.fact {
            Fact::Help(help) => found.insert(format!("help of {name}"), help.to_string()),
            Fact::Type(kind) => found.insert(format!("type of {name}"), kind.as_str().to_owned()),
            Fact::Unit(_) => None,
        };
    }
    found
}

/// Whether a difference counts: it is not one on purpose, and not about the exporters themselves.
fn is_compared(line: &str) -> bool {
    let is_own = [
        "node_scrape_collector_duration_seconds",
        "node_exporter_build_info",
    ]
    .iter()
    .any(|own| line.contains(own));
    line.contains("node_") && !is_own && !ON_PURPOSE.iter().any(|known| line.starts_with(known))
}
