//! The collectors: one file each, one line each in [`COLLECTORS`].

mod arp;
mod bcache;
mod bcachefs;
mod bonding;
mod btrfs;
mod buddyinfo;
mod cgroups;
mod conntrack;
mod cpu;
mod cpu_vulnerabilities;
mod cpufreq;
mod disk_health;
mod diskstats;
mod dmi;
mod dmmultipath;
mod drbd;
mod drm;
mod edac;
mod entropy;
mod ethtool;
mod events;
mod fibrechannel;
mod filefd;
mod filesystem;
mod flags;
mod fscache;
mod hwmon;
mod infiniband;
mod interrupts;
mod ipmi;
mod ipvs;
mod jobs;
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
mod netclass;
mod netdev;
mod netstat;
mod network_route;
mod nfs;
mod nfsd;
mod node_exporter;
mod nvme;
mod nvme_health;
mod nvmesubsystem;
mod nvml;
mod os;
mod pcidevice;
mod powersupplyclass;
mod pressure;
mod processes;
mod qdisc;
mod rapl;
mod schedstat;
mod selection;
mod selinux;
mod slabinfo;
mod sockstat;
mod softirqs;
mod softnet;
mod stat;
mod stuck;
mod swap;
mod sysctl;
mod systemd;
mod tapestats;
mod tcpstat;
mod textfile;
mod thermal_zone;
mod time;
mod timex;
mod udp_queues;
mod uname;
mod vmstat;
mod watchdog;
mod wifi;
mod xfrm;
mod xfs;
mod zfs;
mod zoneinfo;

pub use self::flags::Options;
pub use self::selection::Selection;
use crate::collector::Collector;
use std::time::Duration;

/// A collector that can be chosen.
#[derive(Debug, Clone, Copy)]
pub struct CollectorEntry {
    /// Name in flags (`--collector.NAME`), labels and `collect[]`.
    pub name: &'static str,
    /// Subject of the collector, for `--help`.
    pub about: &'static str,
    /// Whether the collector runs without a flag.
    pub by_default: bool,
    /// When the collector reads.
    pub reads: Reads,
    /// Creates the collector from the flags.
    pub new: fn(&Options) -> Box<dyn Collector>,
}

/// When a collector reads.
#[derive(Debug, Clone, Copy)]
pub enum Reads {
    /// While the page is written. For collectors that cannot block.
    AtScrape,
    /// On a thread of its own. A reading that takes longer than `deadline` counts as failed until
    /// it returns.
    OnItsThread {
        /// Longest time of a reading on a healthy node.
        deadline: Duration,
        /// Shortest pause between two readings. More frequent scrapes get the last one again.
        pause: Duration,
    },
}

const AT_SCRAPE: Reads = Reads::AtScrape;
/// The usual deadline.
const SOON: Reads = on_its_thread(2, 0);
/// Changes only when someone plugs a cable or configures the node.
const SELDOM: Reads = on_its_thread(2, 4);
/// systemd answers once per unit, and a node may have thousands of units.
const BUS: Reads = on_its_thread(5, 0);
/// Slow hardware that is read rarely: a disk that spins up, a busy controller. The last values stay
/// on the page meanwhile.
const SLOW: Reads = on_its_thread(60, 0);
/// NVML needs seconds to start if nothing keeps the driver loaded. The collector has a shorter
/// limit of its own.
const DRIVER: Reads = on_its_thread(8, 0);

const fn on_its_thread(deadline_seconds: u64, pause_seconds: u64) -> Reads {
    Reads::OnItsThread {
        deadline: Duration::from_secs(deadline_seconds),
        pause: Duration::from_secs(pause_seconds),
    }
}

/// Creates a collector from the flags.
type New = fn(&Options) -> Box<dyn Collector>;

/// A collector that runs by default.
const fn on(name: &'static str, about: &'static str, reads: Reads, new: New) -> CollectorEntry {
    CollectorEntry {
        name,
        about,
        by_default: true,
        reads,
        new,
    }
}

/// A collector that runs only with `--collector.NAME`.
const fn off(name: &'static str, about: &'static str, reads: Reads, new: New) -> CollectorEntry {
    CollectorEntry {
        by_default: false,
        ..on(name, about, reads, new)
    }
}

