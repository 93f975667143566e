//! What the node's administrator chooses: node_exporter's flags, and ours where it has none.

use crate::collector::Shared;
use crate::collectors::{
    COLLECTORS, arp, bcache, cpu, diskstats, ethtool, filesystem, hwmon, interrupts, ipvs, jobs,
    netclass, netdev, netstat, nvml, pcidevice, powersupplyclass, qdisc, rapl, slabinfo, stat,
    sysctl, systemd, tapestats, textfile, vmstat,
};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// All flags. [`Options::default`] is what they are when none is given.
#[derive(Debug, Clone, Args)]
#[expect(missing_docs, reason = "each struct says what it is")]
pub struct Options {
    #[command(flatten)]
    pub web: WebOptions,
    #[command(flatten)]
    pub paths: Paths,
    /// Where what must outlive a restart is kept, events for one. Without it a restart forgets.
    #[arg(long = "state-directory", value_name = "PATH")]
    pub state_directory: Option<PathBuf>,
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub arp: arp::ArpOptions,
    #[command(flatten)]
    pub bcache: bcache::BcacheOptions,
    #[command(flatten)]
    pub cpu: cpu::CpuOptions,
    #[command(flatten)]
    pub diskstats: diskstats::DiskstatsOptions,
    #[command(flatten)]
    pub ethtool: ethtool::EthtoolOptions,
    #[command(flatten)]
    pub filesystem: filesystem::FilesystemOptions,
    #[command(flatten)]
    pub hwmon: hwmon::HwmonOptions,
    #[command(flatten)]
    pub interrupts: interrupts::InterruptsOptions,
    #[command(flatten)]
    pub ipvs: ipvs::IpvsOptions,
    #[command(flatten)]
    pub jobs: jobs::JobsOptions,
    #[command(flatten)]
    pub netclass: netclass::NetclassOptions,
    #[command(flatten)]
    pub netdev: netdev::NetdevOptions,
    #[command(flatten)]
    pub netstat: netstat::NetstatOptions,
    #[command(flatten)]
    pub nvml: nvml::NvmlOptions,
    #[command(flatten)]
    pub pcidevice: pcidevice::PcideviceOptions,
    #[command(flatten)]
    pub powersupplyclass: powersupplyclass::PowersupplyOptions,
    #[command(flatten)]
    pub qdisc: qdisc::QdiscOptions,
    #[command(flatten)]
    pub rapl: rapl::RaplOptions,
    #[command(flatten)]
    pub slabinfo: slabinfo::SlabinfoOptions,
    #[command(flatten)]
    pub stat: stat::StatOptions,
    #[command(flatten)]
    pub sysctl: sysctl::SysctlOptions,
    #[command(flatten)]
    pub systemd: systemd::SystemdOptions,
    #[command(flatten)]
    pub tapestats: tapestats::TapestatsOptions,
    #[command(flatten)]
    pub textfile: textfile::TextfileOptions,
    #[command(flatten)]
    pub vmstat: vmstat::VmstatOptions,
    #[arg(skip)]
    pub(crate) shared: Shared,
}

impl Default for Options {
    fn default() -> Self {
        let matches = Self::augment_args(Command::new("takt-exporter").no_binary_name(true))
            .try_get_matches_from([""; 0]);
        matches
            .and_then(|matches| Self::from_arg_matches(&matches))
            .expect("every flag has a default")
    }
}

/// Where the page is served.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Web")]
pub struct WebOptions {
    /// Address to serve on, HOST:PORT; no host means every address. May be repeated.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = ":9855", value_parser = address)]
    pub listen_address: Vec<String>,
    /// Scrapes answered at the same time; those beyond get 503. 0 is no limit.
    #[arg(long = "web.max-requests", value_name = "COUNT", default_value_t = 40)]
    pub max_requests: usize,
    /// Path of the page.
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics", value_parser = path)]
    pub telemetry_path: String,
    /// Serve on the sockets that systemd has opened instead of --web.listen-address.
    #[arg(long = "web.systemd-socket")]
    pub systemd_socket: bool,
    /// Leave out the metrics of the exporter's own process (process_*).
    #[arg(long = "web.disable-exporter-metrics")]
    pub disable_exporter_metrics: bool,
    /// Of node_exporter; here one thread answers.
    #[arg(long = "runtime.gomaxprocs", value_name = "COUNT", hide = true)]
    pub gomaxprocs: Option<usize>,
    /// TLS, passwords and headers, in the format of Prometheus' exporter-toolkit. Read again when it changes.
    #[arg(long = "web.config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,
}

