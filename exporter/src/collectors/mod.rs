//! The collectors: one file each, one line each in [`COLLECTORS`].

pub(crate) mod arp;
pub(crate) mod bcache;
mod bonding;
mod btrfs;
mod buddyinfo;
mod cgroups;
mod conntrack;
pub(crate) mod cpu;
mod cpu_vulnerabilities;
mod cpufreq;
mod disk_health;
pub(crate) mod diskstats;
mod dmi;
mod drbd;
mod drm;
mod edac;
mod entropy;
pub(crate) mod ethtool;
mod events;
mod fibrechannel;
mod filefd;
pub(crate) mod filesystem;
mod fscache;
pub(crate) mod hwmon;
mod infiniband;
pub(crate) mod interrupts;
mod ipmi;
pub(crate) mod ipvs;
pub(crate) mod jobs;
mod kernel_hung;
mod ksmd;
mod links;
mod lnstat;
mod loadavg;
mod logind;
mod mdadm;
mod meminfo;
mod meminfo_numa;
mod mountstats;
pub(crate) mod netclass;
pub(crate) mod netdev;
pub(crate) mod netstat;
mod network_route;
mod nfs;
mod nfsd;
mod nvme;
mod nvme_health;
pub(crate) mod nvml;
mod os;
pub(crate) mod pcidevice;
pub(crate) mod powersupplyclass;
mod pressure;
mod processes;
pub(crate) mod qdisc;
pub(crate) mod rapl;
mod schedstat;
mod selinux;
pub(crate) mod slabinfo;
mod sockstat;
mod softirqs;
mod softnet;
pub(crate) mod stat;
mod stuck;
mod swap;
pub(crate) mod sysctl;
pub(crate) mod systemd;
mod table;
pub(crate) mod tapestats;
mod tcpstat;
pub(crate) mod textfile;
mod thermal_zone;
mod time;
mod timex;
mod udp_queues;
mod uname;
pub(crate) mod vmstat;
mod watchdog;
mod xfrm;
mod xfs;
mod zfs;
mod zoneinfo;

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
const SOON: Reads = Reads::OnItsThread {
    deadline: Duration::from_secs(2),
};
/// systemd answers for each unit by itself, and a node may have thousands.
const BUS: Reads = Reads::OnItsThread {
    deadline: Duration::from_secs(5),
};
/// Slow hardware, seldom asked: a disk that spins up, a controller with little time. What it said last stands meanwhile.
const SLOW: Reads = Reads::OnItsThread {
    deadline: Duration::from_secs(60),
};
/// NVML needs seconds to begin where nothing keeps the driver loaded. The collector itself gives up before.
const DRIVER: Reads = Reads::OnItsThread {
    deadline: Duration::from_secs(8),
};

