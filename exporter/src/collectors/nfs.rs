//! The node as an NFS client: remote procedure calls, retransmissions and requests by procedure,
//! over all mounts.
//!
//! Source: `/proc/net/rpc/nfs`, which is there as soon as the kernel's client is loaded.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Nfs {
    nfs: KernelFile,
}

const PACKETS: Metric = Metric::counter(
    "node_nfs_packets_total",
    "Total NFSd network packets (sent+received) by protocol type.",
    &["protocol"],
);
const CONNECTIONS: Metric = Metric::counter(
    "node_nfs_connections_total",
    "Total number of NFSd TCP connections.",
    &[],
);
const RPCS: Metric = Metric::counter(
    "node_nfs_rpcs_total",
    "Total number of RPCs performed.",
    &[],
);
const RETRANSMISSIONS: Metric = Metric::counter(
    "node_nfs_rpc_retransmissions_total",
    "Number of RPC transmissions performed.",
    &[],
);
const REFRESHES: Metric = Metric::counter(
    "node_nfs_rpc_authentication_refreshes_total",
    "Number of RPC authentication refreshes performed.",
    &[],
);
const REQUESTS: Metric = Metric::counter(
    "node_nfs_requests_total",
    "Number of NFS procedures invoked.",
    &["proto", "method"],
);
const METRICS: &[Metric] = &[
    PACKETS,
    CONNECTIONS,
    RPCS,
    RETRANSMISSIONS,
    REFRESHES,
    REQUESTS,
];

/// The procedures of version 2, in the kernel's order, as node_exporter calls them.
#[rustfmt::skip]
pub(super) const V2: &[&str] = &[
    "Null", "GetAttr", "SetAttr", "Root", "Lookup", "ReadLink", "Read", "WrCache", "Write", "Create", "Remove",
    "Rename", "Link", "SymLink", "MkDir", "RmDir", "ReadDir", "FsStat",
];
#[rustfmt::skip]
pub(super) const V3: &[&str] = &[
    "Null", "GetAttr", "SetAttr", "Lookup", "Access", "ReadLink", "Read", "Write", "Create", "MkDir", "SymLink",
    "MkNod", "Remove", "RmDir", "Rename", "Link", "ReadDir", "ReadDirPlus", "FsStat", "FsInfo", "PathConf", "Commit",
];
/// The client's own operations, not the protocol's; newer kernels have more behind them, older ones
/// fewer.
#[rustfmt::skip]
const V4: &[&str] = &[
    "Null", "Read", "Write", "Commit", "Open", "OpenConfirm", "OpenNoattr", "OpenDowngrade", "Close", "Setattr",
    "FsInfo", "Renew", "SetClientID", "SetClientIDConfirm", "Lock", "Lockt", "Locku", "Access", "Getattr", "Lookup",
    "LookupRoot", "Remove", "Rename", "Link", "Symlink", "Create", "Pathconf", "StatFs", "ReadLink", "ReadDir",
    "ServerCaps", "DelegReturn", "GetACL", "SetACL", "FsLocations", "ReleaseLockowner", "Secinfo", "FsidPresent",
    "ExchangeID", "CreateSession", "DestroySession", "Sequence", "GetLeaseTime", "ReclaimComplete", "LayoutGet",
    "GetDeviceInfo", "LayoutCommit", "LayoutReturn", "SecinfoNoName", "TestStateID", "FreeStateID", "GetDeviceList",
    "BindConnToSession", "DestroyClientID", "Seek", "Allocate", "DeAllocate", "LayoutStats", "Clone",
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Nfs {
        nfs: KernelFile::new(paths.procfs.join("net/rpc/nfs")),
    })
}

impl Collector for Nfs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        METRICS.len() + 1 + V2.len() + V3.len() + V4.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let read = self.nfs.parse(|text| {
            for line in parse(text) {
                push_line(&line?, out)?;
            }
            Ok(())
        });
        read.or_absent("no NFS client")
    }
}

