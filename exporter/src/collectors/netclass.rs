//! Network links: what is plugged in and how it was negotiated.
//!
//! Source: `/sys/class/net/*`. Some of these files wait for a lock that a driver may hold for long
//! (`speed`, `duplex`, on newer kernels `carrier`), so this collector has a thread. `speed` is in
//! megabits; we publish bytes a second.

use crate::collector::{CollectError, Collector, MAX_DEVICES, flag};
use crate::file::SysfsFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

/// Flags of the collector `netclass`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct NetclassOptions {
    /// Network links to leave out.
    #[arg(
        long = "collector.netclass.ignored-devices",
        value_name = "REGEXP",
        default_value = "^$"
    )]
    pub ignored_devices: NamePattern,
    /// Leave out node_network_speed_bytes if the driver reports -1, which is "unknown".
    #[arg(long = "collector.netclass.ignore-invalid-speed")]
    pub ignore_invalid_speed: bool,
    /// Flag of node_exporter, accepted without effect: the exporter has one source.
    #[arg(
        id = "netclass-netlink",
        long = "collector.netclass.netlink",
        alias = "no-collector.netclass.netlink",
        hide = true
    )]
    pub netlink: bool,
}

struct Netclass {
    class_net: PathBuf,
    filter: NameFilter,
    ignore_invalid_speed: bool,
    /// Links whose files stay open.
    links: BTreeMap<String, Link>,
    buffer: Vec<u8>,
}

const UP: Metric = Metric::gauge(
    "node_network_up",
    "Value is 1 if operstate is 'up', 0 otherwise.",
    &["device"],
);
const INFO: Metric = Metric::gauge(
    "node_network_info",
    "Non-numeric data from /sys/class/net/<iface>, value is always 1.",
    &[
        "device",
        "address",
        "broadcast",
        "duplex",
        "operstate",
        "adminstate",
        "ifalias",
    ],
);
/// The files behind the labels of [`INFO`].
const TEXTS: [&str; 5] = ["address", "broadcast", "duplex", "operstate", "ifalias"];
const OPERSTATE: usize = 3;

macro_rules! numbers {
    ($($file:literal => $kind:ident $name:literal,)*) => {
        /// The files with a number.
        const NUMBERS: &[&str] = &[$($file),*];
        const METRICS: &[Metric] = &[UP, INFO, $(Metric::$kind(
            concat!("node_network_", $name),
            concat!("Network device property: ", $name),
            &["device"],
        )),*];
    };
}

numbers! {
    "addr_assign_type" => gauge "address_assign_type",
    "carrier" => gauge "carrier",
    "carrier_changes" => counter "carrier_changes_total",
    "carrier_up_count" => counter "carrier_up_changes_total",
    "carrier_down_count" => counter "carrier_down_changes_total",
    "dev_id" => gauge "device_id",
    "dormant" => gauge "dormant",
    "flags" => gauge "flags",
    "ifindex" => gauge "iface_id",
    "iflink" => gauge "iface_link",
    "link_mode" => gauge "iface_link_mode",
    "mtu" => gauge "mtu_bytes",
    "name_assign_type" => gauge "name_assign_type",
    "netdev_group" => gauge "net_dev_group",
    "speed" => gauge "speed_bytes",
    "tx_queue_len" => gauge "transmit_queue_length",
    "type" => gauge "protocol_type",
}

/// Files that are read each time. The others change when one of these does, or when the link is
/// configured.
const STATES: [&str; 3] = ["operstate", "carrier_changes", "flags"];
/// How long the other files' values hold.
const SETTINGS_KEPT: Duration = Duration::from_secs(4);

/// No more links than this keep their files open: a host of containers would run out of
/// descriptors.
const MAX_OPEN: usize = 16;

pub(crate) fn new(paths: &Paths, options: &NetclassOptions) -> Box<dyn Collector> {
    let NetclassOptions {
        ignored_devices,
        ignore_invalid_speed,
        ..
    } = options.clone();

    Box::new(Netclass {
        class_net: paths.sysfs.join("class/net"),
        filter: NameFilter::excluding(ignored_devices),
        ignore_invalid_speed,
        links: BTreeMap::new(),
        buffer: Vec::new(),
    })
}