/// All collectors, sorted by name.
#[rustfmt::skip]
pub const COLLECTORS: &[CollectorEntry] = &[
    on("arp", "Network neighbours", AT_SCRAPE, |o| arp::new(&o.paths, &o.arp)),
    on("bcache", "Caches in front of disks (bcache)", SOON, |o| bcache::new(&o.paths, &o.bcache)),
    on("bcachefs", "bcachefs: space, errors, disks", SOON, |o| bcachefs::new(&o.paths)),
    on("bonding", "Bonded links", AT_SCRAPE, |o| bonding::new(&o.paths)),
    on("btrfs", "Btrfs: space, commits, errors", SOON, |o| btrfs::new(&o.paths)),
    off("buddyinfo", "Fragmentation of memory", AT_SCRAPE, |o| buddyinfo::new(&o.paths)),
    off("cgroups", "Number of control groups", AT_SCRAPE, |o| cgroups::new(&o.paths)),
    on("conntrack", "Connection tracking", AT_SCRAPE, |o| conntrack::new(&o.paths)),
    on("cpu", "CPU time by mode", AT_SCRAPE, |o| cpu::new(&o.paths, &o.cpu)),
    off("cpu_vulnerabilities", "Vulnerabilities of the CPUs", AT_SCRAPE, |o| {
        cpu_vulnerabilities::new(&o.paths)
    }),
    on("cpufreq", "CPU frequencies", SOON, |o| cpufreq::new(&o.paths, o.cpu.wants_info())),
    on("disk_health", "Health of SATA and SAS disks", SLOW, |o| disk_health::new(&o.paths)),
    on("diskstats", "Disk I/O", AT_SCRAPE, |o| diskstats::new(&o.paths, &o.diskstats)),
    on("dmi", "Vendor, model, BIOS", AT_SCRAPE, |o| dmi::new(&o.paths)),
    on("dmmultipath", "Disks with several paths", SOON, |o| dmmultipath::new(&o.paths)),
    off("drbd", "Disks mirrored over the network (DRBD)", AT_SCRAPE, |o| drbd::new(&o.paths)),
    on("drm", "AMD GPUs", SOON, |o| drm::new(&o.paths)),
    on("edac", "Memory errors", AT_SCRAPE, |o| edac::new(&o.paths)),
    on("entropy", "Entropy pool", AT_SCRAPE, |o| entropy::new(&o.paths)),
    off("ethtool", "Drivers' counters of network links", SOON, |o| {
        ethtool::new(&o.paths, &o.ethtool)
    }),
    on("events", "The kernel log: XIDs, OOM kills, hung tasks, links", AT_SCRAPE, |o| {
        events::new(&o.paths)
    }),
    on("fibrechannel", "Fibre Channel adapters", SOON, |o| fibrechannel::new(&o.paths)),
    on("filefd", "Open files", AT_SCRAPE, |o| filefd::new(&o.paths)),
    on("filesystem", "File system space", SOON, |o| filesystem::new(&o.paths, &o.filesystem)),
    on("fscache", "Cache of network file systems (FS-Cache)", AT_SCRAPE, |o| {
        fscache::new(&o.paths)
    }),
    on("hwmon", "Temperatures, fans, voltages", SOON, |o| hwmon::new(&o.paths, &o.hwmon)),
    on("infiniband", "InfiniBand and RoCE ports", SOON, |o| {
        infiniband::new(&o.paths, &o.infiniband)
    }),
    off("interrupts", "Interrupts by CPU and source", AT_SCRAPE, |o| {
        interrupts::new(&o.paths, &o.interrupts)
    }),
    on("ipmi", "BMC: event log, faults of power and cooling", SLOW, |_| ipmi::new()),
    on("ipvs", "Load balancing by the kernel (IPVS)", AT_SCRAPE, |o| ipvs::new(&o.paths, &o.ipvs)),
    on("jobs", "Jobs: resource usage and GPUs", SOON, |o| {
        jobs::new(&o.paths, &o.jobs, &o.shared.gpus)
    }),
    on("kernel_hung", "Number of hung tasks", AT_SCRAPE, |o| kernel_hung::new(&o.paths)),
    off("ksmd", "Pages shared by processes", AT_SCRAPE, |o| ksmd::new(&o.paths)),
    on("links", "Link speeds below capability; links of the cluster's traffic", SELDOM, |o| {
        links::new(&o.paths)
    }),
    off("lnstat", "Network cache statistics", AT_SCRAPE, |o| lnstat::new(&o.paths)),
    on("loadavg", "Load averages", AT_SCRAPE, |o| loadavg::new(&o.paths)),
    off("logind", "User sessions", BUS, |_| logind::new()),
    on("mdadm", "Software RAID", AT_SCRAPE, |o| mdadm::new(&o.paths)),
    on("meminfo", "Memory", AT_SCRAPE, |o| meminfo::new(&o.paths)),
    off("meminfo_numa", "Memory by NUMA node", AT_SCRAPE, |o| meminfo_numa::new(&o.paths)),
    on("mountstats", "NFS client by mount", SOON, |o| mountstats::new(&o.paths)),
    on("netclass", "Properties of network links", SOON, |o| netclass::new(&o.paths, &o.netclass)),
    on("netdev", "Network traffic", AT_SCRAPE, |o| netdev::new(&o.paths, &o.netdev)),
    on("netstat", "Network protocol counters", AT_SCRAPE, |o| netstat::new(&o.paths, &o.netstat)),
    off("network_route", "Routes", SOON, |_| network_route::new()),
    on("nfs", "NFS client", AT_SCRAPE, |o| nfs::new(&o.paths)),
    on("nfsd", "NFS server", AT_SCRAPE, |o| nfsd::new(&o.paths)),
    on("nvme", "NVMe disks", AT_SCRAPE, |o| nvme::new(&o.paths)),
    on("nvme_health", "Health of NVMe disks", SOON, |o| nvme_health::new(&o.paths)),
    off("nvmesubsystem", "Paths to NVMe disks over the network", SOON, |o| {
        nvmesubsystem::new(&o.paths)
    }),
    on("nvml", "NVIDIA GPUs", DRIVER, |o| {
        nvml::new(&o.paths, &o.nvml, o.state_directory.as_deref(), &o.shared)
    }),
    on("os", "Distribution", AT_SCRAPE, |o| os::new(&o.paths)),
    off("pcidevice", "PCI devices and their links", SOON, |o| {
        pcidevice::new(&o.paths, &o.pcidevice)
    }),
    on("powersupplyclass", "Power supplies and batteries", SOON, |o| {
        powersupplyclass::new(&o.paths, &o.powersupplyclass)
    }),
    on("pressure", "Pressure stalls", AT_SCRAPE, |o| pressure::new(&o.paths)),
    off("processes", "Processes and threads by state", SOON, |o| processes::new(&o.paths)),
    off("qdisc", "Queueing disciplines of network links", SOON, |o| qdisc::new(&o.qdisc)),
    on("rapl", "Energy used by the CPUs", SOON, |o| rapl::new(&o.paths, &o.rapl)),
    on("schedstat", "Scheduler statistics by CPU", AT_SCRAPE, |o| schedstat::new(&o.paths)),
    on("selinux", "SELinux", AT_SCRAPE, |o| selinux::new(&o.paths)),
    off("slabinfo", "Slab memory of the kernel", AT_SCRAPE, |o| {
        slabinfo::new(&o.paths, &o.slabinfo)
    }),
    on("sockstat", "Sockets", AT_SCRAPE, |o| sockstat::new(&o.paths)),
    off("softirqs", "Soft interrupts by CPU", AT_SCRAPE, |o| softirqs::new(&o.paths)),
    on("softnet", "Packet processing by CPU", AT_SCRAPE, |o| softnet::new(&o.paths)),
    on("stat", "Interrupts, forks, boot time", AT_SCRAPE, |o| stat::new(&o.paths, &o.stat)),
    on("stuck", "Processes hung in the kernel, zombies", SOON, |o| stuck::new(&o.paths)),
    off("swap", "Swap by device", AT_SCRAPE, |o| swap::new(&o.paths)),
    off("sysctl", "Kernel settings", AT_SCRAPE, |o| sysctl::new(&o.paths, &o.sysctl)),
    off("systemd", "systemd units", BUS, |o| systemd::new(&o.systemd)),
    on("tapestats", "Tape drives", AT_SCRAPE, |o| tapestats::new(&o.paths, &o.tapestats)),
    off("tcpstat", "TCP connections by state", SOON, |o| tcpstat::new(&o.paths)),
    on("textfile", "Metrics from *.prom files", SOON, |o| {
        textfile::new(&o.textfile, others(o, "textfile"))
    }),
    on("thermal_zone", "Thermal zones and cooling", SOON, |o| thermal_zone::new(&o.paths)),
    on("time", "Clock and time zone", AT_SCRAPE, |o| time::new(&o.paths)),
    on("timex", "Clock synchronisation", AT_SCRAPE, |_| timex::new()),
    on("udp_queues", "Bytes waiting in UDP sockets", AT_SCRAPE, |o| udp_queues::new(&o.paths)),
    on("uname", "Kernel and host name", AT_SCRAPE, |_| uname::new()),
    on("vmstat", "Virtual memory", AT_SCRAPE, |o| vmstat::new(&o.paths, &o.vmstat)),
    on("watchdog", "Watchdogs", AT_SCRAPE, |o| watchdog::new(&o.paths)),
    off("wifi", "Wireless links", SOON, |o| wifi::new(&o.wifi)),
    off("xfrm", "IPsec errors", AT_SCRAPE, |o| xfrm::new(&o.paths)),
    on("xfs", "XFS statistics", AT_SCRAPE, |o| xfs::new(&o.paths)),
    on("zfs", "ZFS: caches, pools, data sets", SOON, |o| zfs::new(&o.paths)),
    off("zoneinfo", "Memory by zone", AT_SCRAPE, |o| zoneinfo::new(&o.paths)),
];

