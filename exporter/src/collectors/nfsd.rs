//! The node as an NFS server: threads, requests by operation, reply cache, bytes.
//!
//! Source: `/proc/net/rpc/nfsd`, which is there as soon as the kernel's server is loaded.

use super::nfs::{RpcLine, V2, V3, parse, push_requests};
use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Nfsd {
    nfsd: KernelFile,
}

const HITS: Metric = Metric::counter(
    "node_nfsd_reply_cache_hits_total",
    "Total number of NFSd Reply Cache hits (client lost server response).",
    &[],
);
const MISSES: Metric = Metric::counter(
    "node_nfsd_reply_cache_misses_total",
    "Total number of NFSd Reply Cache an operation that requires caching (idempotent).",
    &[],
);
const NOCACHE: Metric = Metric::counter(
    "node_nfsd_reply_cache_nocache_total",
    "Total number of NFSd Reply Cache non-idempotent operations (rename/delete/…).",
    &[],
);
const STALE: Metric = Metric::counter(
    "node_nfsd_file_handles_stale_total",
    "Total number of NFSd stale file handles",
    &[],
);
const READ: Metric = Metric::counter(
    "node_nfsd_disk_bytes_read_total",
    "Total NFSd bytes read.",
    &[],
);
const WRITTEN: Metric = Metric::counter(
    "node_nfsd_disk_bytes_written_total",
    "Total NFSd bytes written.",
    &[],
);
const THREADS: Metric = Metric::gauge(
    "node_nfsd_server_threads",
    "Total number of NFSd kernel threads that are running.",
    &[],
);
const READ_AHEAD_SIZE: Metric = Metric::gauge(
    "node_nfsd_read_ahead_cache_size_blocks",
    "How large the read ahead cache is in blocks.",
    &[],
);
const READ_AHEAD_NOT_FOUND: Metric = Metric::counter(
    "node_nfsd_read_ahead_cache_not_found_total",
    "Total number of NFSd read ahead cache not found.",
    &[],
);
const PACKETS: Metric = Metric::counter(
    "node_nfsd_packets_total",
    "Total NFSd network packets (sent+received) by protocol type.",
    &["proto"],
);
const CONNECTIONS: Metric = Metric::counter(
    "node_nfsd_connections_total",
    "Total number of NFSd TCP connections.",
    &[],
);
const RPCS: Metric = Metric::counter(
    "node_nfsd_server_rpcs_total",
    "Total number of NFSd RPCs.",
    &[],
);
const RPC_ERRORS: Metric = Metric::counter(
    "node_nfsd_rpc_errors_total",
    "Total number of NFSd RPC errors by error type.",
    &["error"],
);
const REQUESTS: Metric = Metric::counter(
    "node_nfsd_requests_total",
    "Total number NFSd Requests by method and protocol.",
    &["proto", "method"],
);
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    HITS, MISSES, NOCACHE, STALE, READ, WRITTEN, THREADS, READ_AHEAD_SIZE, READ_AHEAD_NOT_FOUND, PACKETS, CONNECTIONS,
    RPCS, RPC_ERRORS, REQUESTS,
];

/// The operations of version 4 that node_exporter has, with their numbers in the protocol (RFC
/// 7530, 16). It takes three of them, `Verify`, `Write` and `RelLockOwner`, from the places of
/// other operations; ours are the right ones.
#[rustfmt::skip]
const V4: &[(usize, &str)] = &[
    (3, "Access"), (4, "Close"), (5, "Commit"), (6, "Create"), (7, "DelegPurge"), (8, "DelegReturn"), (9, "GetAttr"),
    (10, "GetFH"), (11, "Link"), (12, "Lock"), (13, "Lockt"), (14, "Locku"), (15, "Lookup"), (16, "LookupRoot"),
    (17, "Nverify"), (18, "Open"), (19, "OpenAttr"), (20, "OpenConfirm"), (21, "OpenDgrd"), (22, "PutFH"),
    (25, "Read"), (26, "ReadDir"), (27, "ReadLink"), (28, "Remove"), (29, "Rename"), (30, "Renew"),
    (31, "RestoreFH"), (32, "SaveFH"), (33, "SecInfo"), (34, "SetAttr"), (35, "SetClientID"),
    (36, "SetClientIDConfirm"), (37, "Verify"), (38, "Write"), (39, "RelLockOwner"),
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Nfsd {
        nfsd: KernelFile::new(paths.procfs.join("net/rpc/nfsd")),
    })
}

