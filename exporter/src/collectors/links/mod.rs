//! Links that are slower than they could be, and why; and which link the cluster's traffic takes.
//!
//! Sources: ethtool's link settings (what the link agreed on, what it can do, what its partner
//! offers), `/sys/class/net` (which links are wireless), the routing tables of `/proc/net` and the
//! NFS mounts of `/proc/1/mounts`. Drivers may hold a lock for long when asked, so this collector
//! has a thread.

pub(crate) mod ethtool;
mod routes;

use self::ethtool::LinkSettings;
use self::routes::LinkRoutes;
use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names, flag};
use crate::file::{KernelFile, MountList};
use crate::paths::Paths;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

struct Links {
    class_net: PathBuf,
    /// Routes of IPv4 and of IPv6.
    routes: [KernelFile; 2],
    /// The mounts of the node.
    mounts: MountList,
    settings: AskSettings,
    /// Links with hardware behind them, and whether each is a radio.
    hardware: Vec<(String, bool)>,
    /// When `hardware` was looked for.
    looked_at: Option<Instant>,
}

type AskSettings = fn(&str) -> Result<LinkSettings, Errno>;

/// How long the list of adapters holds. One that was plugged in is seen a little later.
const HARDWARE_KEPT: Duration = Duration::from_secs(4);

const DEVICE: &[&str] = &["device"];
const NEGOTIATED: Metric = Metric::gauge(
    "takt_link_negotiated_bits_per_second",
    "Speed that the link and its partner agreed on. Links that are down have none.",
    DEVICE,
);
const CAPABILITY: Metric = Metric::gauge(
    "takt_link_capability_bits_per_second",
    "Highest speed that the adapter supports.",
    DEVICE,
);
const ADVERTISED: Metric = Metric::gauge(
    "takt_link_advertised_bits_per_second",
    "Highest speed that the adapter offers to its partner; lower than the capability if it was \
     configured so.",
    DEVICE,
);
const PARTNER: Metric = Metric::gauge(
    "takt_link_partner_bits_per_second",
    "Highest speed that the partner, mostly a switch, offers. No series if the partner does not \
     say.",
    DEVICE,
);
const FULL_DUPLEX: Metric = Metric::gauge(
    "takt_link_full_duplex",
    "Whether the link is full duplex.",
    DEVICE,
);
const BELOW: Metric = Metric::gauge(
    "takt_link_below_capability",
    "Whether the link is slower than the adapter could be, by cause: cable (both ends could do \
     more), partner (it offers no \
     more), configured (the adapter is set to offer no more), unknown (the partner does not say \
     what it can).",
    &["device", "cause"],
);
const WIRELESS: Metric = Metric::gauge(
    "takt_link_wireless",
    "Whether the link is wireless.",
    DEVICE,
);
const TRAFFIC: Metric = Metric::gauge(
    "takt_link_traffic",
    "Link of the cluster's traffic: default_route, and nfs for each link on the way to an NFS \
     server; always 1. With takt_link_wireless it shows cluster traffic over the air.",
    &["device", "traffic"],
);
const CAUSES: [&str; 4] = ["cable", "partner", "configured", "unknown"];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let class_net = paths.sysfs.join("class/net");
    Box::new(Links::new(class_net, &paths.procfs, ethtool::settings))
}

impl Collector for Links {
    fn metrics(&self) -> &'static [Metric] {
        &[
            NEGOTIATED,
            CAPABILITY,
            ADVERTISED,
            PARTNER,
            FULL_DUPLEX,
            BELOW,
            WIRELESS,
            TRAFFIC,
        ]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (8 + CAUSES.len())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let looked_at = self.looked_at;
        if looked_at.is_none_or(|looked_at| looked_at.elapsed() >= HARDWARE_KEPT) {
            self.look()?;
        }

        for (device, is_wireless) in &self.hardware {
            out.push(&WIRELESS, &[device], flag(*is_wireless));
            let settings = (self.settings)(device);
            if matches!(settings, Err(Errno::NODEV)) {
                // The link is gone.
                self.looked_at = None;
            }
            push_speeds(device, settings, out);
        }

        self.push_traffic(out);
        Ok(())
    }
}

