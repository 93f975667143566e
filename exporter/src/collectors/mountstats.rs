//! NFS client by mount: what each kind of request cost, what the connection went through, and
//! whether the server answers.
//!
//! Sources: `/proc/self/mountstats`, and `/proc/self/mountinfo` for the servers' addresses; neither
//! asks a server anything. The counters start at mount. The kernel counts milliseconds; we publish
//! seconds. Of some 70 operations nine have series of their own and the others are summed, and so
//! are the connections of a mount (`nconnect`). What a kernel has more than we know, or less, is
//! passed over.

use crate::collector::{CollectError, Collector, OrAbsent};
use crate::file::{KernelFile, unescape};
use crate::paths::Paths;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

struct Mountstats {
    mountstats: KernelFile,
    mountinfo: KernelFile,
    /// By mount point.
    progress: HashMap<String, Progress>,
}

const LABELS: &[&str] = &["export", "protocol", "mountaddr"];
const OPERATION_LABELS: &[&str] = &["export", "protocol", "mountaddr", "operation"];

macro_rules! metrics {
    ($labels:ident $prefix:literal $($kind:ident $name:literal $help:literal,)*) => {
        &[$(Metric::$kind(concat!($prefix, $name), $help, $labels)),*]
    };
}

const AGE: Metric = Metric::counter(
    "node_mountstats_nfs_age_seconds_total",
    "The age of the NFS mount in seconds.",
    LABELS,
);
/// In the order of the line `bytes:`.
const BYTES: &[Metric] = metrics! { LABELS "node_mountstats_nfs_"
    counter "read_bytes_total" "Number of bytes read using the read() syscall.",
    counter "write_bytes_total" "Number of bytes written using the write() syscall.",
    counter "direct_read_bytes_total"
        "Number of bytes read using the read() syscall in O_DIRECT mode.",
    counter "direct_write_bytes_total"
        "Number of bytes written using the write() syscall in O_DIRECT mode.",
    counter "total_read_bytes_total" "Number of bytes read from the NFS server, in total.",
    counter "total_write_bytes_total" "Number of bytes written to the NFS server, in total.",
    counter "read_pages_total" "Number of pages read directly via mmap()'d files.",
    counter "write_pages_total" "Number of pages written directly via mmap()'d files.",
};
/// In the order of [`Transport`].
const TRANSPORT: &[Metric] = metrics! { LABELS "node_mountstats_nfs_transport_"
    counter "bind_total"
        "Number of times the client has had to establish a connection from scratch to the NFS \
         server.",
    counter "connect_total"
        "Number of times the client has made a TCP connection to the NFS server.",
    gauge "idle_time_seconds" "Duration since the NFS mount last saw any RPC traffic, in seconds.",
    counter "sends_total" "Number of RPC requests for this mount sent to the NFS server.",
    counter "receives_total" "Number of RPC responses for this mount received from the NFS server.",
    counter "bad_transaction_ids_total"
        "Number of times the NFS server sent a response with a transaction ID unknown to this \
         client.",
    counter "backlog_queue_total" "Total number of items added to the RPC backlog queue.",
    gauge "maximum_rpc_slots" "Maximum number of simultaneously active RPC requests ever used.",
    counter "sending_queue_total"
        "Total number of items added to the RPC transmission sending queue.",
    counter "pending_queue_total"
        "Total number of items added to the RPC transmission pending queue.",
};
/// In the order of the columns of `per-op statistics`.
const OPERATIONS: &[Metric] = metrics! { OPERATION_LABELS "node_mountstats_nfs_operations_"
    counter "requests_total" "Number of requests performed for a given operation.",
    counter "transmissions_total"
        "Number of times an actual RPC request has been transmitted for a given operation.",
    counter "major_timeouts_total"
        "Number of times a request has had a major timeout for a given operation.",
    counter "sent_bytes_total"
        "Number of bytes sent for a given operation, including RPC headers and payload.",
    counter "received_bytes_total"
        "Number of bytes received for a given operation, including RPC headers and payload.",
    counter "queue_time_seconds_total"
        "Duration all requests spent queued for transmission for a given operation before they \
         were sent, in seconds.",
    counter "response_time_seconds_total"
        "Duration all requests took to get a reply back after a request for a given operation was \
         transmitted, in seconds.",
    counter "request_time_seconds_total"
        "Duration all requests took from when a request was enqueued to when it was completely \
         handled for a given operation, in seconds.",
};
const MOUNTPOINT: Metric = Metric::gauge(
    "node_mountstats_nfs_mountpoint_info",
    "Info metric for an NFS mountpoint.",
    &["export", "protocol", "mountaddr", "mountpoint"],
);
const ERRORS: Metric = Metric::counter(
    "takt_nfs_operation_errors_total",
    "Requests that the server answered with an error, or that failed without an answer (since \
     Linux 5.3).",
    OPERATION_LABELS,
);
const HUNG: Metric = Metric::gauge(
    "takt_nfs_mount_hung_seconds",
    "Time that the server has answered nothing although requests were sent; 0 while it answers, \
     however slowly, or nothing is sent.",
    &["mountpoint", "server"],
);
const METRICS: [Metric; METRIC_COUNT] = {
    let mut metrics = [AGE; METRIC_COUNT];
    metrics[1] = ERRORS;
    metrics[2] = HUNG;
    metrics[3] = MOUNTPOINT;
    let mut at = 4;
    let mut list = 0;
    while list < LISTS.len() {
        let mut within = 0;
        while within < LISTS[list].len() {
            metrics[at] = LISTS[list][within];
            (at, within) = (at + 1, within + 1);
        }
        list += 1;
    }
    metrics
};
const LISTS: [&[Metric]; 3] = [BYTES, TRANSPORT, OPERATIONS];
const METRIC_COUNT: usize = 4 + BYTES.len() + TRANSPORT.len() + OPERATIONS.len();

