//! Comparison with node_exporter: the same series and, where values do not change, the same values.
//!
//! `TAKT_NODE_EXPORTER` names the program; the default is Debian's 1.5.
//! `go install github.com/prometheus/node_exporter@v1.12.1` builds the current one.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use support::{Running, fixtures, paths};
use tempfile::tempdir;

/// Collectors of both programs.
const COLLECTORS: &[&str] = &[
    "arp",
    "bcache",
    "bonding",
    "btrfs",
    "buddyinfo",
    "cgroups",
    "conntrack",
    "cpu",
    "cpufreq",
    "diskstats",
    "dmi",
    "drbd",
    "drm",
    "edac",
    "entropy",
    "ethtool",
    "fibrechannel",
    "filefd",
    "filesystem",
    "hwmon",
    "infiniband",
    "interrupts",
    "ipvs",
    "ksmd",
    "lnstat",
    "loadavg",
    "mdadm",
    "meminfo",
    "meminfo_numa",
    "netclass",
    "netdev",
    "netstat",
    "network_route",
    "nfs",
    "nfsd",
    "nvme",
    "os",
    "powersupplyclass",
    "pressure",
    "processes",
    "qdisc",
    "rapl",
    "schedstat",
    "selinux",
    "slabinfo",
    "sockstat",
    "softnet",
    "stat",
    "sysctl",
    "tapestats",
    "tcpstat",
    "textfile",
    "thermal_zone",
    "time",
    "timex",
    "udp_queues",
    "uname",
    "vmstat",
    "xfs",
    "zfs",
    "zoneinfo",
];

/// Series that follow newer versions of node_exporter than Debian's 1.5, or correct a mistake.
const ON_PURPOSE: &[&str] = &[
    // Added in 1.10 to 1.12.
    "only in ours: node_edac_channel_",
    "only in ours: node_infiniband_lifespan_seconds",
    "only in ours: node_infiniband_out_of_sequence_packets_received_total",
    "only in ours: node_infiniband_roce_adp_retransmits_total",
    "only in ours: node_md_degraded",
    "only in ours: node_md_raid_disks",
    "only in ours: node_mountstats_nfs_mountpoint_info",
    "only in ours: node_nfsd_requests_total{method=\"SetClientID",
    "only in ours: node_nvme_namespace_",
    // 1.5 does not know arrays that are reshaped.
    r#"node_md_blocks_synced{device="md6"}: theirs 8000"#,
    r#"node_md_state{device="md6", state="active"}: theirs 1"#,
    // Takt also has it for a mount that cannot be read.
    "only in ours: node_filesystem_readonly",
    "only in ours: node_filesystem_mount_info",
    "only in ours: node_pressure_irq_",
    "only in ours: node_btrfs_commit",
    "only in ours: node_btrfs_last_commit",
    "only in ours: node_btrfs_max_commit",
    "only in ours: node_cpu_frequency_hertz",
    "only in ours: node_cpu_online",
    "only in ours: node_systemd_virtualization_info",
    // 1.5 skips negative numbers.
    "only in ours: node_zfs_arc_memory_available_bytes",
    r#"only in ours: node_zfs_zpool_state{state="suspended""#,
    "only in ours: node_cpu_scaling_governor",
    // 1.5 fails for all bonds if the files of one are missing.
    r#"node_scrape_collector_success{collector="bonding"}: theirs 0, ours 1"#,
    "only in ours: node_netstat_TcpExt_TCPOFOQueue",
    "only in ours: node_netstat_TcpExt_TCPRcvQDrop",
    "only in ours: node_softnet_backlog_len",
    "only in ours: node_softnet_cpu_collision_total",
    "only in ours: node_softnet_flow_limit_count_total",
    "only in ours: node_softnet_received_rps_total",
    // 1.5 reads these from the positions of other operations.
    r#"node_nfsd_requests_total{method="Verify", proto="4"}: theirs"#,
    r#"node_nfsd_requests_total{method="Write", proto="4"}: theirs"#,
    r#"node_nfsd_requests_total{method="RelLockOwner", proto="4"}: theirs"#,
    // 1.5 takes the kernel's KiB for bytes.
    "node_drbd_network_received_bytes_total",
    // Missing in 1.5.
    r#"only in ours: node_nfsd_requests_total{method="Null", proto="2"}"#,
    r#"only in ours: node_nfsd_requests_total{method="Null", proto="3"}"#,
    r#"only in ours: node_nfsd_requests_total{method="SymLink", proto="2"}"#,
];

