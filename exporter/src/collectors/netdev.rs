//! Network traffic by device.
//!
//! Sources: `/proc/net/dev`, and `/sys/class/net/*/statistics/rx_nohandler` for the one counter
//! that it lacks. On request netlink for the addresses.

mod addresses;

use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError};
use crate::file::{KernelFile, SysfsFile};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `netdev`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct NetdevOptions {
    /// Network devices to leave out.
    #[arg(
        id = "netdev-exclude",
        long = "collector.netdev.device-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    #[arg(alias = "collector.netdev.device-blacklist")]
    pub device_exclude: NamePattern,
    /// Network devices to keep, all others being left out.
    #[arg(
        id = "netdev-include",
        long = "collector.netdev.device-include",
        value_name = "REGEXP"
    )]
    #[arg(
        alias = "collector.netdev.device-whitelist",
        conflicts_with = "netdev-exclude"
    )]
    pub device_include: Option<NamePattern>,
    /// Export each device's addresses: node_network_address_info.
    #[arg(long = "collector.netdev.address-info")]
    pub address_info: bool,
    /// Add each device's alias as the label ifalias.
    #[arg(long = "collector.netdev.label-ifalias")]
    pub label_ifalias: bool,
    /// Names of its own for each kind of error, as the kernel has them; those that node_exporter
    /// has otherwise are then missing.
    #[arg(
        id = "netdev-detailed",
        long = "collector.netdev.enable-detailed-metrics"
    )]
    pub detailed: bool,
    /// Flag of node_exporter, accepted without effect: the exporter has one source.
    #[arg(
        id = "netdev-netlink",
        long = "collector.netdev.netlink",
        alias = "no-collector.netdev.netlink",
        hide = true
    )]
    pub netlink: bool,
}

struct Netdev {
    dev: KernelFile,
    filter: NameFilter,
    nohandler: Nohandler,
    class_net: PathBuf,
    address_info: bool,
    label_ifalias: bool,
    detailed: bool,
}

macro_rules! counters {
    ($($field:literal),*) => {
        &[$(Metric::counter(
            concat!("node_network_", $field, "_total"),
            concat!("Network device statistic ", $field, "."),
            &["device"],
        )),*]
    };
}

/// In the order of the columns; the last has a source of its own.
const COUNTERS: &[Metric] = counters![
    "receive_bytes",
    "receive_packets",
    "receive_errs",
    "receive_drop",
    "receive_fifo",
    "receive_frame",
    "receive_compressed",
    "receive_multicast",
    "transmit_bytes",
    "transmit_packets",
    "transmit_errs",
    "transmit_drop",
    "transmit_fifo",
    "transmit_colls",
    "transmit_carrier",
    "transmit_compressed",
    "receive_nohandler"
];
const COLUMNS: usize = 16;
/// Detailed metrics that replace those of errors, drops, collisions and multicasts above.
const DETAILED: &[Metric] = counters![
    "receive_errors",
    "transmit_errors",
    "receive_dropped",
    "transmit_dropped",
    "multicast",
    "collisions",
    "receive_length_errors",
    "receive_over_errors",
    "receive_crc_errors",
    "receive_frame_errors",
    "receive_fifo_errors",
    "receive_missed_errors",
    "transmit_aborted_errors",
    "transmit_carrier_errors",
    "transmit_fifo_errors",
    "transmit_heartbeat_errors",
    "transmit_window_errors"
];
/// Metrics that mean the same in both sets.
const COMMON: [&str; 7] = [
    "receive_bytes",
    "receive_packets",
    "receive_compressed",
    "transmit_bytes",
    "transmit_packets",
    "transmit_compressed",
    "receive_nohandler",
];
const METRICS: &[Metric; COUNTERS.len() + DETAILED.len() + 1] = &{
    let mut metrics = [ADDRESS; COUNTERS.len() + DETAILED.len() + 1];
    let mut at = 0;
    while at < COUNTERS.len() + DETAILED.len() {
        metrics[at] = if at < COUNTERS.len() {
            COUNTERS[at]
        } else {
            DETAILED[at - COUNTERS.len()]
        };
        at += 1;
    }
    metrics
};
const ADDRESS: Metric = Metric::gauge(
    "node_network_address_info",
    "node network address by device",
    &["device", "address", "netmask", "scope"],
);
/// More than these a device does not have in earnest.
const MAX_ADDRESSES: usize = 16;

pub(crate) fn new(paths: &Paths, options: &NetdevOptions) -> Box<dyn Collector> {
    let NetdevOptions {
        device_include,
        device_exclude,
        address_info,
        label_ifalias,
        detailed,
        ..
    } = options.clone();

    let class_net = paths.sysfs.join("class/net");
    Box::new(Netdev {
        dev: KernelFile::new(paths.procfs.join("net/dev")),
        filter: NameFilter::new(device_include, device_exclude),
        nohandler: Nohandler::new(class_net.clone()),
        class_net,
        address_info,
        label_ifalias,
        detailed,
    })
}

