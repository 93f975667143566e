//! CPUs, memory, disks, network and NFS of a node.

use super::{Demo, Instant, Sink};
use crate::faults::{EVENT_KINDS, FaultKind};
use crate::metrics as m;
use crate::noise::unit;
use crate::schedule::Job;

const NONE: &[&str] = &[];
const GIB: f64 = 1_073_741_824.0;
const ROOT: [&str; 3] = ["/dev/nvme0n1p2", "/", "ext4"];
const SCRATCH: [&str; 3] = ["/dev/nvme1n1", "/scratch", "xfs"];
const LINK: &str = "eth0";

/// Size of the local disk for scratch files, in bytes.
const SCRATCH_BYTES: f64 = 3.5e12;

/// Bytes in a second by which one node's scratch disk fills.
const FILLING: f64 = 1.9e6;

pub(super) fn read(
    demo: &Demo,
    number: usize,
    at: Instant,
    running: &[(&Job, usize)],
    sink: &mut impl Sink,
) {
    cpus(demo, number, at, sink);
    memory(demo, number, at, running, sink);
    disks(demo, number, at, sink);
    network(demo, number, at, sink);
    nfs(demo, number, at, sink);

    let node = &demo.cluster.nodes[number];
    let offset = 2e-5 * at.noise(seed(number, 9));
    sink.push_all(
        NONE,
        &[
            (&m::BOOT_TIME, demo.booted.0 as f64),
            (&m::TIME, at.exact),
            (&m::TIMEX_OFFSET, offset),
            (&m::TIMEX_SYNC, 1.0),
        ],
    );

    let uname = [
        "Linux",
        "6.1.0-28-amd64",
        "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1",
        "x86_64",
        &node.name,
        "(none)",
    ];
    sink.push(&m::UNAME, &uname, 1.0);

    events(demo, number, at, sink);
    for collector in ["cpu", "meminfo", "nvml", "jobs", "mountstats", "links"] {
        sink.push(&m::COLLECTOR_SUCCESS, &[collector], 1.0);
    }
    sink.push(&m::LOG_FOLLOWED, NONE, 1.0);
    sink.push(&m::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
}

/// Seed of a node's noise in one quantity.
fn seed(node: usize, quantity: u64) -> u64 {
    node as u64 * 64 + quantity
}

/// Numbers of CPUs as label values.
static CPU_NAMES: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
];

/// The page has one series for several CPUs of a large node: hundreds of nodes have to fit into a
/// laptop.
fn cpus(demo: &Demo, number: usize, at: Instant, sink: &mut impl Sink) {
    let node = &demo.cluster.nodes[number];
    let curves = &demo.nodes[number];
    let shown = (node.cpus as usize).min(CPU_NAMES.len());
    let cpus = shown as f64;
    // The shown CPUs stand for all: each has its share of the node's work.
    let scale = cpus / f64::from(node.cpus);
    let user = curves.user_cpu.at(at.exact) * scale / cpus;
    let up = at.exact - demo.booted.0 as f64;
    let system = 0.012 * up + 0.06 * user;
    // Waiting for NFS, in proportion to the bytes that were read.
    let waiting = curves.nfs_read.at(at.exact) / 4e9 / cpus;
    let idle = (up - user - system - waiting).max(0.0);

    for name in &CPU_NAMES[..shown] {
        for (mode, seconds) in [
            ("user", user),
            ("system", system),
            ("iowait", waiting),
            ("idle", idle),
        ] {
            sink.push(&m::CPU, &[name, mode], (seconds * 100.0).round() / 100.0);
        }
    }

    let busy = curves.user_cpu.rate(at.exact);
    let load = busy * (1.02 + 0.05 * at.noise(seed(number, 1))) + 0.3;
    sink.push_all(
        NONE,
        &[
            (&m::LOAD1, (load * 100.0).round() / 100.0),
            (&m::LOAD5, (busy * 101.0).round() / 100.0),
            // The longer means follow the jobs more smoothly: they have no noise.
            (&m::LOAD15, (busy * 100.0).round() / 100.0),
        ],
    );
}

fn memory(
    demo: &Demo,
    number: usize,
    at: Instant,
    running: &[(&Job, usize)],
    sink: &mut impl Sink,
) {
    // The kernel keeps a part of the memory for itself.
    let total = f64::from(demo.cluster.nodes[number].memory_gib) * GIB * 0.985;
    let of_jobs: f64 = running
        .iter()
        .map(|(job, _)| f64::from(job.request.memory_gib) * job.kind.memory())
        .sum();
    let noise = at.noise(seed(number, 2));
    // Rounding and noise must not make more memory than there is.
    let used = ((3.0 + of_jobs) * GIB * (1.0 + 0.03 * noise)).min(total * 0.97);
    let cached = ((total - used) * 0.6).round();

    sink.push_all(
        NONE,
        &[
            (&m::MEM_TOTAL, total.round()),
            (&m::MEM_AVAILABLE, (total - used).round()),
            (&m::MEM_FREE, (total - used - cached).round()),
            (&m::MEM_CACHED, cached),
        ],
    );
}