impl Links {
    fn new(class_net: PathBuf, procfs: &Path, settings: AskSettings) -> Self {
        Self {
            class_net,
            routes: ["net/route", "net/ipv6_route"].map(|file| KernelFile::new(procfs.join(file))),
            mounts: MountList::new(procfs.join("1/mounts")),
            settings,
            hardware: Vec::new(),
            looked_at: None,
        }
    }

    /// Finds the links with hardware behind them. Bridges, tunnels and containers' links have none.
    fn look(&mut self) -> Result<(), CollectError> {
        self.hardware.clear();
        let devices = device_names(&self.class_net, "", "no network devices")?;

        for device in devices {
            let directory = self.class_net.join(&device);

            // The kernel has either of these for a radio, depending on the driver.
            let radio = ["wireless", "phy80211"];
            let is_wireless = radio.iter().any(|name| directory.join(name).exists());
            if is_wireless || directory.join("device").exists() {
                self.hardware.push((device, is_wireless));
            }
        }

        self.looked_at = Some(Instant::now());
        Ok(())
    }
}

/// A link that vanishes meanwhile, or that knows no speeds, has none, and harms no other.
fn push_speeds(device: &str, settings: Result<LinkSettings, Errno>, out: &mut Samples) {
    let Ok(settings) = settings else { return };
    let bits = |megabits: u32| f64::from(megabits) * 1e6;

    let speeds = [
        (&NEGOTIATED, settings.megabits),
        (&CAPABILITY, settings.supported.fastest()),
        (&ADVERTISED, settings.advertised.fastest()),
        (&PARTNER, settings.partner.fastest()),
    ];
    for (metric, megabits) in speeds {
        if let Some(megabits) = megabits {
            out.push(metric, &[device], bits(megabits));
        }
    }

    if let Some(is_full) = settings.is_full_duplex {
        out.push(&FULL_DUPLEX, &[device], flag(is_full));
    }

    // A link that is down has no speed that could be compared.
    if let (Some(_), Some(_)) = (settings.megabits, settings.supported.fastest()) {
        let cause = cause(&settings);
        for name in CAUSES {
            let is_it = flag(cause == Some(name));
            out.push(&BELOW, &[device, name], is_it);
        }
    }
}

/// Why the link is slower than its adapter, if it is.
fn cause(settings: &LinkSettings) -> Option<&'static str> {
    let negotiated = settings.megabits?;
    let capability = settings.supported.fastest()?;
    if negotiated >= capability {
        return None;
    }

    let offered = settings.advertised.fastest().unwrap_or(capability);
    Some(match settings.partner.fastest() {
        // The adapter's own setting is the cause even where the partner offers no more.
        _ if offered <= negotiated => "configured",
        Some(partner) if partner <= negotiated => "partner",
        Some(_) => "cable",
        None => "unknown",
    })
}

impl Links {
    fn push_traffic(&mut self, out: &mut Samples) {
        // Routes are of the exporter's network namespace, and mounts of the node.
        let [v4, v6] = &mut self.routes;
        let routes =
            LinkRoutes::parse(v4.read().unwrap_or_default(), v6.read().unwrap_or_default());

        let traffic = routes.defaults().map(|device| (device, "default_route"));
        let servers = nfs_servers(self.mounts.read().unwrap_or_default());
        let to_servers = servers.filter_map(|server| routes.to(server));
        let to_servers = to_servers.map(|device| (device, "nfs"));

        // A set, because several servers may be behind one link.
        let traffic: BTreeSet<_> = traffic.chain(to_servers).collect();
        for (device, kind) in traffic {
            out.push(&TRAFFIC, &[device, kind], 1.0);
        }
    }
}