/// Flags that turn on series which are off by default in one of the two.
const ON_REQUEST: &[&str] = &[
    "--collector.bcache.priorityStats",
    "--collector.buddyinfo",
    "--collector.cgroups",
    "--collector.cpu.info",
    "--collector.cpu.info.bugs-include=.*",
    "--collector.cpu.info.flags-include=^(avx|sse)",
    "--collector.drbd",
    "--collector.drm",
    "--collector.ethtool",
    "--collector.interrupts",
    "--collector.ksmd",
    "--collector.lnstat",
    "--collector.meminfo_numa",
    "--collector.network_route",
    "--collector.processes",
    "--collector.qdisc",
    "--collector.slabinfo",
    "--collector.stat.softirq",
    "--collector.sysctl",
    "--collector.sysctl.include-info=kernel.core_pattern",
    "--collector.sysctl.include=fs.file-nr",
    "--collector.sysctl.include=kernel.printk:current,default,minimum,boot",
    "--collector.sysctl.include=kernel.threads-max",
    "--collector.tcpstat",
    "--collector.zoneinfo",
];

/// Collectors of nodes that lack the files of the others.
const ON_REQUEST_OF_OLD: &[&str] = &[
    "--collector.drm",
    "--collector.meminfo_numa",
    "--collector.stat.softirq",
    "--collector.tcpstat",
];

/// Flags that set upstream's defaults, where Debian's differ.
const AS_UPSTREAM: &[&str] = &[
    "--collector.diskstats.device-exclude=^(z?ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\\d+n\\d+p)\\d+$",
    "--collector.filesystem.fs-types-exclude=^(autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|fusectl|hugetlbfs|iso9660|mqueue|nsfs|overlay|proc|procfs|pstore|rpc_pipefs|securityfs|selinuxfs|squashfs|erofs|sysfs|tracefs)$",
    "--collector.filesystem.mount-points-exclude=^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)",
    "--collector.netdev.device-exclude=",
];

/// Debian's package has a default directory; upstream and Takt have none.
const NO_TEXTFILES: &str = "--collector.textfile.directory=";

/// Attempts before two values count as different: one may change between two scrapes.
const LOOKS: usize = 8;

#[test]
fn this_machine() {
    compare(ON_REQUEST, &[NO_TEXTFILES]);
}

#[test]
fn captured_node() {
    compare_tree("firecracker-vm_debian-12_6.18", ON_REQUEST_OF_OLD);
}

#[test]
fn odd_node() {
    compare_tree("made-up/odd-node", ON_REQUEST_OF_OLD);
}

#[test]
fn much_hardware() {
    compare_tree("made-up/much-hardware", ON_REQUEST);
}

/// node_exporter's collector is off by default. It has a series for each operation, and the fixture
/// has only operations that Takt exports too; its series for each kind of event are missing in
/// Takt.
#[test]
fn nfs_mounts() {
    let node = tempdir().unwrap();
    let own = node.path().join("10");
    fs::create_dir(&own).unwrap();

    // In the kernel's /proc, `self` is a link to the number of the process.
    std::os::unix::fs::symlink("10", node.path().join("self")).unwrap();
    for file in ["mountstats", "mountinfo"] {
        fs::copy(
            fixtures().join("made-up/nfs-client").join(file),
            own.join(file),
        )
        .unwrap();
    }
    let procfs = format!("--path.procfs={}", node.path().display());
    let flags = [
        procfs.as_str(),
        "--collector.disable-defaults",
        "--collector.mountstats",
    ];
    let Some(theirs) = Running::node_exporter(&flags) else {
        return;
    };
    let ours = Running::takt(&flags, &[]);
    let page = |exporter: &Running| {
        let mut series = exporter.series("");
        series.retain(|series, _| {
            series.starts_with("node_mountstats_nfs_") && !series.contains("_event_")
        });
        series
    };
    let theirs = page(&theirs);

    // Two pages without these series would be equal, too.
    assert!(theirs.len() > 80, "{theirs:?}");
    assert_eq!(difference(&theirs, &page(&ours), &theirs), BTreeSet::new());
}