impl Collector for Netclass {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = self.devices()?;

        // Closes the files of links that went.
        self.links
            .retain(|device, _| devices.binary_search(device).is_ok());

        for device in &devices {
            self.push(device, out);
        }
        Ok(())
    }
}

impl Netclass {
    fn devices(&mut self) -> Result<Vec<String>, CollectError> {
        let entries = std::fs::read_dir(&self.class_net).map_err(|source| {
            CollectError::read(&self.class_net, source).or_absent("no network devices")
        })?;

        let names = entries.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut devices: Vec<_> = names.filter(|name| self.filter.passes(name)).collect();
        devices.sort();
        Ok(devices)
    }

    /// Skips a link that vanishes meanwhile.
    fn push(&mut self, device: &str, out: &mut Samples) {
        let known = self.links.remove(device).and_then(|mut link| {
            link.read(&mut self.buffer).ok()?;
            Some(link)
        });

        // New, or another link under the name of one that went.
        let open = || {
            let mut link = Link::open(&self.class_net.join(device)).ok()?;
            link.read(&mut self.buffer).ok()?;
            Some(link)
        };
        let Some(link) = known.or_else(open) else {
            return;
        };

        link.reading.push(device, self.ignore_invalid_speed, out);

        if self.links.len() < MAX_OPEN {
            self.links.insert(device.to_owned(), link);
        }
    }
}

/// A link's files, and the values read last. Files that a kind of link lacks are `None`.
struct Link {
    texts: [Option<SysfsFile>; TEXTS.len()],
    numbers: [Option<SysfsFile>; NUMBERS.len()],
    reading: Reading,
    settings_read_at: Option<Instant>,
}

#[derive(Default)]
struct Reading {
    texts: [String; TEXTS.len()],
    numbers: [Option<f64>; NUMBERS.len()],
}

impl Link {
    fn open(directory: &Path) -> Result<Self, Errno> {
        // Beside the links there are files, such as `bonding_masters`.
        drop(SysfsFile::open(&directory.join("ifindex"))?);

        let open = |name: &str| SysfsFile::open(&directory.join(name)).ok();
        Ok(Self {
            texts: TEXTS.map(open),
            numbers: std::array::from_fn(|at| open(NUMBERS[at])),
            reading: Reading::default(),
            settings_read_at: None,
        })
    }

    /// Reads the states, and the settings if they are old or a state changed. Fails when the link
    /// is gone.
    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let has_changed = self.read_files(|file| STATES.contains(&file), buffer)?;

        let is_young = self
            .settings_read_at
            .is_some_and(|read_at| read_at.elapsed() < SETTINGS_KEPT);

        if has_changed || !is_young {
            self.read_files(|file| !STATES.contains(&file), buffer)?;
            self.settings_read_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Returns whether a value changed. A value that does not apply to a link, or not now, cannot
    /// be read (`EINVAL`) and is left out.
    fn read_files(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        let mut has_changed = false;

        let texts = TEXTS.iter().zip(&self.texts).zip(&mut self.reading.texts);
        for ((name, file), text) in texts {
            if let Some(file) = file
                && is_wanted(name)
            {
                let value = unless_gone(file.read(buffer))?;
                has_changed |= value != text;
                value.clone_into(text);
            }
        }

        let numbers = NUMBERS
            .iter()
            .zip(&self.numbers)
            .zip(&mut self.reading.numbers);
        for ((name, file), number) in numbers {
            if let Some(file) = file
                && is_wanted(name)
            {
                let value = parse(unless_gone(file.read(buffer))?);
                has_changed |= value != *number;
                *number = value;
            }
        }
        Ok(has_changed)
    }
}

fn unless_gone(read: Result<&str, Errno>) -> Result<&str, Errno> {
    match read {
        Err(Errno::NODEV) => Err(Errno::NODEV),
        other => Ok(other.unwrap_or_default()),
    }
}

impl Reading {
    fn number(&self, file: &str) -> Option<f64> {
        let at = NUMBERS.iter().position(|known| *known == file)?;
        self.numbers[at]
    }