/// The operations with series of their own; the last is the sum of all others.
const NAMED: [&str; 10] = [
    "READ", "WRITE", "GETATTR", "LOOKUP", "ACCESS", "OPEN", "CLOSE", "COMMIT", "READDIR", "other",
];
const OTHER: usize = NAMED.len() - 1;
/// The columns that are times in milliseconds.
const TIMES: std::ops::Range<usize> = 5..8;
/// A node mounts no more shares than this.
const MAX_MOUNTS: usize = 256;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let own = paths.procfs.join("self");
    Box::new(Mountstats {
        mountstats: KernelFile::new(own.join("mountstats")),
        mountinfo: KernelFile::new(own.join("mountinfo")),
        progress: HashMap::new(),
    })
}

impl Collector for Mountstats {
    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn max_series(&self) -> usize {
        MAX_MOUNTS * (3 + BYTES.len() + TRANSPORT.len() + NAMED.len() * (OPERATIONS.len() + 1))
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let text = self.mountstats.read().or_absent("no mount statistics")?;

        let mounts = visible(parse(text));
        if mounts.is_empty() {
            self.progress.clear();
            return Err(CollectError::Absent("no NFS mounts"));
        }

        // Without it the series lack a label, not their values.
        let addresses = self
            .mountinfo
            .read()
            .map(parse_addresses)
            .unwrap_or_default();

        let mut seen = HashSet::new();
        let mut progress = HashMap::new();
        let now = Instant::now();

        for mount in &mounts {
            let before = self.progress.remove(mount.point);
            let after = Progress::step(before, mount, now);

            let hung = after.hung(now).as_secs_f64();
            out.push(&HUNG, &[&*unescape(mount.point), mount.server()], hung);

            progress.insert(mount.point.to_owned(), after);

            let address = addresses.get(mount.point).copied().unwrap_or_default();
            if !mount.protocol.is_empty() {
                let point = unescape(mount.point);
                let labels = [mount.export, mount.protocol, address, &point];
                out.push(&MOUNTPOINT, &labels, 1.0);
            }

            // Mounts of one export share its counters.
            if seen.insert((mount.export, mount.protocol, address)) {
                mount.push(address, out);
            }
        }

        self.progress = progress;
        Ok(())
    }
}

/// Progress of a mount's requests: a mount that hangs makes none, one that is slow makes some, one
/// that is idle sends nothing.
#[derive(Debug, Clone, Copy)]
struct Progress {
    sends: f64,
    /// Replies received and requests done with: whichever rises, something moved.
    done: f64,
    unanswered_since: Option<Instant>,
}

impl Progress {
    fn step(before: Option<Self>, mount: &Mount<'_>, now: Instant) -> Self {
        let sends = mount.transport[Transport::SENDS];

        // The first column counts the requests that are done with, whether or not a reply came.
        let replies = mount.operations.iter().flatten();
        let replies: f64 = replies.map(|counts| counts[0]).sum();
        let done = mount.transport[Transport::RECEIVES] + replies;

        let unanswered_since = match before {
            // Nothing moved: what was sent meanwhile waits for its reply.
            Some(before) if before.done == done => before
                .unanswered_since
                .or((sends > before.sends).then_some(now)),
            _ => None,
        };

        Self {
            sends,
            done,
            unanswered_since,
        }
    }