/// The addresses of the servers of the NFS mounts: mount writes them into the options.
fn nfs_servers(mounts: &str) -> impl Iterator<Item = std::net::IpAddr> + '_ {
    mounts.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let kind = words.next()?;
        let mut options = words.next()?.split(',');
        let address = options.find_map(|option| option.strip_prefix("addr="))?;
        matches!(kind, "nfs" | "nfs4").then(|| address.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::ethtool::LinkModes;
    use super::*;

    const T1000: u32 = 5;
    const T2500: u32 = 47;
    const T5000: u32 = 48;

    fn settings(
        megabits: u32,
        supported: &[u32],
        advertised: &[u32],
        partner: &[u32],
    ) -> LinkSettings {
        LinkSettings {
            is_autonegotiated: true,
            megabits: Some(megabits),
            is_full_duplex: Some(true),
            supported: LinkModes::of(supported),
            advertised: LinkModes::of(advertised),
            partner: LinkModes::of(partner),
        }
    }

    #[test]
    fn a_slow_link_has_a_cause() {
        let able = [T1000, T2500];
        assert_eq!(cause(&settings(2500, &able, &able, &able)), None);
        assert_eq!(
            cause(&settings(1000, &able, &able, &able)),
            Some("cable"),
            "both can do 2.5G"
        );
        assert_eq!(
            cause(&settings(1000, &able, &able, &[T1000])),
            Some("partner"),
            "an old switch"
        );
        assert_eq!(
            cause(&settings(1000, &able, &[T1000], &able)),
            Some("configured")
        );
        assert_eq!(cause(&settings(1000, &able, &able, &[])), Some("unknown"));
        assert_eq!(
            cause(&settings(1000, &[], &[], &[])),
            None,
            "it says nothing"
        );
        assert_eq!(
            cause(&settings(2500, &[T1000, T2500, T5000], &[], &[T5000])),
            Some("cable")
        );
    }

    fn page(links: &mut Links) -> Vec<String> {
        let mut samples = Samples::new();
        links.collect(&mut samples).unwrap();
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn cluster_traffic_over_wireless_is_reported() {
        let node = tempfile::tempdir().unwrap();
        let sys = node.path().join("class/net");
        let proc = node.path().join("proc");
        for directory in [
            "eth0/device",
            "wlan0/phy80211",
            "wlan0/device",
            "br0",
            "gone/device",
        ] {
            std::fs::create_dir_all(sys.join(directory)).unwrap();
        }
        std::fs::create_dir_all(proc.join("net")).unwrap();
        std::fs::create_dir_all(proc.join("1")).unwrap();

        // The kernel writes the bytes of an address in reverse here: 0000A8C0 is 192.168.0.0.
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     wlan0 00000000 0100000A 0003 0 0 600 00000000 0 0 0\n\
                     eth0 0000A8C0 00000000 0001 0 0 100 0000FFFF 0 0 0\n";
        std::fs::write(proc.join("net/route"), route).unwrap();

        // `clientaddr` must not pass for `addr`.
        let mounts = "nas:/home /home nfs4 rw,vers=4.2,clientaddr=192.168.0.7,addr=192.168.0.5 0 \
             0\n\
                      old:/x /x nfs rw,addr=10.9.9.9 0 0\n/dev/sda1 / ext4 rw 0 0\n";
        std::fs::write(proc.join("1/mounts"), mounts).unwrap();
        let settings = |device: &str| match device {
            "eth0" => Ok(settings(1000, &[T1000, T2500], &[T1000, T2500], &[T1000])),
            _ => Err(Errno::NODEV),
        };
        let mut links = Links::new(sys, &proc, settings);
        assert_eq!(
            page(&mut links),
            [
                r#"takt_link_wireless{device="eth0"} 0"#,
                r#"takt_link_wireless{device="gone"} 0"#,
                r#"takt_link_wireless{device="wlan0"} 1"#,
                r#"takt_link_negotiated_bits_per_second{device="eth0"} 1000000000"#,
                r#"takt_link_capability_bits_per_second{device="eth0"} 2500000000"#,
                r#"takt_link_advertised_bits_per_second{device="eth0"} 2500000000"#,
                r#"takt_link_partner_bits_per_second{device="eth0"} 1000000000"#,
                r#"takt_link_full_duplex{device="eth0"} 1"#,
                r#"takt_link_below_capability{device="eth0",cause="cable"} 0"#,
                r#"takt_link_below_capability{device="eth0",cause="partner"} 1"#,
                r#"takt_link_below_capability{device="eth0",cause="configured"} 0"#,
                r#"takt_link_below_capability{device="eth0",cause="unknown"} 0"#,
                r#"takt_link_traffic{device="eth0",traffic="nfs"} 1"#,
                r#"takt_link_traffic{device="wlan0",traffic="default_route"} 1"#,
                r#"takt_link_traffic{device="wlan0",traffic="nfs"} 1"#,
            ]
        );
        let mut nothing = Links::new("/nonexistent".into(), &proc, settings);
        assert!(matches!(
            nothing.collect(&mut Samples::new()),
            Err(CollectError::Absent(_))
        ));
    }
}
