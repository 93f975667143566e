//! Flags of node_exporter 1.12 that the exporter does not implement.
//!
//! A flag that changes nothing here is accepted. Every other one is refused, and the error says
//! what to do instead.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// A collector of node_exporter that the exporter lacks.
struct MissingCollector {
    name: &'static str,
    /// Advice for people who turn the collector on.
    instead: &'static str,
    /// Flags of the collector that take a value. They are ignored, because the collector never
    /// runs.
    options: &'static [&'static str],
    /// Flags of the collector without a value, ignored as well.
    switches: &'static [&'static str],
}

/// All of them are off by default in node_exporter.
const MISSING_COLLECTORS: &[MissingCollector] = &[
    MissingCollector {
        name: "netclass_rtnl",
        instead: "use --collector.netclass, which is on by default",
        options: &[],
        switches: &["collector.netclass_rtnl.with-stats"],
    },
    MissingCollector {
        name: "ntp",
        instead: "use --collector.timex, which is on by default, and the metrics of the NTP server",
        options: &[
            "collector.ntp.ip-ttl",
            "collector.ntp.local-offset-tolerance",
            "collector.ntp.max-distance",
            "collector.ntp.protocol-version",
            "collector.ntp.server",
            "collector.ntp.server-port",
        ],
        switches: &["collector.ntp.server-is-local"],
    },
    MissingCollector {
        name: "perf",
        instead: "run node_exporter with --collector.disable-defaults --collector.perf beside it",
        options: &[
            "collector.perf.cache-profilers",
            "collector.perf.cpus",
            "collector.perf.hardware-profilers",
            "collector.perf.software-profilers",
            "collector.perf.tracepoint",
        ],
        switches: &[
            "collector.perf.disable-cache-profilers",
            "collector.perf.disable-hardware-profilers",
            "collector.perf.disable-software-profilers",
        ],
    },
    MissingCollector {
        name: "runit",
        instead: "write the services' state to a file for --collector.textfile.directory",
        options: &["collector.runit.servicedir"],
        switches: &[],
    },
    MissingCollector {
        name: "supervisord",
        instead: "write the processes' state to a file for --collector.textfile.directory",
        options: &["collector.supervisord.url"],
        switches: &[],
    },
];

/// Negations of flags that are off unless given, accepted without effect.
const IGNORED_SWITCHES: &[&str] = &["no-help", "no-version"];

/// A flag without a value that is refused by itself.
struct RefusedFlag {
    name: &'static str,
    reason: &'static str,
}

const REFUSED_FLAGS: &[RefusedFlag] = &[
    RefusedFlag {
        name: "collector.systemd.private",
        reason: "the collector systemd always asks over the system bus; remove the flag",
    },
    RefusedFlag {
        name: "help-long",
        reason: "there is one list of flags; use --help",
    },
];

/// Accepts or refuses the flags of the lists above, and `--no-FLAG` for every flag of a collector
/// or of the web server without a value, as node_exporter does. It comes after all flags of the collectors.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeExporterFlags;

impl Args for NodeExporterFlags {
    fn augment_args(command: Command) -> Command {
        let mut command = command;
        for missing in MISSING_COLLECTORS {
            let own =
                ["collector", "no-collector"].map(|prefix| format!("{prefix}.{}", missing.name));
            let switches = missing.switches.iter().map(ToString::to_string);
            let options = missing.options.iter().map(|name| option(name));
            command = command
                .args(own.into_iter().chain(switches).map(switch))
                .args(options);
        }

        let refused = REFUSED_FLAGS.iter().map(|flag| flag.name);
        let switches = refused.chain(IGNORED_SWITCHES.iter().copied());
        let command = command.args(switches.map(|name| switch(name.to_owned())));

        // Last, so that they cover the flags above too.
        let arguments = command.get_arguments();
        let negations: Vec<_> = arguments.filter_map(negation(&command)).collect();
        command.args(negations)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn switch(name: String) -> Arg {
    Arg::new(name.clone())
        .long(name)
        .action(ArgAction::SetTrue)
        .hide(true)
}

fn option(name: &str) -> Arg {
    Arg::new(name.to_owned())
        .long(name.to_owned())
        .action(ArgAction::Append)
        .hide(true)
}

/// `--no-FLAG` for a flag of a collector or of the web server that takes no value and has no
/// negation yet. The last of the two counts.
fn negation(command: &Command) -> impl Fn(&Arg) -> Option<Arg> {
    let names = |argument: &Arg| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        let long = argument.get_long().into_iter().chain(aliases);
        long.map(ToOwned::to_owned).collect::<Vec<_>>()
    };

    // A negation may exist already, as a flag or as an alias.
    let taken: Vec<String> = command.get_arguments().flat_map(names).collect();

    move |argument| {
        let long = argument.get_long()?;
        let name = format!("no-{long}");
        let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
        let is_theirs = long.starts_with("collector.") || long.starts_with("web.");

        (is_switch && is_theirs && !taken.contains(&name))
            .then(|| switch(name).overrides_with(argument.get_id().clone()))
    }
}

impl FromArgMatches for NodeExporterFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let refused = |text: String| clap::Error::raw(ErrorKind::InvalidValue, text + "\n");
        for missing in MISSING_COLLECTORS {
            if matches.get_flag(&format!("collector.{}", missing.name)) {
                let MissingCollector { name, instead, .. } = missing;
                return Err(refused(format!(
                    "--collector.{name}: the exporter has no collector {name}; {instead}"
                )));
            }
        }