fn push_line(line: &RpcLine<'_>, out: &mut Samples) -> Result<(), ParseError> {
    match line.key {
        "net" => {
            // The first number is the sum of the next two.
            let [_, udp, tcp, connections] = line.first()?;
            out.push(&PACKETS, &["udp"], udp);
            out.push(&PACKETS, &["tcp"], tcp);
            out.push::<&str>(&CONNECTIONS, &[], connections);
        }
        "rpc" => {
            let values: [f64; 3] = line.first()?;
            for (metric, value) in [RPCS, RETRANSMISSIONS, REFRESHES].iter().zip(values) {
                out.push::<&str>(metric, &[], value);
            }
        }
        "proc2" => push_requests(&REQUESTS, "2", V2, line.counted()?, out),
        "proc3" => push_requests(&REQUESTS, "3", V3, line.counted()?, out),
        "proc4" => push_requests(&REQUESTS, "4", V4, line.counted()?, out),
        _ => {}
    }
    Ok(())
}

pub(super) fn push_requests(
    metric: &Metric,
    proto: &str,
    methods: &[&str],
    counts: &[f64],
    out: &mut Samples,
) {
    for (method, &count) in methods.iter().zip(counts) {
        out.push(metric, &[proto, method], count);
    }
}

/// A line of a file of `/proc/net/rpc`: a word and numbers.
#[derive(Debug, PartialEq)]
pub(super) struct RpcLine<'a> {
    pub key: &'a str,
    values: Vec<f64>,
    number: usize,
}

impl RpcLine<'_> {
    /// The first values; a kernel may have appended others.
    pub fn first<const N: usize>(&self) -> Result<[f64; N], ParseError> {
        self.values.first_chunk().copied().ok_or(ParseError {
            line: self.number,
            expected: "more numbers",
        })
    }

    /// The values behind the first, which says how many they are.
    pub fn counted(&self) -> Result<&[f64], ParseError> {
        let counted = self.values.split_first();
        // A line that was cut off would give wrong procedures their counts.
        let counted = counted.filter(|(count, values)| **count == values.len() as f64);
        let (_, values) = counted.ok_or(ParseError {
            line: self.number,
            expected: "as many numbers as the first says",
        })?;
        Ok(values)
    }
}

pub(super) fn parse(text: &str) -> impl Iterator<Item = Result<RpcLine<'_>, ParseError>> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let mut words = line.split_ascii_whitespace();
        let key = words.next()?;

        let values = words.map(|word| word.parse().ok()).collect::<Option<_>>();
        let line = values.map(|values| RpcLine {
            key,
            values,
            number: number + 1,
        });

        Some(line.ok_or(ParseError {
            line: number + 1,
            expected: "a word and numbers",
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers() {
        let lines: Vec<_> = parse("net 18628 1 18627 6\n\nproc4 2 7 8\nth 8 0 0.000\n")
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(lines[0].first(), Ok([18_628.0, 1.0, 18_627.0, 6.0]));
        assert_eq!(lines[1].counted(), Ok([7.0, 8.0].as_slice()));
        assert_eq!(lines[2].first(), Ok([8.0]));
    }

    #[test]
    fn wrong_lines_are_named() {
        let line = |text| parse(text).nth(1).unwrap();
        assert_eq!(line("net 1\nrpc many\n").unwrap_err().line, 2);
        assert_eq!(
            line("net 1\nrpc 1 2\n")
                .unwrap()
                .first::<3>()
                .unwrap_err()
                .line,
            2
        );
        for text in [
            "net 1\nproc3 3 1 2\n",
            "net 1\nproc3\n",
            "net 1\nproc3 -1 2\n",
        ] {
            assert_eq!(
                line(text).unwrap().counted().unwrap_err().line,
                2,
                "{text:?}"
            );
        }
    }
}