impl Collector for Netdev {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (METRICS.len() + MAX_ADDRESSES)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.dev.parse(|text| {
            for line in parse(text) {
                let (device, counts) = line?;
                if !self.filter.passes(device) {
                    continue;
                }

                let directory = self.class_net.join(device);
                let alias = self
                    .label_ifalias
                    .then(|| sysfs::text(&directory.join("ifalias")).unwrap_or_default());
                let mut push = |metric: &Metric, count| match &alias {
                    None => out.push(metric, &[device], count),
                    Some(alias) => {
                        let labels = [("device", device), ("ifalias", alias.as_str())];
                        out.push_foreign(metric.name, metric.kind, metric.help, &labels, count);
                    }
                };

                if self.detailed {
                    detailed(&directory.join("statistics"), push);
                    continue;
                }
                for (metric, count) in COUNTERS.iter().zip(counts) {
                    push(metric, count);
                }
                if let Some(count) = self.nohandler.read(device) {
                    push(&COUNTERS[COLUMNS], count);
                }
            }
            Ok(())
        })?;

        if self.address_info {
            addresses::push(&ADDRESS, out)
                .map_err(|error| CollectError::read("netlink".as_ref(), error))
        } else {
            Ok(())
        }
    }
}

/// Each counter from its file.
fn detailed(statistics: &Path, mut push: impl FnMut(&Metric, f64)) {
    let field = |metric: &Metric| {
        let name = metric.name.trim_start_matches("node_network_");
        name.trim_end_matches("_total")
    };

    let common = COUNTERS
        .iter()
        .filter(|metric| COMMON.contains(&field(metric)));
    for metric in common.chain(DETAILED) {
        let file = field(metric)
            .replacen("receive_", "rx_", 1)
            .replacen("transmit_", "tx_", 1);
        if let Some(count) = sysfs::number::<u64>(&statistics.join(file)) {
            push(metric, count as f64);
        }
    }
}

/// Two lines of headings, then `device: 16 counts`; some kernels leave no blank after the colon.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, [f64; COLUMNS]), ParseError>> {
    let lines = text.lines().enumerate().skip(2);
    lines.map(|(number, line)| {
        parse_line(line).ok_or(ParseError {
            line: number + 1,
            expected: "a device and 16 counts",
        })
    })
}

fn parse_line(line: &str) -> Option<(&str, [f64; COLUMNS])> {
    // The last colon, because an alias such as `eth0:1` has one in its name.
    let (device, columns) = line.rsplit_once(':')?;
    let mut columns = columns.split_ascii_whitespace();

    let mut counts = [0.0; COLUMNS];
    for count in &mut counts {
        *count = columns.next()?.parse::<u64>().ok()? as f64;
    }
    Some((device.trim_ascii(), counts))
}

/// Packets that no protocol wanted.
struct Nohandler {
    class_net: PathBuf,
    open: HashMap<String, Option<SysfsFile>>,
    buffer: Vec<u8>,
}

/// Containers' devices come and go; no more of them than this are kept open.
const MAX_OPEN: usize = 64;

impl Nohandler {
    fn new(class_net: PathBuf) -> Self {
        Self {
            class_net,
            open: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    fn read(&mut self, device: &str) -> Option<f64> {
        // The file stays open, since opening it costs more than reading it.
        if let Some(attribute) = self.open.get(device)
            && let Ok(value) = attribute.as_ref()?.read(&mut self.buffer)
        {
            return value.parse().ok();
        }

        // New, or another device under the name of one that went.
        let attribute = open(&self.class_net, device);
        let value = attribute
            .as_ref()
            .and_then(|attribute| attribute.read(&mut self.buffer).ok()?.parse().ok());

        if self.open.len() >= MAX_OPEN {
            self.open.clear();
        }
        self.open.insert(device.to_owned(), attribute);
        value
    }
}

fn open(class_net: &Path, device: &str) -> Option<SysfsFile> {
    // The name came from a file, and must not lead elsewhere.
    if device.contains('/') {
        return None;
    }
    SysfsFile::open(&class_net.join(device).join("statistics/rx_nohandler")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Inter-|   Receive\n face |bytes    packets errs\n";

    #[test]
    fn devices() {
        let text = format!(
            "{HEAD}    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\neth0:100 2 3 4 5 6 7 8 9 10 11 \
             12 13 14 15 16\n eth0:1: 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        let lines: Vec<_> = parse(&text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            lines
                .iter()
                .map(|(device, counts)| (*device, counts[0]))
                .collect::<Vec<_>>(),
            [("lo", 1.0), ("eth0", 100.0), ("eth0:1", 1.0)]
        );
        assert_eq!(lines[0].1[15], 16.0);
    }

    #[test]
    fn each_kind_of_error_has_a_name() {
        let statistics = tempfile::tempdir().unwrap();
        for (file, count) in [
            ("rx_bytes", "7\n"),
            ("tx_carrier_errors", "2\n"),
            ("multicast", "3\n"),
            ("rx_crc_errors", "?"),
        ] {
            std::fs::write(statistics.path().join(file), count).unwrap();
        }
        let mut told = Vec::new();
        detailed(statistics.path(), |metric, count| {
            told.push((metric.name, count))
        });
        let expected = [
            ("node_network_receive_bytes_total", 7.0),
            ("node_network_multicast_total", 3.0),
            ("node_network_transmit_carrier_errors_total", 2.0),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "eth0: 1 2 3",
            "eth0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
            "eth0: -1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        ] {
            assert_eq!(
                parse(&format!("{HEAD}{line}\n"))
                    .next()
                    .unwrap()
                    .unwrap_err()
                    .line,
                3,
                "{line}"
            );
        }
        assert_eq!(parse("").count(), 0);
    }
}