#[test]
fn detailed_network_errors() {
    let flags = [
        "--collector.disable-defaults",
        "--collector.netdev",
        "--collector.netdev.enable-detailed-metrics",
    ];
    let Some(theirs) =
        Running::node_exporter(&[&flags[..], &["--collector.netdev.device-exclude="]].concat())
    else {
        return;
    };
    let ours = Running::takt(&flags, &[]);
    let page = |exporter: &Running| {
        let mut series = exporter.series("");
        series.retain(|series, _| series.starts_with("node_network_"));
        series
    };
    let look = || difference(&page(&theirs), &page(&ours), &page(&theirs));
    assert!(page(&theirs).len() > 20);

    // Counters move between two scrapes, so only a difference that each look finds counts.
    let left = (1..LOOKS).fold(look(), |left, _| &left & &look());
    assert_eq!(left, BTreeSet::new());
}

/// A private bus with a stand-in for systemd and logind.
#[test]
fn systemd_and_logind() {
    let directory = tempdir().unwrap();
    let address = format!("unix:path={}", directory.path().join("bus").display());
    let Some(_bus) = Helper::start(
        "dbus-daemon",
        &[
            "--session",
            "--nofork",
            "--print-address",
            "--address",
            &address,
        ],
    ) else {
        return;
    };
    let stand_in = format!("{}/tests/support/systemd.py", env!("CARGO_MANIFEST_DIR"));
    let Some(_stand_in) = Helper::start("/usr/bin/python3", &[&stand_in, &address]) else {
        return;
    };
    let flags = [
        "--collector.disable-defaults",
        "--collector.systemd",
        "--collector.systemd.enable-restarts-metrics",
        "--collector.systemd.enable-start-time-metrics",
        "--collector.systemd.enable-task-metrics",
        "--collector.systemd.unit-exclude=.+\\.target",
        "--collector.logind",
    ];
    let variable = ("DBUS_SYSTEM_BUS_ADDRESS", address.as_str());
    let Some(theirs) = Running::node_exporter_with(&flags, &[variable]) else {
        return;
    };
    let ours = Running::takt(&flags, &[(variable.0, Path::new(variable.1))]);
    let page = |exporter: &Running| {
        let mut series = exporter.series("");
        series.retain(|series, _| is_compared(series));
        series
    };
    let theirs = page(&theirs);
    assert!(theirs.len() > 150, "{theirs:?}");
    let ours = page(&ours);
    assert_eq!(difference(&theirs, &ours, &theirs), BTreeSet::new());
    assert_eq!(
        ours[r#"node_systemd_unit_state{name="slurmd.service", state="active", type="notify"}"#],
        1.0
    );
    assert_eq!(
        ours[r#"node_logind_sessions{class="user", remote="true", type="other"}"#],
        1.0
    );
}

/// A program that prints a line when it is ready. It is killed on drop.
struct Helper(Child);

impl Helper {
    fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut said = String::new();
        let started = child.ok().map(Self).and_then(|mut helper| {
            BufReader::new(helper.0.stdout.take()?)
                .read_line(&mut said)
                .ok()?;
            (!said.is_empty()).then_some(helper)
        });
        if started.is_none() {
            eprintln!(
                "SKIPPED: cannot run {program} {arguments:?}; apt-get install dbus python3-dbus \
                 python3-gi"
            );
        }
        started
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compare_tree(tree: &str, on_request: &[&str]) {
    let flags = paths(&fixtures().join(tree));
    let flags: Vec<_> = flags
        .iter()
        .map(String::as_str)
        .chain(on_request.iter().copied())
        .collect();
    // Over netlink it would read this machine's devices.
    let mut only_theirs = vec!["--no-collector.netdev.netlink"];
    if !flags
        .iter()
        .any(|flag| flag.starts_with("--collector.textfile"))
    {
        only_theirs.push(NO_TEXTFILES);
    }
    compare(&flags, &only_theirs);
}

fn compare(flags: &[&str], only_theirs: &[&str]) {
    // node_exporter reads during the request and always sees its connection; Takt reads ahead and
    // may not see it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _established = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let Some(theirs) = Running::node_exporter(&[flags, only_theirs, AS_UPSTREAM].concat()) else {
        return;
    };
    let ours = Running::takt(flags, &[]);

    // A collector that is on request is asked for only where a flag turns it on.
    let query = COLLECTORS
        .iter()
        .filter(|name| {
            !ON_REQUEST.contains(&&*format!("--collector.{name}"))
                || flags.contains(&&*format!("--collector.{name}"))
        })
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
        let series = exporter.series(&query).into_iter();
        series
            .filter(|(series, _)| is_compared(series) && !is_netlink(series))
            .map(|(name, value)| (without_newer_labels(&name), value))
            .collect()
    };

    let mut differences: Option<BTreeSet<String>> = None;
    for _ in 0..LOOKS {
        let found = difference(&page(&theirs), &page(&ours), &page(&theirs));
        let left = differences.map_or(found.clone(), |before| &before & &found);
        if left.is_empty() {
            return;
        }
        differences = Some(left);
        thread::sleep(std::time::Duration::from_millis(300));
    }
    let lines = Vec::from_iter(differences.unwrap());
    panic!(
        "{} series differ from node_exporter's:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

/// Returns the series without the labels that 1.5 lacks.
fn without_newer_labels(series: &str) -> String {
    let Some((name, labels)) = series.split_once('{') else {
        return series.to_owned();
    };
    let labels = labels.trim_end_matches('}').split(", ");
    let is_newer = |label: &&str| {
        ["rotational=", "device_error=", "adminstate=", "cntlid="]
            .iter()
            .any(|newer| label.starts_with(newer))
    };
    let labels = labels.filter(|label| !is_newer(label));
    format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(", "))
}

const ESTABLISHED: &str = r#"node_tcp_connection_states{state="established"}"#;

/// Returns series that only one page has, and series with a constant value in node_exporter's pages
/// and another value in Takt's.
fn difference(
    before: &BTreeMap<String, f64>,
    ours: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeSet<String> {
    let names: BTreeSet<_> = before
        .keys()
        .chain(ours.keys())
        .chain(after.keys())
        .collect();
    let line = |name: &&String| match (before.get(*name), ours.get(*name), after.get(*name)) {
        (Some(before), Some(ours), Some(after)) if before == after && ours != before => {
            // Both ends of the scrape's connection; Takt may have read before it existed.
            let is_asking = **name == ESTABLISHED && ours + 2.0 == *before;
            (!is_asking).then(|| format!("{name}: theirs {before}, ours {ours}"))
        }
        (Some(_), None, Some(_)) => Some(format!("missing in ours: {name}")),
        (None, Some(_), None) => Some(format!("only in ours: {name}")),
        _ => None,
    };
    names
        .iter()
        .filter_map(line)
        .filter(|line| !ON_PURPOSE.iter().any(|known| line.starts_with(known)))
        .collect()
}

/// Leaves out metrics of the exporters themselves; the textfile of the odd node has names of
/// others.
fn is_compared(series: &str) -> bool {
    ["node_", "backup_", "untold"]
        .iter()
        .any(|prefix| series.starts_with(prefix))
        && ![
            "node_scrape_collector_duration_seconds",
            "node_exporter_build_info",
        ]
        .iter()
        .any(|own| series.starts_with(own))
}
