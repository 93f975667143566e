//! The collectors: one file each, one line each in [`COLLECTORS`].

pub(crate) mod arp;
mod bonding;
mod conntrack;
pub(crate) mod cpu;
mod cpufreq;
pub(crate) mod diskstats;
mod dmi;
mod drm;
mod edac;
mod entropy;
mod events;
mod filefd;
pub(crate) mod filesystem;
mod fscache;
mod hwmon;
mod infiniband;
pub(crate) mod jobs;
mod links;
mod loadavg;
mod mdadm;
mod meminfo;
mod meminfo_numa;
mod mountstats;
pub(crate) mod netclass;
pub(crate) mod netdev;
pub(crate) mod netstat;
mod nfs;
mod nfsd;
mod nvme;
mod nvme_health;
pub(crate) mod nvml;
mod os;
pub(crate) mod powersupplyclass;
mod pressure;
pub(crate) mod rapl;
mod schedstat;
mod selinux;
mod sockstat;
mod softnet;
pub(crate) mod stat;
pub(crate) mod textfile;
mod thermal_zone;
mod time;
mod timex;
mod udp_queues;
mod uname;
pub(crate) mod vmstat;

use crate::collector::Collector;
use crate::options::Options;
use std::time::Duration;

/// A collector that can be chosen.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// As in `--collector.NAME`.
    pub name: &'static str,
    /// What it reads, for the list of flags.
    pub about: &'static str,
    /// Whether it runs when no flag says anything.
    pub by_default: bool,
    /// When it reads.
    pub reads: Reads,
    /// Makes one.
    pub new: fn(&Options) -> Box<dyn Collector>,
}

/// When a collector reads.
#[derive(Debug, Clone, Copy)]
pub enum Reads {
    /// When the page is asked for. For what cannot block.
    AtScrape,
    /// On a thread of its own; later than `deadline` it counts as failed until it comes back.
    OnItsThread {
        /// The longest time that a reading takes when all is well.
        deadline: Duration,
    },
}

/// The usual deadline.
const SOON: Reads = Reads::OnItsThread { deadline: Duration::from_secs(2) };
/// NVML needs seconds to begin where nothing keeps the driver loaded. The collector itself gives up before.
const DRIVER: Reads = Reads::OnItsThread { deadline: Duration::from_secs(8) };