    fn hung(self, now: Instant) -> Duration {
        self.unanswered_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Columns of an operation: [`OPERATIONS`], then errors.
type Counts = [f64; OPERATIONS.len() + 1];
const ERROR_COLUMN: usize = OPERATIONS.len();

#[derive(Debug, Default)]
struct Mount<'a> {
    export: &'a str,
    /// As the kernel writes it, blanks as `\040`.
    point: &'a str,
    protocol: &'a str,
    age: Option<f64>,
    bytes: Vec<f64>,
    transport: [f64; TRANSPORT.len()],
    /// An operation that the mount's version of NFS lacks is `None`.
    operations: [Option<Counts>; NAMED.len()],
    counts_errors: bool,
}

impl Mount<'_> {
    /// The part of `server:/export`, where the server may be an IPv6 address.
    fn server(&self) -> &str {
        self.export
            .rsplit_once(":/")
            .map_or(self.export, |(server, _)| server)
    }

    fn push(&self, address: &str, out: &mut Samples) {
        let labels = [self.export, self.protocol, address];
        if let Some(age) = self.age {
            out.push(&AGE, &labels, age);
        }

        for (metric, &bytes) in BYTES.iter().zip(&self.bytes) {
            out.push(metric, &labels, bytes);
        }

        if !self.protocol.is_empty() {
            for (metric, value) in TRANSPORT.iter().zip(self.transport) {
                out.push(metric, &labels, value);
            }
        }

        for (operation, counts) in NAMED.iter().zip(&self.operations) {
            let Some(counts) = counts else { continue };

            let labels = [self.export, self.protocol, address, operation];
            for (metric, &count) in OPERATIONS.iter().zip(counts) {
                out.push(metric, &labels, count);
            }

            if self.counts_errors {
                out.push(&ERRORS, &labels, counts[ERROR_COLUMN]);
            }
        }
    }

    /// Reads a line of the mount. Missing fields and fields that are no numbers leave the value
    /// unchanged.
    fn read(&mut self, line: &str) {
        let Some((key, rest)) = line.trim_ascii().split_once(':') else {
            return;
        };

        match key {
            "age" => self.age = rest.trim_ascii().parse().ok(),
            "bytes" => self.bytes = numbers(rest).unwrap_or_default(),
            "xprt" => self.add_transport(rest),
            _ if is_operation(key) => self.add_operation(key, rest),
            _ => {}
        }
    }

    /// `tcp 832 1 …`: one line for each connection.
    fn add_transport(&mut self, line: &str) {
        let Some((protocol, rest)) = line.trim_ascii_start().split_once(' ') else {
            return;
        };

        // Published fields of the transports, and their positions; udp has no connections, and rdma
        // counts its own things behind the backlog. node_exporter has 0 for what a protocol lacks.
        let places: [Option<usize>; TRANSPORT.len()] = match protocol {
            "tcp" => [1, 2, 4, 5, 6, 7, 9, 10, 11, 12].map(Some),
            "rdma" => [
                Some(1),
                Some(2),
                Some(4),
                Some(5),
                Some(6),
                Some(7),
                Some(9),
                None,
                None,
                None,
            ],
            "udp" => [
                Some(1),
                None,
                None,
                Some(2),
                Some(3),
                Some(4),
                Some(6),
                Some(7),
                Some(8),
                Some(9),
            ],
            _ => return,
        };

        let Some(values) = numbers(rest) else { return };

        for (at, (sum, place)) in self.transport.iter_mut().zip(places).enumerate() {
            let value = place
                .and_then(|place| values.get(place))
                .copied()
                .unwrap_or_default();

            // The mount is idle for as long as its busiest connection.
            *sum = if at == Transport::IDLE && !self.protocol.is_empty() {
                sum.min(value)
            } else {
                *sum + value
            };
        }

        self.protocol = match protocol {
            "tcp" => "tcp",
            "rdma" => "rdma",
            _ => "udp",
        };
    }

    fn add_operation(&mut self, name: &str, line: &str) {
        let Some(values) = numbers(line).filter(|values| values.len() >= OPERATIONS.len()) else {
            return;
        };

        // Since Linux 5.3 there is a column of errors.
        self.counts_errors |= values.len() > ERROR_COLUMN;
        let at = NAMED.iter().position(|named| *named == name);
        let sums = self.operations[at.unwrap_or(OTHER)].get_or_insert_default();
        for (column, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
            *sum += if TIMES.contains(&column) {
                seconds(value)
            } else {
                value
            };
        }
    }
}