fn disks(demo: &Demo, number: usize, at: Instant, sink: &mut impl Sink) {
    let up = at.exact - demo.booted.0 as f64;
    let root = 4.8e11;
    let root_used = root * (0.31 + 0.1 * unit(seed(number, 3), 0));
    // The scratch disk of the second node will be full in about three days.
    let scratch_used = if number == 1 {
        let left = 3.0 * 86_400.0 - (at.exact - demo.script.pace.began.0 as f64);
        (SCRATCH_BYTES - FILLING * left).clamp(0.0, SCRATCH_BYTES)
    } else {
        // The level changes once a day, by a value between 0.2 and 0.6 of the disk.
        SCRATCH_BYTES * (0.4 + 0.2 * unit(seed(number, 4), at.second.0.div_euclid(86_400)))
    };

    for (labels, size, used) in [
        (ROOT, root, root_used),
        (SCRATCH, SCRATCH_BYTES, scratch_used),
    ] {
        sink.push_all(
            &labels,
            &[
                (&m::FS_SIZE, size),
                (&m::FS_FREE, (size - used).round()),
                (&m::FS_AVAIL, (size - used).round()),
                (&m::FS_READONLY, 0.0),
                (&m::FS_FILES, 3e7),
                (&m::FS_FILES_FREE, 2.6e7),
            ],
        );
    }

    let disk = ["nvme1n1"];
    sink.push_all(
        &disk,
        &[
            (&m::DISK_READ, (4e6 * up).round()),
            (&m::DISK_WRITTEN, (FILLING * up).round()),
            (&m::DISK_BUSY, (0.02 * up * 100.0).round() / 100.0),
        ],
    );
}

fn network(demo: &Demo, number: usize, at: Instant, sink: &mut impl Sink) {
    let speed = demo.cluster.nodes[number].link_bits;
    let is_slow = demo
        .script
        .on_node(FaultKind::SlowLink, number, at.second)
        .is_some();
    let negotiated = if is_slow { 1e9 } else { speed };
    let received = demo.nodes[number].received.at(at.exact);

    let device = [LINK];
    sink.push_all(
        &device,
        &[
            (&m::NET_RECEIVED, received.round()),
            (&m::NET_SENT, (received * 0.4).round()),
            (&m::NET_UP, 1.0),
            (&m::NET_SPEED, negotiated / 8.0),
            (&m::LINK_SPEED, negotiated),
            (&m::LINK_CAPABILITY, speed),
            // Both ends can do more than is negotiated.
            (&m::LINK_PARTNER, speed),
            (&m::LINK_WIRELESS, 0.0),
        ],
    );
    sink.push(&m::LINK_TRAFFIC, &[LINK, "default_route"], 1.0);
}

fn nfs(demo: &Demo, number: usize, at: Instant, sink: &mut impl Sink) {
    let nas = demo.cluster.nas;
    let export = format!("{nas}:/export/data");
    let mount = [export.as_str(), "tcp", "10.0.0.10"];
    let read = demo.nodes[number].nfs_read.at(at.exact);
    let written = read * 0.07;
    sink.push(&m::NFS_READ, &mount, read.round());
    sink.push(&m::NFS_WRITTEN, &mount, written.round());

    for (operation, bytes) in [("READ", read), ("WRITE", written)] {
        let labels = [mount[0], mount[1], mount[2], operation];
        // Each request moves 256 KiB.
        let requests = (bytes / 262_144.0).round();
        let response = (requests * 0.0021 * 1e3).round() / 1e3;
        sink.push_all(
            &labels,
            &[
                (&m::NFS_REQUESTS, requests),
                (&m::NFS_SENT, requests),
                (&m::NFS_RESPONSE, response),
            ],
        );
    }
    let hung = demo.script.on_node(FaultKind::NfsHung, number, at.second);
    let seconds = hung.map_or(0.0, |since| at.exact - since.0 as f64).max(0.0);
    sink.push(&m::NFS_HUNG, &["/data", nas], seconds);

    // The exporter knows a server's state from the kernel's log, so it has none before the first line.
    if demo.script.times(FaultKind::NfsHung, number, at.second) > 0 {
        let responds = if hung.is_some() { 0.0 } else { 1.0 };
        sink.push(&m::NFS_RESPONDING, &[nas], responds);
    }
}

fn events(demo: &Demo, number: usize, at: Instant, sink: &mut impl Sink) {
    let began = demo.script.pace.began;
    // Nothing is logged before the start of the script, so these are all lines until now.
    let lines = demo.script.kernel_lines(number, began - 1, at.second);
    for kind in EVENT_KINDS {
        let count = lines.iter().filter(|line| line.kind == kind).count();
        sink.push(&m::EVENTS, &[kind.name()], count as f64);
    }
}