/// Where the kernel's files are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Paths")]
pub struct Paths {
    /// Where procfs is mounted.
    #[arg(long = "path.procfs", value_name = "PATH", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where sysfs is mounted.
    #[arg(long = "path.sysfs", value_name = "PATH", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Where the node's root is mounted.
    #[arg(long = "path.rootfs", value_name = "PATH", default_value = "/")]
    pub rootfs: PathBuf,
    /// Where udev keeps what it knows of the devices.
    #[arg(
        long = "path.udev.data",
        value_name = "PATH",
        default_value = "/run/udev/data"
    )]
    pub udev_data: PathBuf,
    /// The kernel log: the device, or a file that something else writes a line at a time.
    #[arg(long = "path.kmsg", value_name = "PATH", default_value = "/dev/kmsg")]
    pub kmsg: PathBuf,
}

/// Which collectors run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    disable_defaults: bool,
    on: BTreeSet<&'static str>,
    off: BTreeSet<&'static str>,
}

impl Selection {
    /// Whether the collector runs; `by_default` is what the list says.
    pub fn runs(&self, name: &str, by_default: bool) -> bool {
        let chosen = self.on.contains(name) || (by_default && !self.disable_defaults);
        chosen && !self.off.contains(name)
    }

    /// Leaves out all collectors but these.
    pub fn only(names: &[&'static str]) -> Self {
        Self {
            disable_defaults: true,
            on: names.iter().copied().collect(),
            off: BTreeSet::new(),
        }
    }
}

/// Those of node_exporter's that are not here. To leave one out is no mistake: its defaults are often left out by name.
const NOT_HERE: [&str; 6] = [
    "netclass_rtnl",
    "ntp",
    "perf",
    "runit",
    "supervisord",
    "wifi",
];

const COLLECTORS_HEADING: &str = "Collectors (--no-collector.NAME leaves one out)";
const DISABLE_DEFAULTS: &str = "collector.disable-defaults";

impl Args for Selection {
    fn augment_args(command: Command) -> Command {
        let flag = |name: String| {
            Arg::new(name.clone())
                .long(name)
                .action(ArgAction::SetTrue)
                .help_heading(COLLECTORS_HEADING)
        };
        let disable =
            flag(DISABLE_DEFAULTS.into()).help("Run no collector but those turned on by a flag");
        let command = NOT_HERE.iter().fold(command, |command, name| {
            let flags = ["collector", "no-collector"]
                .map(|prefix| flag(format!("{prefix}.{name}")).hide(true));
            command.args(flags)
        });
        COLLECTORS
            .iter()
            .fold(command.arg(disable), |command, entry| {
                let default = if entry.by_default { "on" } else { "off" };
                let (on, off) = (
                    format!("collector.{}", entry.name),
                    format!("no-collector.{}", entry.name),
                );
                command
                    .arg(
                        flag(on.clone())
                            .help(format!("{} (default: {default})", entry.about))
                            .overrides_with(off.clone()),
                    )
                    .arg(flag(off).hide(true).overrides_with(on))
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Selection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if let Some(name) = NOT_HERE
            .iter()
            .find(|name| matches.get_flag(&format!("collector.{name}")))
        {
            let reason = format!("there is no collector {name}; docs/compatibility.md says why\n");
            return Err(clap::Error::raw(ErrorKind::InvalidValue, reason));
        }
        let given = |prefix: &str| {
            let given = COLLECTORS
                .iter()
                .filter(|entry| matches.get_flag(&format!("{prefix}{}", entry.name)));
            given.map(|entry| entry.name).collect()
        };
        Ok(Self {
            disable_defaults: matches.get_flag(DISABLE_DEFAULTS),
            on: given("collector."),
            off: given("no-collector."),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `/metrics`; other pages have the others.
fn path(text: &str) -> Result<String, String> {
    const TAKEN: [&str; 2] = ["/events", "/-/healthy"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    match text.starts_with('/') && text.chars().all(is_plain) && !TAKEN.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err("expected a path such as /metrics, and not one of another page".to_owned()),
    }
}

/// `HOST:PORT`, or `:PORT`.
fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as 127.0.0.1:9855 or :9855".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOptions;

    fn parse(flags: &[&str]) -> Result<Options, clap::Error> {
        let command = Options::augment_args(Command::new("takt-exporter").no_binary_name(true));
        command
            .try_get_matches_from(flags)
            .and_then(|matches| Options::from_arg_matches(&matches))
    }

    /// What clap itself checks only where debug assertions are compiled.
    #[test]
    fn no_two_flags_are_taken_for_one_another() {
        let mut command =
            LogOptions::augment_args(Options::augment_args(Command::new("takt-exporter")));
        command.clone().debug_assert();
        command.build();
        let path = "takt-exporter";
        let (mut ids, mut words) = (BTreeSet::new(), BTreeSet::new());
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(ids.insert(id.to_string()), "{path}: {id} comes twice");
            let long = argument
                .get_long()
                .into_iter()
                .chain(argument.get_all_aliases().into_iter().flatten());
            let short = argument
                .get_short()
                .into_iter()
                .chain(argument.get_all_short_aliases().into_iter().flatten());
            for word in long
                .map(|word| format!("--{word}"))
                .chain(short.map(|word| format!("-{word}")))
            {
                assert!(words.insert(word.clone()), "{path}: {word} comes twice");
            }
            // Panics where it is said to exclude one that is not there.
            command.get_arg_conflicts_with(argument);
        }
    }

    #[test]
    fn flags_of_node_exporter_are_taken() {
        for flag in [
            "--collector.arp.netlink",
            "--no-collector.arp.netlink",
            "--collector.diskstats.ignored-devices=^sd",
            "--collector.filesystem.ignored-fs-types=^tmpfs$",
            "--collector.filesystem.ignored-mount-points=^/boot",
            "--collector.filesystem.fs-types-include=^ext4$",
            "--collector.filesystem.mount-points-include=^/data",
            "--collector.filesystem.mount-timeout=5s",
            "--collector.filesystem.stat-workers=4",
            "--collector.hwmon.chip-include=nvme",
            "--collector.hwmon.sensor-exclude=fan",
            "--collector.netclass.netlink",
            "--collector.netdev.enable-detailed-metrics",
            "--no-collector.netdev.netlink",
            "--collector.netdev.device-blacklist=^lo$",
            "--collector.systemd.unit-whitelist=slurm.+",
            "--no-collector.wifi",
            "--runtime.gomaxprocs=1",
            "--web.disable-exporter-metrics",
            "--web.telemetry-path=/node",
        ] {
            parse(&[flag]).unwrap_or_else(|error| panic!("{flag}: {error}"));
        }
        for wrong in [
            "--web.telemetry-path=/events",
            "--web.telemetry-path=metrics",
            "--web.telemetry-path=/{x}",
        ] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn collectors_are_chosen_as_in_node_exporter() {
        let runs = |flags: &[&str], name| parse(flags).unwrap().selection.runs(name, true);
        assert!(runs(&[], "cpu"));
        assert!(!runs(&["--no-collector.cpu"], "cpu"));
        assert!(runs(&["--no-collector.cpu"], "stat"));
        assert!(!runs(&["--collector.disable-defaults"], "cpu"));
        assert!(runs(
            &["--collector.disable-defaults", "--collector.cpu"],
            "cpu"
        ));
        assert!(
            runs(&["--no-collector.cpu", "--collector.cpu"], "cpu"),
            "the last one counts"
        );
        assert!(parse(&["--collector.nonsense"]).is_err());
        let error = parse(&["--collector.wifi"]).unwrap_err().to_string();
        assert!(error.contains("no collector wifi"), "{error}");
    }

    #[test]
    fn wrong_flags_are_refused() {
        for flags in [
            ["--web.listen-address", "9855"],
            ["--web.listen-address", "host:port"],
            ["--collector.diskstats.device-exclude", "("],
        ] {
            assert!(parse(&flags).is_err(), "{flags:?}");
        }
        let both = [
            "--collector.netdev.device-exclude=lo",
            "--collector.netdev.device-include=eth0",
        ];
        assert!(parse(&both).is_err(), "they exclude each other");
    }

    #[test]
    fn defaults() {
        let options = Options::default();
        assert_eq!(options.web.listen_address, [":9855"]);
        assert_eq!(options.paths.procfs, PathBuf::from("/proc"));
    }
}