/// Whether the word before the colon is an operation: those are in capitals; `opts`, `caps`,
/// `events` and what else there is are not.
fn is_operation(key: &str) -> bool {
    let is_capital = |c: u8| c.is_ascii_uppercase() || c == b'_' || c.is_ascii_digit();
    !key.is_empty() && key.bytes().all(is_capital)
}

/// Places in [`TRANSPORT`].
struct Transport;

impl Transport {
    const IDLE: usize = 2;
    const SENDS: usize = 3;
    const RECEIVES: usize = 4;
}

/// A clock set back while a request was queued makes the kernel's sum negative, written as if it
/// were huge.
fn seconds(milliseconds: f64) -> f64 {
    if milliseconds >= i64::MAX as f64 {
        0.0
    } else {
        milliseconds / 1e3
    }
}

/// The numbers of a line; `None` if a word is not a number.
fn numbers(text: &str) -> Option<Vec<f64>> {
    // 128 bits, because some of the kernel's numbers are signed 64-bit numbers and others unsigned ones.
    text.split_ascii_whitespace()
        .map(|word| word.parse::<i128>().ok().map(|number| number as f64))
        .collect()
}

/// The NFS mounts.
fn parse(text: &str) -> Vec<Mount<'_>> {
    let mut mounts = Vec::new();
    let mut is_nfs = false;
    for line in text.lines() {
        if let Some(device) = line.strip_prefix("device ") {
            let mount = parse_device(device);
            is_nfs = mount.is_some();
            mounts.extend(mount);
        } else if is_nfs && let Some(mount) = mounts.last_mut() {
            mount.read(line);
        }
    }
    mounts
}

/// `server:/export mounted on /point with fstype nfs4 statvers=1.1`; `None` for other file systems.
fn parse_device(device: &str) -> Option<Mount<'_>> {
    let (export, rest) = device.split_once(" mounted on ")?;
    let (point, fs_type) = rest.split_once(" with fstype ")?;
    let fs_type = fs_type.split_ascii_whitespace().next();

    matches!(fs_type, Some("nfs" | "nfs4")).then(|| Mount {
        export,
        point,
        ..Mount::default()
    })
}

