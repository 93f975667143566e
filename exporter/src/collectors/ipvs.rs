//! IPVS, the kernel's load balancer: its traffic, and the connections to each server behind it.
//!
//! Sources: `/proc/net/ip_vs_stats` and `/proc/net/ip_vs`, both in hexadecimal but for the servers'
//! counts.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use takt_model::{Kind, Metric, Samples};

/// Flags of the collector `ipvs`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct IpvsOptions {
    /// Labels of the servers behind IPVS; servers that differ in other labels only are added up.
    #[arg(
        long = "collector.ipvs.backend-labels",
        value_name = "LABELS",
        default_value = "local_address,local_port,remote_address,remote_port,proto,local_mark"
    )]
    pub backend_labels: BackendLabels,
}

/// Some of [`LABELS`], in their order.
#[derive(Debug, Clone)]
pub struct BackendLabels(Vec<usize>);

const LABELS: [&str; 6] = [
    "local_address",
    "local_port",
    "remote_address",
    "remote_port",
    "proto",
    "local_mark",
];

impl FromStr for BackendLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted: Vec<_> = text.split(',').filter(|label| !label.is_empty()).collect();
        if let Some(unknown) = wanted.iter().find(|label| !LABELS.contains(label)) {
            let known = LABELS.join(", ");
            return Err(format!("no label {unknown:?}; there are {known}"));
        }

        let places = 0..LABELS.len();
        let chosen = places.filter(|at| wanted.contains(&LABELS[*at]));
        Ok(Self(chosen.collect()))
    }
}

struct Ipvs {
    stats: KernelFile,
    table: KernelFile,
    labels: Vec<usize>,
}

const TRAFFIC: [Metric; 5] = [
    Metric::counter(
        "node_ipvs_connections_total",
        "The total number of connections made.",
        &[],
    ),
    Metric::counter(
        "node_ipvs_incoming_packets_total",
        "The total number of incoming packets.",
        &[],
    ),
    Metric::counter(
        "node_ipvs_outgoing_packets_total",
        "The total number of outgoing packets.",
        &[],
    ),
    Metric::counter(
        "node_ipvs_incoming_bytes_total",
        "The total amount of incoming data.",
        &[],
    ),
    Metric::counter(
        "node_ipvs_outgoing_bytes_total",
        "The total amount of outgoing data.",
        &[],
    ),
];
const BACKEND: [Metric; 3] = [
    Metric::gauge(
        "node_ipvs_backend_connections_active",
        "The current active connections by local and remote address.",
        &LABELS,
    ),
    Metric::gauge(
        "node_ipvs_backend_connections_inactive",
        "The current inactive connections by local and remote address.",
        &LABELS,
    ),
    Metric::gauge(
        "node_ipvs_backend_weight",
        "The current backend weight by local and remote address.",
        &LABELS,
    ),
];
const METRICS: &[Metric] = &[
    TRAFFIC[0], TRAFFIC[1], TRAFFIC[2], TRAFFIC[3], TRAFFIC[4], BACKEND[0], BACKEND[1], BACKEND[2],
];
const MAX_BACKENDS: usize = 16_384;

pub(crate) fn new(paths: &Paths, options: &IpvsOptions) -> Box<dyn Collector> {
    let file = |name: &str| KernelFile::new(paths.procfs.join("net").join(name));
    Box::new(Ipvs {
        stats: file("ip_vs_stats"),
        table: file("ip_vs"),
        labels: options.backend_labels.0.clone(),
    })
}

impl Collector for Ipvs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        TRAFFIC.len() + BACKEND.len() * MAX_BACKENDS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let traffic = self.stats.parse(parse_traffic);
        let traffic = traffic.or_absent("no IPVS")?;
        for (metric, count) in TRAFFIC.iter().zip(traffic) {
            out.push::<&str>(metric, &[], count as f64);
        }

        let labels = &self.labels;
        let sums = self.table.parse(|text| {
            let mut sums = BTreeMap::<Vec<String>, [f64; 3]>::new();
            for backend in backends(text) {
                let backend = backend?;
                let key = labels.iter().map(|at| backend.labels[*at].clone());
                let sum = sums.entry(key.collect()).or_default();
                for (sum, count) in sum.iter_mut().zip(backend.counts) {
                    *sum += count;
                }
            }
            Ok(sums)
        })?;

        // The labels depend on the flag, so the declared ones may not fit.
        let names: Vec<_> = labels.iter().map(|at| LABELS[*at]).collect();
        for (values, sum) in &sums {
            let values = values.iter().map(String::as_str);
            let labels: Vec<_> = names.iter().copied().zip(values).collect();
            for (metric, sum) in BACKEND.iter().zip(sum) {
                out.push_foreign(metric.name, Kind::Gauge, metric.help, &labels, *sum);
            }
        }
        Ok(())
    }
}