        for flag in REFUSED_FLAGS {
            if matches.get_flag(flag.name) {
                return Err(refused(format!("--{}: {}", flag.name, flag.reason)));
            }
        }
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::Options;

    /// Every collector of node_exporter 1.12.1 on Linux.
    #[rustfmt::skip]
    const THEIR_COLLECTORS: &[&str] = &[
        "arp", "bcache", "bcachefs", "bonding", "btrfs", "buddyinfo", "cgroups", "conntrack", "cpu",
        "cpu_vulnerabilities", "cpufreq", "diskstats", "dmi", "dmmultipath", "drbd", "drm", "edac", "entropy",
        "ethtool", "fibrechannel", "filefd", "filesystem", "hwmon", "infiniband", "interrupts", "ipvs",
        "kernel_hung", "ksmd", "lnstat", "loadavg", "logind", "mdadm", "meminfo", "meminfo_numa", "mountstats",
        "netclass", "netclass_rtnl", "netdev", "netstat", "network_route", "nfs", "nfsd", "ntp", "nvme",
        "nvmesubsystem", "os", "pcidevice", "perf", "powersupplyclass", "pressure", "processes", "qdisc", "rapl",
        "runit", "schedstat", "selinux", "slabinfo", "sockstat", "softirqs", "softnet", "stat", "supervisord",
        "swap", "sysctl", "systemd", "tapestats", "tcpstat", "textfile", "thermal_zone", "time", "timex",
        "udp_queues", "uname", "vmstat", "watchdog", "wifi", "xfrm", "xfs", "zfs", "zoneinfo",
    ];

    /// Their flags without a value; each has a negation.
    #[rustfmt::skip]
    const THEIR_SWITCHES: &[&str] = &[
        "collector.arp.netlink", "collector.bcache.priorityStats", "collector.cpu.guest", "collector.cpu.info",
        "collector.disable-defaults", "collector.interrupts.include-zeros",
        "collector.netclass.ignore-invalid-speed", "collector.netclass.netlink",
        "collector.netclass_rtnl.with-stats", "collector.netdev.address-info",
        "collector.netdev.enable-detailed-metrics", "collector.netdev.label-ifalias", "collector.netdev.netlink",
        "collector.ntp.server-is-local", "collector.pcidevice.names", "collector.perf.disable-cache-profilers",
        "collector.perf.disable-hardware-profilers", "collector.perf.disable-software-profilers",
        "collector.rapl.enable-zone-label", "collector.stat.softirq", "collector.systemd.enable-restarts-metrics",
        "collector.systemd.enable-start-time-metrics", "collector.systemd.enable-task-metrics",
        "collector.systemd.private",
    ];

