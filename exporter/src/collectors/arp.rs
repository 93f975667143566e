//! Neighbours on the network whose hardware address the node knows or looks for.
//!
//! Source: `/proc/net/arp`.

use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use std::collections::BTreeMap;
use takt_model::{Metric, Samples};

/// Flags of the collector `arp`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct ArpOptions {
    /// Network devices whose neighbours are left out.
    #[arg(
        id = "arp-exclude",
        long = "collector.arp.device-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub device_exclude: NamePattern,
    /// Network devices whose neighbours are counted, all others being left out.
    #[arg(
        id = "arp-include",
        long = "collector.arp.device-include",
        value_name = "REGEXP"
    )]
    #[arg(conflicts_with = "arp-exclude")]
    pub device_include: Option<NamePattern>,
    /// Flag of node_exporter, accepted without effect: the exporter has one source.
    #[arg(
        id = "arp-netlink",
        long = "collector.arp.netlink",
        alias = "no-collector.arp.netlink",
        hide = true
    )]
    pub netlink: bool,
}

struct Arp {
    arp: KernelFile,
    filter: NameFilter,
}

const ENTRIES: Metric = Metric::gauge("node_arp_entries", "ARP entries by device", &["device"]);

pub(crate) fn new(paths: &Paths, options: &ArpOptions) -> Box<dyn Collector> {
    let ArpOptions {
        device_include,
        device_exclude,
        ..
    } = options.clone();
    Box::new(Arp {
        arp: KernelFile::new(paths.procfs.join("net/arp")),
        filter: NameFilter::new(device_include, device_exclude),
    })
}

impl Collector for Arp {
    fn metrics(&self) -> &'static [Metric] {
        &[ENTRIES]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.arp.parse(|text| {
            for (device, entries) in parse(text)? {
                if self.filter.passes(device) {
                    out.push(&ENTRIES, &[device], f64::from(entries));
                }
            }
            Ok(())
        })
    }
}

/// Below a heading, `address type flags hardware-address mask device`.
fn parse(text: &str) -> Result<BTreeMap<&str, u32>, ParseError> {
    let mut entries = BTreeMap::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let device = line.split_ascii_whitespace().nth(5);
        let device = device.ok_or(ParseError {
            line: number + 1,
            expected: "a device in the sixth column",
        })?;
        *entries.entry(device).or_default() += 1;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "IP address       HW type     Flags       HW address            Mask     Device\n";

    #[test]
    fn entries_by_device() {
        let entry =
            |device: &str| format!("192.0.2.1   0x1   0x2    02:00:00:00:00:01     *   {device}\n");
        let text = [HEAD, &entry("eth0"), &entry("ib0"), &entry("eth0")].concat();
        assert_eq!(
            parse(&text).unwrap().into_iter().collect::<Vec<_>>(),
            [("eth0", 2), ("ib0", 1)]
        );
        assert_eq!(parse(HEAD).unwrap().len(), 0);
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(
            parse(&format!("{HEAD}192.0.2.1 0x1 0x2\n"))
                .unwrap_err()
                .line,
            2
        );
    }
}