/// Every collector there is.
#[rustfmt::skip]
pub const COLLECTORS: &[Entry] = &[
    Entry { name: "arp", about: "Network neighbours", by_default: true, reads: Reads::AtScrape, new: arp::new },
    Entry { name: "bonding", about: "Bonded links", by_default: true, reads: Reads::AtScrape, new: bonding::new },
    Entry { name: "conntrack", about: "Connection tracking", by_default: true, reads: Reads::AtScrape, new: conntrack::new },
    Entry { name: "cpu", about: "CPU time by mode", by_default: true, reads: Reads::AtScrape, new: cpu::new },
    Entry { name: "cpufreq", about: "CPU clocks", by_default: true, reads: SOON, new: cpufreq::new },
    Entry { name: "diskstats", about: "Disk I/O", by_default: true, reads: Reads::AtScrape, new: diskstats::new },
    Entry { name: "dmi", about: "Vendor, model, BIOS", by_default: true, reads: Reads::AtScrape, new: dmi::new },
    Entry { name: "drm", about: "AMD GPUs", by_default: true, reads: SOON, new: drm::new },
    Entry { name: "edac", about: "Memory errors", by_default: true, reads: Reads::AtScrape, new: edac::new },
    Entry { name: "entropy", about: "Pool of randomness", by_default: true, reads: Reads::AtScrape, new: entropy::new },
    Entry { name: "events", about: "The kernel log: XIDs, OOM kills, hung tasks, links", by_default: true, reads: Reads::AtScrape, new: events::new },
    Entry { name: "filefd", about: "Open files", by_default: true, reads: Reads::AtScrape, new: filefd::new },
    Entry { name: "filesystem", about: "File system space", by_default: true, reads: SOON, new: filesystem::new },
    Entry { name: "fscache", about: "Cache of network file systems", by_default: true, reads: Reads::AtScrape, new: fscache::new },
    Entry { name: "hwmon", about: "Temperatures, fans, voltages", by_default: true, reads: SOON, new: hwmon::new },
    Entry { name: "infiniband", about: "InfiniBand and RoCE ports", by_default: true, reads: SOON, new: infiniband::new },
    Entry { name: "jobs", about: "Jobs: their use of the node, and their GPUs", by_default: true, reads: SOON, new: jobs::new },
    Entry { name: "links", about: "Links slower than they could be; the cluster's traffic", by_default: true, reads: SOON, new: links::new },
    Entry { name: "loadavg", about: "Load averages", by_default: true, reads: Reads::AtScrape, new: loadavg::new },
    Entry { name: "mdadm", about: "Software RAID", by_default: true, reads: Reads::AtScrape, new: mdadm::new },
    Entry { name: "meminfo", about: "Memory", by_default: true, reads: Reads::AtScrape, new: meminfo::new },
    Entry { name: "meminfo_numa", about: "Memory by NUMA node", by_default: false, reads: Reads::AtScrape, new: meminfo_numa::new },
    Entry { name: "mountstats", about: "NFS client by mount", by_default: true, reads: SOON, new: mountstats::new },
    Entry { name: "netclass", about: "Network links", by_default: true, reads: SOON, new: netclass::new },
    Entry { name: "netdev", about: "Network traffic", by_default: true, reads: Reads::AtScrape, new: netdev::new },
    Entry { name: "netstat", about: "Network protocols", by_default: true, reads: Reads::AtScrape, new: netstat::new },
    Entry { name: "nfs", about: "NFS client", by_default: true, reads: Reads::AtScrape, new: nfs::new },
    Entry { name: "nfsd", about: "NFS server", by_default: true, reads: Reads::AtScrape, new: nfsd::new },
    Entry { name: "nvme", about: "NVMe disks", by_default: true, reads: Reads::AtScrape, new: nvme::new },
    Entry { name: "nvme_health", about: "Health of NVMe disks", by_default: true, reads: SOON, new: nvme_health::new },
    Entry { name: "nvml", about: "NVIDIA GPUs", by_default: true, reads: DRIVER, new: nvml::new },
    Entry { name: "os", about: "Distribution", by_default: true, reads: Reads::AtScrape, new: os::new },
    Entry { name: "powersupplyclass", about: "Power supplies and batteries", by_default: true, reads: SOON, new: powersupplyclass::new },
    Entry { name: "pressure", about: "Pressure stalls", by_default: true, reads: Reads::AtScrape, new: pressure::new },
    Entry { name: "rapl", about: "Energy of the CPUs", by_default: true, reads: SOON, new: rapl::new },
    Entry { name: "schedstat", about: "Scheduler, by CPU", by_default: true, reads: Reads::AtScrape, new: schedstat::new },
    Entry { name: "selinux", about: "SELinux", by_default: true, reads: Reads::AtScrape, new: selinux::new },
    Entry { name: "sockstat", about: "Sockets", by_default: true, reads: Reads::AtScrape, new: sockstat::new },
    Entry { name: "softnet", about: "Packets by CPU", by_default: true, reads: Reads::AtScrape, new: softnet::new },
    Entry { name: "stat", about: "Interrupts, forks, boot time", by_default: true, reads: Reads::AtScrape, new: stat::new },
    Entry { name: "textfile", about: "Metrics of other programs, in files", by_default: true, reads: SOON, new: textfile::new },
    Entry { name: "thermal_zone", about: "Thermal zones and cooling", by_default: true, reads: SOON, new: thermal_zone::new },
    Entry { name: "time", about: "Clock and time zone", by_default: true, reads: Reads::AtScrape, new: time::new },
    Entry { name: "timex", about: "How well the clock is kept", by_default: true, reads: Reads::AtScrape, new: timex::new },
    Entry { name: "udp_queues", about: "Bytes waiting in UDP sockets", by_default: true, reads: Reads::AtScrape, new: udp_queues::new },
    Entry { name: "uname", about: "Kernel and host name", by_default: true, reads: Reads::AtScrape, new: uname::new },
    Entry { name: "vmstat", about: "Virtual memory", by_default: true, reads: Reads::AtScrape, new: vmstat::new },
];