/// Every collector there is.
#[rustfmt::skip]
pub const COLLECTORS: &[Entry] = &[
    Entry { name: "arp", about: "Network neighbours", by_default: true, reads: Reads::AtScrape, new: arp::new },
    Entry { name: "bcache", about: "Caches before disks", by_default: true, reads: SOON, new: bcache::new },
    Entry { name: "bonding", about: "Bonded links", by_default: true, reads: Reads::AtScrape, new: bonding::new },
    Entry { name: "btrfs", about: "Btrfs: space, commits, errors", by_default: true, reads: SOON, new: btrfs::new },
    Entry { name: "buddyinfo", about: "Fragmentation of memory", by_default: false, reads: Reads::AtScrape, new: buddyinfo::new },
    Entry { name: "cgroups", about: "Number of control groups", by_default: false, reads: Reads::AtScrape, new: cgroups::new },
    Entry { name: "conntrack", about: "Connection tracking", by_default: true, reads: Reads::AtScrape, new: conntrack::new },
    Entry { name: "cpu", about: "CPU time by mode", by_default: true, reads: Reads::AtScrape, new: cpu::new },
    Entry { name: "cpu_vulnerabilities", about: "Faults of the CPUs", by_default: false, reads: Reads::AtScrape, new: cpu_vulnerabilities::new },
    Entry { name: "cpufreq", about: "CPU clocks", by_default: true, reads: SOON, new: cpufreq::new },
    Entry { name: "disk_health", about: "Health of SATA and SAS disks", by_default: true, reads: SLOW, new: disk_health::new },
    Entry { name: "diskstats", about: "Disk I/O", by_default: true, reads: Reads::AtScrape, new: diskstats::new },
    Entry { name: "dmi", about: "Vendor, model, BIOS", by_default: true, reads: Reads::AtScrape, new: dmi::new },
    Entry { name: "drbd", about: "Disks mirrored over the network", by_default: false, reads: Reads::AtScrape, new: drbd::new },
    Entry { name: "drm", about: "AMD GPUs", by_default: true, reads: SOON, new: drm::new },
    Entry { name: "edac", about: "Memory errors", by_default: true, reads: Reads::AtScrape, new: edac::new },
    Entry { name: "entropy", about: "Pool of randomness", by_default: true, reads: Reads::AtScrape, new: entropy::new },
    Entry { name: "ethtool", about: "Drivers' own counters of network links", by_default: false, reads: SOON, new: ethtool::new },
    Entry { name: "events", about: "The kernel log: XIDs, OOM kills, hung tasks, links", by_default: true, reads: Reads::AtScrape, new: events::new },
    Entry { name: "fibrechannel", about: "Fibre Channel adapters", by_default: true, reads: SOON, new: fibrechannel::new },
    Entry { name: "filefd", about: "Open files", by_default: true, reads: Reads::AtScrape, new: filefd::new },
    Entry { name: "filesystem", about: "File system space", by_default: true, reads: SOON, new: filesystem::new },
    Entry { name: "fscache", about: "Cache of network file systems", by_default: true, reads: Reads::AtScrape, new: fscache::new },
    Entry { name: "hwmon", about: "Temperatures, fans, voltages", by_default: true, reads: SOON, new: hwmon::new },
    Entry { name: "infiniband", about: "InfiniBand and RoCE ports", by_default: true, reads: SOON, new: infiniband::new },
    Entry { name: "interrupts", about: "Interrupts by CPU and source", by_default: false, reads: Reads::AtScrape, new: interrupts::new },
    Entry { name: "ipmi", about: "The BMC: its event log, faults of power and cooling", by_default: true, reads: SLOW, new: ipmi::new },
    Entry { name: "ipvs", about: "Load balancing by the kernel", by_default: true, reads: Reads::AtScrape, new: ipvs::new },
    Entry { name: "jobs", about: "Jobs: their use of the node, and their GPUs", by_default: true, reads: SOON, new: jobs::new },
    Entry { name: "kernel_hung", about: "Tasks that were found hung", by_default: false, reads: Reads::AtScrape, new: kernel_hung::new },
    Entry { name: "ksmd", about: "Pages shared by processes", by_default: false, reads: Reads::AtScrape, new: ksmd::new },
    Entry { name: "links", about: "Links slower than they could be; the cluster's traffic", by_default: true, reads: SOON, new: links::new },
    Entry { name: "lnstat", about: "Caches of the network", by_default: false, reads: Reads::AtScrape, new: lnstat::new },
    Entry { name: "loadavg", about: "Load averages", by_default: true, reads: Reads::AtScrape, new: loadavg::new },
    Entry { name: "logind", about: "Sessions of users", by_default: false, reads: BUS, new: logind::new },
    Entry { name: "mdadm", about: "Software RAID", by_default: true, reads: Reads::AtScrape, new: mdadm::new },
    Entry { name: "meminfo", about: "Memory", by_default: true, reads: Reads::AtScrape, new: meminfo::new },
    Entry { name: "meminfo_numa", about: "Memory by NUMA node", by_default: false, reads: Reads::AtScrape, new: meminfo_numa::new },
    Entry { name: "mountstats", about: "NFS client by mount", by_default: true, reads: SOON, new: mountstats::new },
    Entry { name: "netclass", about: "Network links", by_default: true, reads: SOON, new: netclass::new },
    Entry { name: "netdev", about: "Network traffic", by_default: true, reads: Reads::AtScrape, new: netdev::new },
    Entry { name: "netstat", about: "Network protocols", by_default: true, reads: Reads::AtScrape, new: netstat::new },
    Entry { name: "network_route", about: "Routes", by_default: false, reads: SOON, new: network_route::new },
    Entry { name: "nfs", about: "NFS client", by_default: true, reads: Reads::AtScrape, new: nfs::new },
    Entry { name: "nfsd", about: "NFS server", by_default: true, reads: Reads::AtScrape, new: nfsd::new },
    Entry { name: "nvme", about: "NVMe disks", by_default: true, reads: Reads::AtScrape, new: nvme::new },
    Entry { name: "nvme_health", about: "Health of NVMe disks", by_default: true, reads: SOON, new: nvme_health::new },
    Entry { name: "nvml", about: "NVIDIA GPUs", by_default: true, reads: DRIVER, new: nvml::new },
    Entry { name: "os", about: "Distribution", by_default: true, reads: Reads::AtScrape, new: os::new },
    Entry { name: "pcidevice", about: "PCI devices and their links", by_default: false, reads: SOON, new: pcidevice::new },
    Entry { name: "powersupplyclass", about: "Power supplies and batteries", by_default: true, reads: SOON, new: powersupplyclass::new },
    Entry { name: "pressure", about: "Pressure stalls", by_default: true, reads: Reads::AtScrape, new: pressure::new },
    Entry { name: "processes", about: "Processes and threads by state", by_default: false, reads: SOON, new: processes::new },
    Entry { name: "qdisc", about: "Queues before network links", by_default: false, reads: SOON, new: qdisc::new },
    Entry { name: "rapl", about: "Energy of the CPUs", by_default: true, reads: SOON, new: rapl::new },
    Entry { name: "schedstat", about: "Scheduler, by CPU", by_default: true, reads: Reads::AtScrape, new: schedstat::new },
    Entry { name: "selinux", about: "SELinux", by_default: true, reads: Reads::AtScrape, new: selinux::new },
    Entry { name: "slabinfo", about: "The kernel's own memory", by_default: false, reads: Reads::AtScrape, new: slabinfo::new },
    Entry { name: "sockstat", about: "Sockets", by_default: true, reads: Reads::AtScrape, new: sockstat::new },
    Entry { name: "softirqs", about: "Soft interrupts by CPU", by_default: false, reads: Reads::AtScrape, new: softirqs::new },
    Entry { name: "softnet", about: "Packets by CPU", by_default: true, reads: Reads::AtScrape, new: softnet::new },
    Entry { name: "stat", about: "Interrupts, forks, boot time", by_default: true, reads: Reads::AtScrape, new: stat::new },
    Entry { name: "stuck", about: "Processes that hang in the kernel, and zombies", by_default: true, reads: SOON, new: stuck::new },
    Entry { name: "swap", about: "Swap by device", by_default: false, reads: Reads::AtScrape, new: swap::new },
    Entry { name: "sysctl", about: "Settings of the kernel", by_default: false, reads: Reads::AtScrape, new: sysctl::new },
    Entry { name: "systemd", about: "systemd's units", by_default: false, reads: BUS, new: systemd::new },
    Entry { name: "tapestats", about: "Tapes", by_default: true, reads: Reads::AtScrape, new: tapestats::new },
    Entry { name: "tcpstat", about: "TCP connections by state", by_default: false, reads: SOON, new: tcpstat::new },
    Entry { name: "textfile", about: "Metrics of other programs, in files", by_default: true, reads: SOON, new: textfile::new },
    Entry { name: "thermal_zone", about: "Thermal zones and cooling", by_default: true, reads: SOON, new: thermal_zone::new },
    Entry { name: "time", about: "Clock and time zone", by_default: true, reads: Reads::AtScrape, new: time::new },
    Entry { name: "timex", about: "How well the clock is kept", by_default: true, reads: Reads::AtScrape, new: timex::new },
    Entry { name: "udp_queues", about: "Bytes waiting in UDP sockets", by_default: true, reads: Reads::AtScrape, new: udp_queues::new },
    Entry { name: "uname", about: "Kernel and host name", by_default: true, reads: Reads::AtScrape, new: uname::new },
    Entry { name: "vmstat", about: "Virtual memory", by_default: true, reads: Reads::AtScrape, new: vmstat::new },
    Entry { name: "watchdog", about: "Watchdogs", by_default: true, reads: Reads::AtScrape, new: watchdog::new },
    Entry { name: "xfrm", about: "Errors of IPsec", by_default: false, reads: Reads::AtScrape, new: xfrm::new },
    Entry { name: "xfs", about: "XFS, from within", by_default: true, reads: Reads::AtScrape, new: xfs::new },
    Entry { name: "zfs", about: "ZFS: caches, pools, data sets", by_default: true, reads: SOON, new: zfs::new },
    Entry { name: "zoneinfo", about: "Memory by zone", by_default: false, reads: Reads::AtScrape, new: zoneinfo::new },
];