    /// Whether the administrator has turned the link on (`IFF_UP`); the link itself may have no
    /// carrier.
    fn administrative_state(&self) -> &'static str {
        const IFF_UP: u64 = 1;
        match self.number("flags") {
            None => "unknown",
            Some(flags) if flags as u64 & IFF_UP != 0 => "up",
            Some(_) => "down",
        }
    }

    fn push(&self, device: &str, ignore_invalid_speed: bool, out: &mut Samples) {
        let [address, broadcast, duplex, operstate, ifalias] =
            self.texts.each_ref().map(String::as_str);

        out.push(&UP, &[device], flag(self.texts[OPERSTATE] == "up"));

        out.push(
            &INFO,
            &[
                device,
                address,
                broadcast,
                duplex,
                operstate,
                self.administrative_state(),
                ifalias,
            ],
            1.0,
        );

        for ((file, metric), number) in NUMBERS.iter().zip(&METRICS[2..]).zip(self.numbers) {
            match number {
                None => {}
                Some(-1.0) if *file == "speed" && ignore_invalid_speed => {}
                Some(megabits) if *file == "speed" => {
                    out.push(metric, &[device], megabits * 1e6 / 8.0)
                }
                Some(number) => out.push(metric, &[device], number),
            }
        }
    }
}

/// A decimal number, or a hexadecimal one with `0x`.
fn parse(text: &str) -> Option<f64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)
            .ok()
            .map(|number| number as f64),
        None => text.parse::<i64>().ok().map(|number| number as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse("1400"), Some(1400.0));
        assert_eq!(parse("-1"), Some(-1.0));
        assert_eq!(parse("0x1003"), Some(4099.0));
        assert_eq!(parse(""), None);
        assert_eq!(parse("up"), None);
        assert_eq!(parse("0x"), None);
    }

    #[test]
    fn a_returning_link_is_read_again() {
        let class_net = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = class_net.path().join("eth0").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::write(class_net.path().join("bonding_masters"), "bond0\n").unwrap();
        let mut netclass = Netclass {
            class_net: class_net.path().to_owned(),
            filter: NameFilter::excluding("^$".parse().unwrap()),
            ignore_invalid_speed: true,
            links: BTreeMap::new(),
            buffer: Vec::new(),
        };
        let mut page = || {
            let mut samples = Samples::new();
            netclass.collect(&mut samples).unwrap();
            let mut page = String::new();
            takt_model::exposition::write_page(
                takt_model::exposition::Format::Text,
                [&samples],
                &mut page,
            );
            page.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        file("ifindex", "4\n");
        file("operstate", "up\n");
        file("speed", "2500\n");
        let info = r#"node_network_info{device="eth0",address="",broadcast="",duplex="",operstate="up",adminstate="unknown",ifalias=""} 1"#;
        let lines = [
            r#"node_network_up{device="eth0"} 1"#,
            info,
            r#"node_network_iface_id{device="eth0"} 4"#,
            r#"node_network_speed_bytes{device="eth0"} 312500000"#,
        ];
        assert_eq!(page(), lines);
        // A new speed comes with a new state; alone, it is seen a little later.
        file("speed", "-1\n");
        assert_eq!(page(), lines);
        file("operstate", "down\n");
        assert!(!page().iter().any(|line| line.contains("speed_bytes")));

        // Another link comes under the same name.
        for (flags, state) in [("0x1003\n", "up"), ("0x1002\n", "down")] {
            std::fs::remove_dir_all(class_net.path().join("eth0")).unwrap();
            assert_eq!(page(), [""; 0]);
            file("ifindex", "4\n");
            file("operstate", "down\n");
            file("flags", flags);
            let page = page().join("\n");
            assert!(page.contains(&format!(r#"adminstate="{state}""#)), "{page}");
        }
        std::fs::remove_dir_all(class_net.path().join("eth0")).unwrap();
        assert_eq!(page(), [""; 0]);
    }
}