    /// Their flags with a value, and a value.
    #[rustfmt::skip]
    const THEIR_OPTIONS: &[(&str, &str)] = &[
        ("collector.arp.device-exclude", "lo"), ("collector.arp.device-include", "lo"),
        ("collector.cpu.info.bugs-include", ".*"), ("collector.cpu.info.flags-include", ".*"),
        ("collector.diskstats.device-exclude", "sd"), ("collector.diskstats.device-include", "sd"),
        ("collector.diskstats.ignored-devices", "sd"), ("collector.ethtool.device-exclude", "lo"),
        ("collector.ethtool.device-include", "lo"), ("collector.ethtool.metrics-include", ".*"),
        ("collector.filesystem.fs-types-exclude", "tmpfs"), ("collector.filesystem.fs-types-include", "ext4"),
        ("collector.filesystem.ignored-fs-types", "tmpfs"), ("collector.filesystem.ignored-mount-points", "/x"),
        ("collector.filesystem.mount-points-exclude", "/x"), ("collector.filesystem.mount-points-include", "/x"),
        ("collector.filesystem.mount-timeout", "5s"), ("collector.filesystem.stat-workers", "4"),
        ("collector.hwmon.chip-exclude", "x"), ("collector.hwmon.chip-include", "x"),
        ("collector.hwmon.sensor-exclude", "x"), ("collector.hwmon.sensor-include", "x"),
        ("collector.infiniband.device-exclude", "x"), ("collector.infiniband.device-include", "x"),
        ("collector.interrupts.name-exclude", "x"), ("collector.interrupts.name-include", "x"),
        ("collector.ipvs.backend-labels", "local_address"), ("collector.netclass.ignored-devices", "lo"),
        ("collector.netdev.device-blacklist", "lo"), ("collector.netdev.device-exclude", "lo"),
        ("collector.netdev.device-include", "lo"), ("collector.netdev.device-whitelist", "lo"),
        ("collector.netstat.fields", "x"), ("collector.ntp.ip-ttl", "1"),
        ("collector.ntp.local-offset-tolerance", "1ms"), ("collector.ntp.max-distance", "3s"),
        ("collector.ntp.protocol-version", "4"), ("collector.ntp.server", "127.0.0.1"),
        ("collector.ntp.server-port", "123"), ("collector.pcidevice.idsfile", "/x"),
        ("collector.perf.cache-profilers", "x"), ("collector.perf.cpus", "0"),
        ("collector.perf.hardware-profilers", "x"), ("collector.perf.software-profilers", "x"),
        ("collector.perf.tracepoint", "x"), ("collector.powersupply.ignored-supplies", "x"),
        ("collector.qdisc.device-exclude", "lo"), ("collector.qdisc.device-include", "lo"),
        ("collector.qdisc.fixtures", "/x"), ("collector.qdisk.device-exclude", "lo"),
        ("collector.qdisk.device-include", "lo"), ("collector.runit.servicedir", "/x"),
        ("collector.slabinfo.slabs-exclude", "x"), ("collector.slabinfo.slabs-include", "x"),
        ("collector.supervisord.url", "http://localhost:9001/RPC2"), ("collector.sysctl.include", "kernel.threads-max"),
        ("collector.sysctl.include-info", "kernel.core_pattern"), ("collector.systemd.unit-blacklist", "x"),
        ("collector.systemd.unit-exclude", "x"), ("collector.systemd.unit-include", "x"),
        ("collector.systemd.unit-whitelist", "x"), ("collector.tapestats.ignored-devices", "x"),
        ("collector.textfile.directory", "/x"), ("collector.vmstat.fields", "x"),
        ("collector.wifi.fixtures", "/x"), ("path.procfs", "/proc"), ("path.rootfs", "/"), ("path.sysfs", "/sys"),
        ("path.udev.data", "/run/udev/data"), ("runtime.gomaxprocs", "1"), ("web.config.file", "/x"),
        ("web.listen-address", ":9100"), ("web.max-requests", "40"), ("web.telemetry-path", "/metrics"),
    ];

    fn parse(flag: &str) -> Result<Options, clap::Error> {
        Options::augment_args(Command::new("takt-exporter").no_binary_name(true))
            .try_get_matches_from([flag])
            .and_then(|matches| Options::from_arg_matches(&matches))
    }

    #[test]
    fn every_flag_of_node_exporter_is_accepted_or_refused_with_advice() {
        let collectors = THEIR_COLLECTORS.iter().flat_map(|name| {
            [
                format!("--collector.{name}"),
                format!("--no-collector.{name}"),
            ]
        });
        let switches = THEIR_SWITCHES
            .iter()
            .flat_map(|name| [format!("--{name}"), format!("--no-{name}")]);
        let options = THEIR_OPTIONS
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let web = [
            "--web.disable-exporter-metrics",
            "--no-web.disable-exporter-metrics",
            "--web.systemd-socket",
            "--no-web.systemd-socket",
            "--no-help",
            "--no-version",
            "--help-long",
        ]
        .map(str::to_owned);
        let mut refused = Vec::new();
        for flag in collectors.chain(switches).chain(options).chain(web) {
            // A flag that is refused has to name itself and to say what to do.
            let Err(error) = parse(&flag) else { continue };
            let text = error.to_string();
            let name = flag.split('=').next().unwrap_or_default();
            assert!(text.contains(&format!("{name}: ")), "{flag}: {text}");
            assert!(
                text.contains("; "),
                "{flag} is refused without advice: {text}"
            );
            refused.push(name.to_owned());
        }
        assert_eq!(
            refused,
            [
                "--collector.netclass_rtnl",
                "--collector.ntp",
                "--collector.perf",
                "--collector.runit",
                "--collector.supervisord",
                "--collector.systemd.private",
                "--help-long",
            ]
        );
    }

    #[test]
    fn the_last_of_a_flag_and_its_negation_counts() {
        let softirq = |flags: &[&str]| {
            Options::augment_args(Command::new("takt-exporter").no_binary_name(true))
                .try_get_matches_from(flags)
                .and_then(|matches| Options::from_arg_matches(&matches))
                .map(|options| options.stat.softirq)
                .unwrap_or_else(|error| panic!("{flags:?}: {error}"))
        };
        assert!(softirq(&[
            "--no-collector.stat.softirq",
            "--collector.stat.softirq"
        ]));
        assert!(!softirq(&[
            "--collector.stat.softirq",
            "--no-collector.stat.softirq"
        ]));
    }
}
