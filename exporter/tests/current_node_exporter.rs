//! Comparison with the current node_exporter, 1.12.1: series, constant values, types and help texts.
//!
//! `scripts/peers.sh node_exporter` builds it; without it, these tests are skipped. Compared are all collectors that run by
//! default there and that node_exporter can read: it fails for a whole collector if a fixture lacks one of its files.
//! `node_exporter.rs` compares more collectors and fixtures with Debian's version.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
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
    "missing in ours: node_softnet_",
    // Over netlink, node_exporter would read this machine instead of the fixture.
    "only in ours: node_network_receive_nohandler_total",
    "help of node_scrape_collector_",
];

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

fn compare_tree(tree: &str) {
    let flags = paths(&fixtures().join(tree));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let no_netlink = [
        "--no-collector.netdev.netlink",
        "--no-collector.arp.netlink",
    ];
    // node_exporter reads the mounts of process 1, which a fixture has only for the exporter itself.
    compare(&flags, &no_netlink, &["filesystem"]);
}

fn compare(flags: &[&str], only_theirs: &[&str], left_out: &[&str]) {
    let Some(theirs) = Running::current_node_exporter(&[flags, only_theirs].concat()) else {
        return;
    };
    let ours = Running::takt(flags, &[]);
    let query = readable(&theirs, left_out);
    let mut differences: Option<BTreeSet<String>> = None;
    for _ in 0..READS {
        let before = theirs.page(&query);
        let found = difference(&before, &ours.page(&query), &theirs.page(&query));
        let left = differences.map_or(found.clone(), |before| &before & &found);
        if left.is_empty() {
            return;
        }
        differences = Some(left);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let lines = Vec::from_iter(differences.unwrap());
    panic!("{} differences:\n{}", lines.len(), lines.join("\n"));
}

/// Returns the query for the collectors that node_exporter can read.
fn readable(theirs: &Running, left_out: &[&str]) -> String {
    let success = r#"node_scrape_collector_success{collector=""#;
    let names = theirs.series("").into_iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(success)?.strip_suffix("\"}")?;
        (value == 1.0 && !left_out.contains(&name)).then(|| format!("collect%5B%5D={name}"))
    });
    let names: Vec<String> = names.collect();
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