/// No node has more CPUs, disks, links or mounts than this; the bounds on series are made of it.
const MAX_DEVICES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Paths;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use takt_model::Samples;
    use takt_model::exposition::{Format, Page, write_page};

    /// What happens to a node's files.
    #[derive(Debug, Clone)]
    enum Harm {
        /// Something stands in the midst of each.
        Inserted(String, prop::sample::Index),
        /// Each ends early.
        CutOff(prop::sample::Index),
        /// Each holds this instead.
        Replaced(Vec<u8>),
    }

    impl Harm {
        fn strategy() -> impl Strategy<Value = Self> {
            let inserted = "[ -~\n\u{fffd}]{0,40}|[0-9 :.-]{0,40}|\\u{0}";
            prop_oneof![
                (inserted, any::<prop::sample::Index>())
                    .prop_map(|(text, at)| Self::Inserted(text, at)),
                any::<prop::sample::Index>().prop_map(Self::CutOff),
                prop::collection::vec(any::<u8>(), 0..200).prop_map(Self::Replaced),
                "[0-9a-fx.:, \n-]{0,200}".prop_map(|text| Self::Replaced(text.into_bytes())),
            ]
        }

        fn apply(&self, bytes: &mut Vec<u8>) {
            match self {
                Self::Inserted(text, at) => {
                    let at = at.index(bytes.len() + 1);
                    bytes.splice(at..at, text.bytes());
                }
                Self::CutOff(at) => bytes.truncate(at.index(bytes.len() + 1)),
                Self::Replaced(other) => bytes.clone_from(other),
            }
        }
    }

    fn harm_tree(from: &Path, to: &Path, harm: &Harm) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(from).unwrap(), to).unwrap();
            } else if from.is_dir() {
                harm_tree(&from, &to, harm);
            } else {
                let mut bytes = std::fs::read(from).unwrap();
                harm.apply(&mut bytes);
                std::fs::write(to, bytes).unwrap();
            }
        }
    }

    /// Every collector on a node below `root`, and nothing of this machine.
    fn options_of(root: &Path) -> Options {
        let paths = Paths {
            procfs: root.join("proc"),
            sysfs: root.join("sys"),
            rootfs: root.join("root"),
            udev_data: root.join("udev"),
            kmsg: root.join("kmsg"),
        };
        let mut options = Options {
            paths,
            ..Options::default()
        };
        options.textfile.directory = vec![root.join("textfile")];
        options.nvml.library = "/nonexistent".into();
        options.bcache.priority_stats = true;
        options.cpu.info = true;
        options.cpu.flags_include = Some(".*".parse().unwrap());
        options.sysctl.include = vec!["fs.file-nr".into(), "kernel.threads-max".into()];
        options
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The trees hold a file of each kind that a collector reads.
        #[test]
        fn garbage_ends_no_collector(harm in Harm::strategy(), tree in prop::sample::select(vec!["odd-node", "much-hardware"])) {
            let node = tempfile::tempdir().unwrap();
            harm_tree(&Path::new("fixtures/made-up").join(tree), node.path(), &harm);
            let options = options_of(node.path());
            for entry in COLLECTORS {
                let (mut collector, mut samples) = ((entry.new)(&options), Samples::new());
                // What matters is that it comes back, also to files that it has open, and with a page that can be read.
                for _ in 0..2 {
                    samples.clear();
                    let _ = collector.collect(&mut samples);
                }
                let mut text = String::new();
                write_page(Format::Text, [&samples], &mut text);
                let mut page = Page::new(Format::Text, text.as_bytes());
                while page.next_line(b"").unwrap().is_some() {}
            }
        }
    }

    /// Those that ask the kernel or another program otherwise than by files, or whose files are elsewhere; each has tests
    /// of its own.
    #[rustfmt::skip]
    const WITHOUT_FILES: [&str; 14] = [
        "disk_health", "ethtool", "events", "ipmi", "jobs", "links", "logind", "network_route", "nvme_health", "nvml", "os", "qdisc", "systemd", "tcpstat",
    ];

    /// Else the test above would harm nothing.
    #[test]
    fn the_trees_hold_files_for_every_collector() {
        let finds = |entry: &Entry, tree: &str| {
            let options = options_of(&Path::new("fixtures/made-up").join(tree));
            let (mut collector, mut samples) = ((entry.new)(&options), Samples::new());
            let _ = collector.collect(&mut samples);
            !samples.is_empty()
        };
        let without = COLLECTORS
            .iter()
            .filter(|entry| !WITHOUT_FILES.contains(&entry.name));
        let without = without.filter(|entry| {
            !["odd-node", "much-hardware"]
                .iter()
                .any(|tree| finds(entry, tree))
        });
        assert_eq!(
            without.map(|entry| entry.name).collect::<Vec<_>>(),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn every_collector_has_its_name_and_every_metric_one_owner() {
        let options = Options::default();
        let mut owners = BTreeMap::new();
        for entry in COLLECTORS {
            let collector = (entry.new)(&options);
            assert_eq!(collector.name(), entry.name);
            let names = collector.metrics().iter().map(|metric| metric.name);
            for name in names.chain(collector.families().iter().map(|family| family.prefix)) {
                assert_eq!(
                    owners.insert(name, entry.name),
                    None,
                    "{name} has two owners"
                );
                assert!(
                    name.starts_with("node_") || name.starts_with("takt_"),
                    "{name}"
                );
            }
        }
        // A family may lie within another: `node_memory_numa_` within `node_memory_`, whose kernel has no such field.
        let families = COLLECTORS
            .iter()
            .flat_map(|entry| (entry.new)(&options).families());
        let prefixes: Vec<_> = families.map(|family| family.prefix).collect();
        for prefix in &prefixes {
            let is_others = |(name, owner): &(&&str, &&str)| {
                name.starts_with(prefix) && **owner != owners[prefix] && !prefixes.contains(name)
            };
            assert_eq!(
                owners.iter().find(is_others),
                None,
                "belongs to the family {prefix}"
            );
        }
    }
}