/// Leaves out mounts that a later one at the same place hides.
fn visible(mut mounts: Vec<Mount<'_>>) -> Vec<Mount<'_>> {
    let mut points = HashSet::new();
    mounts.reverse();
    mounts.retain(|mount| points.insert(mount.point));
    mounts.reverse();
    mounts
}

/// The servers' addresses by mount point: `addr=` of the options behind ` - `.
fn parse_addresses(text: &str) -> HashMap<&str, &str> {
    let address = |line| {
        let (mount, source) = str::split_once(line, " - ")?;
        let options = source.split_ascii_whitespace().nth(2)?;
        let address = options
            .split(',')
            .find_map(|option| option.strip_prefix("addr="))?;
        Some((mount.split_ascii_whitespace().nth(4)?, address))
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNT: &str = "device 192.0.2.1:/srv/home mounted on /home with fstype nfs4 \
         statvers=1.1\n\tage:\t13968\n";

    fn mount(lines: &str) -> String {
        format!("device rootfs mounted on / with fstype rootfs\n{MOUNT}{lines}")
    }

    #[test]
    fn connections_are_summed_and_idle_is_the_busiest_ones() {
        let text = mount(&"\txprt:\ttcp 832 1 2 3 4 6428 6420 5 12154 6 24 26 5726\n".repeat(7));
        let text = text + "\txprt:\ttcp 833 1 2 3 1 10 10 0 0 0 24 0 0\n";
        let mounts = parse(&text);
        assert_eq!(mounts.len(), 1);
        assert_eq!((mounts[0].protocol, mounts[0].age), ("tcp", Some(13_968.0)));
        assert_eq!(
            mounts[0].transport,
            [
                8.0, 16.0, 1.0, 45_006.0, 44_950.0, 35.0, 42.0, 192.0, 182.0, 40_082.0
            ]
        );
    }

    #[test]
    fn a_mount_over_another_hides_it() {
        let text = mount("\txprt:\ttcp 832 1 2 3 4 6428 6420 5 12154 6 24 26 5726\n");
        let other = MOUNT.replace("192.0.2.1", "192.0.2.2");
        let text = text + &MOUNT.replace("/home with", "/data with") + MOUNT + &other;
        let mounts = visible(parse(&text));
        let seen: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.point, mount.export))
            .collect();
        assert_eq!(
            seen,
            [
                ("/data", "192.0.2.1:/srv/home"),
                ("/home", "192.0.2.2:/srv/home")
            ]
        );
    }

    #[test]
    fn rdma_and_udp_and_unknown_protocols() {
        let rdma =
            mount("\txprt:\trdma 0 1 2 3 4 500 499 0 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\n");
        assert_eq!(
            parse(&rdma)[0].transport,
            [1.0, 2.0, 4.0, 500.0, 499.0, 0.0, 7.0, 0.0, 0.0, 0.0]
        );
        let udp = mount("\txprt:\tudp 832 1 500 499 0 6 7 8 9 10\n");
        assert_eq!(
            parse(&udp)[0].transport,
            [1.0, 0.0, 0.0, 500.0, 499.0, 0.0, 7.0, 8.0, 9.0, 10.0]
        );
        assert_eq!(
            parse(&mount("\txprt:\tlocal 0 1 2 3\n\txprt:\n\txprt:\ttcp x\n"))[0].protocol,
            ""
        );
    }

    #[test]
    fn operations_with_and_without_errors_and_a_queue_time_below_zero() {
        // The queue time of ACCESS is below zero, and written as an unsigned number.
        let text = mount(
            "\timpl_id:\tname='x\ny',domain='',date='0,0'\n\tper-op statistics\n\t        NULL: 1 \
             1 0 44 24 0 0 0 0\n\
             \t        READ: 1298 1299 1 207680 1210292152 6 79386 79407 2\n\
             \t      ACCESS: 2 2 0 4 5 18446743919241604546 7 8\n\t      RENAME: 1 2 3 4 5 6 7 8 \
             9\n\t  WRITE: 1 2\n",
        );
        let mount = &parse(&text)[0];
        let read = [
            1298.0,
            1299.0,
            1.0,
            207_680.0,
            1_210_292_152.0,
            0.006,
            79.386,
            79.407,
            2.0,
        ];
        assert_eq!(mount.operations[0], Some(read));
        assert_eq!(
            mount.operations[4],
            Some([2.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.007, 0.008, 0.0])
        );
        assert_eq!(
            mount.operations[OTHER],
            Some([2.0, 3.0, 3.0, 48.0, 29.0, 0.006, 0.007, 0.008, 9.0])
        );
        assert_eq!(mount.operations[1], None);
        assert!(mount.counts_errors);
    }

    #[test]
    fn a_hung_mount_differs_from_an_idle_or_slow_one() {
        let start = Instant::now();
        let mut progress = None;
        let mut hung = |second: u64, sends: u32, receives: u32, requests: u32| {
            let xprt = format!("\txprt:\ttcp 1 1 1 0 0 {sends} {receives} 0 0 0 0 0 0\n");
            let text = mount(&format!("{xprt}\tREAD: {requests} 1 0 0 0 0 0 0\n"));
            let now = start + Duration::from_secs(second);
            let after = Progress::step(progress, &parse(&text)[0], now);
            progress = Some(after);
            after.hung(now).as_secs()
        };
        assert_eq!(hung(0, 12, 10, 10), 0, "what was before is not known");
        assert_eq!(hung(15, 12, 10, 10), 0, "idle");
        assert_eq!(hung(30, 13, 10, 10), 0, "asked just now");
        assert_eq!(hung(45, 13, 10, 10), 15);
        assert_eq!(hung(90, 14, 10, 10), 60, "asked again");
        assert_eq!(hung(105, 15, 11, 11), 0, "slow, but it answers");
        assert_eq!(hung(120, 16, 11, 11), 0);
        assert_eq!(hung(135, 16, 11, 12), 0, "a soft mount gave up");
    }

    #[test]
    fn addresses() {
        let text = "30 1 0:40 / /home rw shared:1 - nfs4 192.0.2.1:/srv/home \
             rw,vers=4.0,mountaddr=x,addr=192.0.2.1\nodd\n";
        assert_eq!(
            parse_addresses(text),
            HashMap::from([("/home", "192.0.2.1")])
        );
        assert_eq!(
            Mount {
                export: "fe80::1:/srv",
                ..Mount::default()
            }
            .server(),
            "fe80::1"
        );
    }

    proptest! {
        #[test]
        fn garbage_is_ignored(lines in prop::collection::vec("\t(age|bytes|xprt|READ|opts): ?(tcp |udp |rdma )?[-0-9a ]{0,60}", 0..8)) {
            let text = mount(&lines.join("\n"));
            parse(&text)[0].push("", &mut Samples::new());
        }
    }
}
