//! The whole page of a node's files. `UPDATE_GOLDEN=1 cargo test` writes the pages again; review
//! the difference.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::env;
use std::fs;
use support::{Running, fixtures, paths, series};
use takt_model::exposition::Format;

/// Metrics whose values depend on the machine that runs the test.
const OF_THIS_MACHINE: &[&str] = &[
    "node_time_seconds",
    "node_scrape_collector_duration_seconds",
    "takt_exporter_collector_read_timestamp_seconds",
    "takt_exporter_build_info",
    "node_filesystem_size_bytes",
    "node_filesystem_free_bytes",
    "node_filesystem_avail_bytes",
    "node_filesystem_files",
    "node_uname_info",
    "node_os_info",
    "node_os_version",
    "node_textfile_mtime_seconds",
    "node_timex_",
    "process_",
    "takt_exporter_connections",
];

/// Metrics whose labels depend on that machine too.
const OF_THIS_MACHINE_ALTOGETHER: [&str; 5] = [
    "node_uname_info",
    "node_os_info",
    "node_os_version",
    "node_textfile_mtime_seconds",
    "takt_exporter_build_info",
];

/// Collectors that are off by default and read files only.
const ON_REQUEST: &[&str] = &[
    "buddyinfo",
    "cgroups",
    "cpu_vulnerabilities",
    "drbd",
    "interrupts",
    "kernel_hung",
    "ksmd",
    "lnstat",
    "pcidevice",
    "processes",
    "slabinfo",
    "softirqs",
    "swap",
    "sysctl",
    "xfrm",
    "zoneinfo",
];

#[test]
fn captured_node() {
    check("firecracker-vm_debian-12_6.18");
}

#[test]
fn odd_node() {
    check("made-up/odd-node");
}

#[test]
fn much_hardware() {
    check("made-up/much-hardware");
}

fn check(tree: &str) {
    let tree = fixtures().join(tree);
    let mut flags = paths(&tree);
    flags.extend(
        [
            "--nvml.library=/nonexistent",
            "--path.kmsg=/nonexistent",
            "--collector.meminfo_numa",
            "--no-collector.links",
            "--no-collector.nvme_health",
            "--no-collector.disk_health",
            "--no-collector.ipmi",
            "--collector.stat.softirq",
            "--collector.cpu.info",
            "--collector.sysctl.include=kernel.threads-max",
        ]
        .map(str::to_owned),
    );
    flags.extend(ON_REQUEST.iter().map(|name| format!("--collector.{name}")));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let exporter = Running::takt(&flags, &[]);
    // The second page must equal the first, although it reuses buffers.
    for query in ["", "?again"] {
        // Paths of energy zones are labels.
        let page: String = exporter
            .page(query)
            .replace(&*tree.to_string_lossy(), "")
            .lines()
            .map(mask)
            .collect();
        let golden = tree.join("page.txt");
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &page).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        for (number, (line, expected)) in page.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "{}, line {}", golden.display(), number + 1);
        }
        assert_eq!(page.lines().count(), expected.lines().count());
    }
    in_both_formats(&exporter);
}

fn in_both_formats(exporter: &Running) {
    let (head, body) = exporter.get(
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
    );
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(
        !head.to_ascii_lowercase().contains("content-encoding"),
        "{head}"
    );
    let open = series(Format::OpenMetrics, &body);
    let text = exporter.series("");
    assert_eq!(
        open.keys().collect::<Vec<_>>(),
        text.keys().collect::<Vec<_>>()
    );
    let (head, _) = exporter.get("/metrics", "Accept: */*\r\n");
    assert!(
        head.contains("text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
}

fn mask(line: &str) -> String {
    let name = line.split(['{', ' ']).next().unwrap();
    if !OF_THIS_MACHINE.iter().any(|other| name.starts_with(other)) {
        format!("{line}\n")
    } else if OF_THIS_MACHINE_ALTOGETHER.contains(&name) {
        format!("{name} …\n")
    } else {
        format!("{} …\n", line.rsplit_once(' ').unwrap().0)
    }
}