/// Connections, packets in and out, bytes in and out, below two lines of heads.
fn parse_traffic(text: &str) -> Result<[u64; 5], ParseError> {
    let parse = || {
        let words = text.lines().nth(2)?.split_ascii_whitespace();
        let counts = words.map(|count| u64::from_str_radix(count, 16).ok());
        counts.collect::<Option<Vec<_>>>()?.try_into().ok()
    };

    parse().ok_or(ParseError {
        line: 3,
        expected: "five counts in hexadecimal",
    })
}

/// A server behind a service.
#[derive(Debug, PartialEq)]
struct Backend {
    labels: [String; LABELS.len()],
    /// Active and inactive connections, weight.
    counts: [f64; 3],
}

/// The lines of services, each followed by those of its servers.
fn backends(text: &str) -> impl Iterator<Item = Result<Backend, ParseError>> {
    let mut service = [const { String::new() }; 4];
    text.lines().enumerate().filter_map(move |(number, line)| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let error = ParseError {
            line: number + 1,
            expected: "a service or a server of IPVS",
        };

        match words[..] {
            ["->", "RemoteAddress:Port", ..] => None,
            // A service by firewall mark has no address. node_exporter gives it the port 0.
            ["FWM", mark, ..] => {
                service = [
                    String::new(),
                    "0".to_owned(),
                    "FWM".to_owned(),
                    mark.to_owned(),
                ];
                None
            }
            [protocol @ ("TCP" | "UDP" | "SCTP"), local, ..] => match address(local) {
                Some((address, port)) => {
                    service = [address, port, protocol.to_owned(), String::new()];
                    None
                }
                None => Some(Err(error)),
            },
            ["->", remote, _, weight, active, inactive, ..] => {
                let [local, local_port, protocol, mark] = service.clone();

                let backend = || {
                    let (remote, remote_port) = address(remote)?;

                    // The file has the weight first, and the metrics have it last.
                    let counts = [
                        active.parse().ok()?,
                        inactive.parse().ok()?,
                        weight.parse().ok()?,
                    ];
                    Some(Backend {
                        labels: [local, local_port, remote, remote_port, protocol, mark],
                        counts,
                    })
                };

                Some(backend().ok_or(error))
            }
            _ => None,
        }
    })
}

/// `0A140001:1538` or `[2001:0DB8:0000:0000:0000:0000:0000:0001]:0050`.
fn address(text: &str) -> Option<(String, String)> {
    let (address, port) = text.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?.to_string();

    let v6 = address.strip_prefix('[');
    let v6 = v6.and_then(|address| address.strip_suffix(']'));
    let address = match v6 {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
        // IPv4 has eight digits without separators, the first byte first.
        None if address.len() == 8 => {
            Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?).to_string()
        }
        None => return None,
    };

    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic() {
        let text = "   Total Incoming Outgoing         Incoming         Outgoing\n   Conns  \
             Packets  Packets            Bytes            Bytes\n  2F41C9 8A03B1D2       11     \
             1C7E99A04F21      1A7\n";
        assert_eq!(
            parse_traffic(text),
            Ok([3_097_033, 2_315_497_938, 17, 31_330_068_877_089, 423])
        );
        assert!(parse_traffic("a\nb\n1 2 3 4\n").is_err());
    }

    #[test]
    fn servers_have_the_labels_of_their_service() {
        let text = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler \
             Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  \
             0A140001:1538 wlc  \n  -> 0A140115:1538      Tunnel  50     131        6         \
             \nFWM  00000A01 wlc \n  -> [2001:0DB8:0000:0000:0000:0000:0000:0001]:0050      \
             Route   0      0          1\n";
        let backends: Vec<_> = backends(text).map(Result::unwrap).collect();
        assert_eq!(
            backends[0].labels,
            ["10.20.0.1", "5432", "10.20.1.21", "5432", "TCP", ""]
        );
        assert_eq!(backends[0].counts, [131.0, 6.0, 50.0]);
        assert_eq!(
            backends[1].labels,
            ["", "0", "2001:db8::1", "80", "FWM", "00000A01"]
        );
    }

    #[test]
    fn labels_are_chosen_and_unknown_ones_refused() {
        // An empty label is no mistake.
        let chosen: BackendLabels = "remote_address,local_port,".parse().unwrap();
        assert_eq!(chosen.0, [1, 2]);
        assert!(
            "colour"
                .parse::<BackendLabels>()
                .unwrap_err()
                .contains("no label \"colour\"")
        );
    }
}