impl Collector for Nfsd {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        METRICS.len() + 4 + V2.len() + V3.len() + V4.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let read = self.nfsd.parse(|text| {
            for line in parse(text) {
                push_line(&line?, out)?;
            }
            Ok(())
        });
        read.or_absent("no NFS server")
    }
}

fn push_line(line: &RpcLine<'_>, out: &mut Samples) -> Result<(), ParseError> {
    let mut push = |metrics: &[Metric], values: &[f64]| {
        for (metric, &value) in metrics.iter().zip(values) {
            out.push::<&str>(metric, &[], value);
        }
    };

    match line.key {
        "rc" => push(&[HITS, MISSES, NOCACHE], &line.first::<3>()?),
        "fh" => push(&[STALE], &line.first::<1>()?),
        "io" => push(&[READ, WRITTEN], &line.first::<2>()?),
        "th" => push(&[THREADS], &line.first::<1>()?),
        // Gone since Linux 5.5. Between the two, hits by how deep they were found.
        "ra" => {
            let values: [f64; 12] = line.first()?;
            let metrics = [READ_AHEAD_SIZE, READ_AHEAD_NOT_FOUND];
            push(&metrics, &[values[0], values[11]]);
        }
        "net" => {
            let [_, udp, tcp, connections] = line.first()?;
            push(&[CONNECTIONS], &[connections]);
            out.push(&PACKETS, &["udp"], udp);
            out.push(&PACKETS, &["tcp"], tcp);
        }
        "rpc" => {
            // The second is the sum of the three behind it.
            let [count, _, format, auth, client] = line.first()?;
            push(&[RPCS], &[count]);
            for (error, value) in [("fmt", format), ("auth", auth), ("cInt", client)] {
                out.push(&RPC_ERRORS, &[error], value);
            }
        }
        "proc2" => push_requests(&REQUESTS, "2", V2, line.counted()?, out),
        "proc3" => push_requests(&REQUESTS, "3", V3, line.counted()?, out),
        "proc4ops" => {
            let counts = line.counted()?;
            for (operation, method) in V4 {
                if let Some(&count) = counts.get(*operation) {
                    out.push(&REQUESTS, &["4", method], count);
                }
            }
        }
        // Since Linux 6.7: how often an attribute had to be asked of a client that may write.
        "wdeleg_getattr" => {
            let [count] = line.first()?;
            out.push(&REQUESTS, &["4", "WdelegGetattr"], count);
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::exposition::{Format, write_page};

    #[test]
    fn operations_stand_at_their_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nfsd");
        let counts = (500..572)
            .map(|count| format!(" {count}"))
            .collect::<String>();
        std::fs::write(
            &path,
            format!("th 8 0\nproc4 2 1 9\nproc4ops 72{counts}\nwdeleg_getattr 16\n"),
        )
        .unwrap();
        let mut nfsd = Nfsd {
            nfsd: KernelFile::new(path),
        };
        let mut samples = Samples::new();
        let mut page = String::new();
        nfsd.collect(&mut samples).unwrap();
        write_page(Format::Text, [&samples], &mut page);
        for line in [
            "node_nfsd_server_threads 8\n",
            "{proto=\"4\",method=\"Access\"} 503\n",
            "{proto=\"4\",method=\"Read\"} 525\n",
            "{proto=\"4\",method=\"SetClientID\"} 535\n",
            "{proto=\"4\",method=\"SetClientIDConfirm\"} 536\n",
            "{proto=\"4\",method=\"Write\"} 538\n",
            "{proto=\"4\",method=\"WdelegGetattr\"} 16\n",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