/// No node has more CPUs, disks, links or mounts than this; the bounds on series are made of it.
const MAX_DEVICES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Paths;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use takt_model::Samples;
    use takt_model::exposition::{Format, Page, write_page};

    /// The files that collectors read, below the root that the options name.
    const FILES: &[&str] = &[
        "1/mounts",
        "diskstats",
        "fs/fscache/stats",
        "loadavg",
        "meminfo",
        "net/dev",
        "stat",
        "net/arp",
        "net/netstat",
        "net/rpc/nfs",
        "net/rpc/nfsd",
        "net/snmp",
        "net/snmp6",
        "net/sockstat",
        "net/sockstat6",
        "net/softnet_stat",
        "net/stat/nf_conntrack",
        "net/udp",
        "net/udp6",
        "pressure/cpu",
        "pressure/io",
        "pressure/irq",
        "pressure/memory",
        "sys/fs/file-nr",
        "sys/kernel/random/entropy_avail",
        "sys/kernel/random/poolsize",
        "sys/net/netfilter/nf_conntrack_count",
        "sys/net/netfilter/nf_conntrack_max",
        "self/mountstats",
        "self/mountinfo",
        "vmstat",
        "b8:0",
        "class/net/eth0/address",
        "class/net/eth0/ifindex",
        "class/net/eth0/speed",
        "textfile/cron.prom",
        "devices/system/clocksource/clocksource0/available_clocksource",
        "devices/system/clocksource/clocksource0/current_clocksource",
        "devices/system/cpu/isolated",
        "devices/system/cpu/cpu0/topology/core_id",
        "devices/system/cpu/cpu0/topology/physical_package_id",
        "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
        "devices/system/edac/mc/mc0/ce_count",
        "devices/system/node/node0/meminfo",
        "devices/system/node/node0/numastat",
        "class/dmi/id/product_name",
        "class/drm/card0/device/uevent",
        "class/drm/card0/device/mem_info_vram_used",
        "class/hwmon/hwmon0/name",
        "class/hwmon/hwmon0/temp1_input",
        "class/hwmon/hwmon0/temp1_label",
        "class/infiniband/mlx5_0/ports/1/rate",
        "class/infiniband/mlx5_0/ports/1/counters/port_rcv_data",
        "class/net/bonding_masters",
        "class/nvme/nvme0/model",
        "class/power_supply/BAT0/status",
        "class/power_supply/BAT0/temp",
        "class/powercap/intel-rapl:0/name",
        "class/powercap/intel-rapl:0/energy_uj",
        "class/powercap/intel-rapl:0/max_energy_range_uj",
        "class/thermal/thermal_zone0/temp",
        "fs/selinux/enforce",
        "fs/selinux/avc/cache_stats",
        "mdstat",
        "net/route",
        "net/ipv6_route",
        "schedstat",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A file is a captured one with something else in its midst.
        #[test]
        fn garbage_ends_no_collector(inserted in "[ -~\n\u{fffd}]{0,40}|[0-9 :.-]{0,40}|\\u{0}", at: prop::sample::Index) {
            let captured = ["odd-node", "much-hardware"].map(|tree| std::path::Path::new("fixtures/made-up").join(tree));
            let node = tempfile::tempdir().unwrap();
            for &file in FILES {
                let roots = ["proc", "sys", "udev", ""];
                let mut sources = captured.iter().flat_map(|tree| roots.map(|root| tree.join(root).join(file)));
                let mut bytes = sources.find_map(|source| std::fs::read(source).ok()).unwrap_or_default();
                let place = at.index(bytes.len() + 1);
                bytes.splice(place..place, inserted.bytes());
                let path = node.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            let mut options = Options::default();
            let root = node.path().to_owned();
            options.paths = Paths { procfs: root.clone(), sysfs: root.clone(), rootfs: "/".into(), udev_data: root, kmsg: "/nonexistent".into() };
            options.textfile.directory = vec![node.path().join("textfile")];
            options.nvml.library = "/nonexistent".into();
            for entry in COLLECTORS {
                let (mut collector, mut samples) = ((entry.new)(&options), Samples::new());
                // What matters is that it comes back, and with a page that can be read.
                let _ = collector.collect(&mut samples);
                let mut text = String::new();
                write_page(Format::Text, [&samples], &mut text);
                let mut page = Page::new(Format::Text, text.as_bytes());
                while page.next_line(b"").unwrap().is_some() {}
            }
        }
    }

    #[test]
    fn every_collector_has_its_name_and_every_metric_one_owner() {
        let options = Options::default();
        let mut owned = BTreeSet::new();
        for entry in COLLECTORS {
            let collector = (entry.new)(&options);
            assert_eq!(collector.name(), entry.name);
            for metric in collector.metrics() {
                assert!(owned.insert(metric.name), "{} has two owners", metric.name);
                assert!(metric.name.starts_with("node_") || metric.name.starts_with("takt_"), "{}", metric.name);
            }
            for family in collector.families() {
                assert!(owned.insert(family.prefix), "{} has two owners", family.prefix);
            }
        }
        let families: Vec<_> = COLLECTORS.iter().flat_map(|entry| (entry.new)(&options).families()).collect();
        // A family may lie within another: `node_memory_numa_` within `node_memory_`, whose kernel has no such field.
        let prefixes: Vec<_> = families.iter().map(|family| family.prefix).collect();
        for family in families {
            let other = owned.iter().find(|name| name.starts_with(family.prefix) && !prefixes.contains(name));
            assert_eq!(other, None, "belongs to the family {}", family.prefix);
        }
    }
}