/// The other collectors that these flags choose.
fn others<'o>(
    options: &'o Options,
    name: &'static str,
) -> impl Iterator<Item = Box<dyn Collector>> + use<'o> {
    COLLECTORS
        .iter()
        .filter(move |entry| entry.name != name)
        .filter(|entry| options.selection.runs(entry.name, entry.by_default))
        .map(|entry| (entry.new)(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use takt_model::Samples;
    use takt_model::exposition::{Format, Page, write_page};

    /// Damage to a node's files.
    #[derive(Debug, Clone)]
    enum FileDamage {
        /// A text is inserted into each file.
        Inserted(String, prop::sample::Index),
        /// Each ends early.
        CutOff(prop::sample::Index),
        /// Each holds this instead.
        Replaced(Vec<u8>),
    }

    impl FileDamage {
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

    fn harm_tree(from: &Path, to: &Path, harm: &FileDamage) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            let from = entry.path();
            let to = to.join(entry.file_name());
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
        fn garbage_ends_no_collector(harm in FileDamage::strategy(), tree in prop::sample::select(vec!["odd-node", "much-hardware"])) {
            let node = tempfile::tempdir().unwrap();
            harm_tree(&Path::new("fixtures/made-up").join(tree), node.path(), &harm);
            let options = options_of(node.path());
            for entry in COLLECTORS {
                let mut collector = (entry.new)(&options);
                let mut samples = Samples::new();
                // The collector must return, also with files that it has open, and its page
                // must be readable.
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

    /// Collectors that ask the kernel or another program otherwise than by files, or whose files
    /// are elsewhere; each has tests of its own.
    #[rustfmt::skip]
    const WITHOUT_FILES: [&str; 15] = [
        "disk_health", "ethtool", "events", "ipmi", "jobs", "links", "logind", "network_route", "nvme_health", "nvml", "os", "qdisc", "systemd", "tcpstat", "wifi",
    ];

    /// Else the test above would harm nothing.
    #[test]
    fn the_trees_hold_files_for_every_collector() {
        let finds = |entry: &CollectorEntry, tree: &str| {
            let options = options_of(&Path::new("fixtures/made-up").join(tree));
            let mut collector = (entry.new)(&options);
            let mut samples = Samples::new();
            let _ = collector.collect(&mut samples);
            !samples.is_empty()
        };
        let without = COLLECTORS
            .iter()
            .filter(|entry| !WITHOUT_FILES.contains(&entry.name))
            .filter(|entry| {
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
    fn every_metric_has_one_owner() {
        let options = Options::default();
        let mut owners = BTreeMap::new();
        for entry in COLLECTORS {
            let collector = (entry.new)(&options);
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
        // A family may lie within another: `node_memory_numa_` within `node_memory_`, whose kernel
        // has no such field.
        let prefixes: Vec<_> = COLLECTORS
            .iter()
            .flat_map(|entry| (entry.new)(&options).families())
            .map(|family| family.prefix)
            .collect();
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
