//! All flags of the exporter: node_exporter's, and ours where it has none.

use super::node_exporter::NodeExporterFlags;
use super::selection::Selection;
use super::{
    arp, bcache, cpu, diskstats, ethtool, filesystem, hwmon, infiniband, interrupts, ipvs, jobs,
    netclass, netdev, netstat, nvml, pcidevice, powersupplyclass, qdisc, rapl, slabinfo, stat,
    sysctl, systemd, tapestats, textfile, vmstat, wifi,
};
use crate::collector::{SharedState, defaults};
use crate::options::WebOptions;
use crate::paths::Paths;
use clap::Args;
use std::path::PathBuf;

/// All flags. [`Options::default`] has the defaults.
#[derive(Debug, Clone, Args)]
#[expect(missing_docs, reason = "each struct says what it is")]
pub struct Options {
    #[command(flatten)]
    pub web: WebOptions,
    #[command(flatten)]
    pub paths: Paths,
    /// Directory for state that survives a restart, such as events. Without it a restart forgets
    /// them.
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
    pub infiniband: infiniband::InfinibandOptions,
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
    #[command(flatten)]
    pub wifi: wifi::WifiOptions,
    #[command(flatten)]
    pub node_exporter: NodeExporterFlags,
    #[arg(skip)]
    pub(crate) shared: SharedState,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOptions;
    use clap::{Command, FromArgMatches};
    use std::collections::BTreeSet;

    fn parse(flags: &[&str]) -> Result<Options, clap::Error> {
        let command = Options::augment_args(Command::new("takt-exporter").no_binary_name(true));
        command
            .try_get_matches_from(flags)
            .and_then(|matches| Options::from_arg_matches(&matches))
    }

    /// The checks that clap makes only with debug assertions.
    #[test]
    fn flag_names_and_ids_are_unique() {
        let mut command =
            LogOptions::augment_args(Options::augment_args(Command::new("takt-exporter")));
        command.clone().debug_assert();
        command.build();
        let path = "takt-exporter";
        let mut ids = BTreeSet::new();
        let mut words = BTreeSet::new();
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

        // The page needs a path of its own, without a pattern.
        for wrong in [
            "--web.telemetry-path=/events",
            "--web.telemetry-path=metrics",
            "--web.telemetry-path=/{x}",
        ] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    /// The flags that a real node_exporter 1.12.1 lists, each with a value that most flags accept.
    #[test]
    fn no_flag_of_node_exporters_help_is_unknown() {
        let cache = |variable: &str, below: &str| {
            std::env::var_os(variable).map(|folder| PathBuf::from(folder).join(below))
        };
        let program = cache("TAKT_CACHE_DIR", "")
            .or_else(|| cache("XDG_CACHE_HOME", "takt"))
            .or_else(|| cache("HOME", ".cache/takt"))
            .map(|cache| cache.join("peers/node_exporter-1.12.1"));
        let help = program.and_then(|program| {
            std::process::Command::new(program)
                .arg("--help-long")
                .output()
                .ok()
        });
        let Some(help) = help else {
            println!("SKIPPED: no node_exporter 1.12.1; scripts/peers.sh builds it with Go");
            return;
        };
        let help = [help.stdout, help.stderr].map(|text| String::from_utf8(text).unwrap());
        let command = Options::augment_args(Command::new("takt-exporter").no_binary_name(true));
        let mut command = LogOptions::augment_args(command).version("1");
        let mut count = 0;
        for line in help.iter().flat_map(|text| text.lines()) {
            // Descriptions are indented further, and may name flags.
            let entry = line.trim_start();
            let is_entry = line.len() - entry.len() <= 6;
            let flag = entry.strip_prefix("-h, ").unwrap_or(entry);
            let Some(flag) = flag.strip_prefix("--").filter(|_| is_entry) else {
                continue;
            };
            let flag = flag.split(' ').next().unwrap();
            let (name, has_value) = match flag.split_once('=') {
                Some((name, _)) => (name, true),
                None => (flag, false),
            };
            let name = name.trim_end_matches("...");
            let flags = match name.strip_prefix("[no-]") {
                Some(name) => vec![format!("--{name}"), format!("--no-{name}")],
                None if has_value => vec![format!("--{name}=1")],
                None => vec![format!("--{name}")],
            };
            for flag in flags {
                count += 1;
                let kind = command
                    .try_get_matches_from_mut([&flag])
                    .err()
                    .map(|error| error.kind());
                assert_ne!(
                    kind,
                    Some(clap::error::ErrorKind::UnknownArgument),
                    "{flag}"
                );
            }
        }

        // Fewer flags would mean that the help was not understood.
        assert!(count > 200, "{count} flags in:\n{}", help[0]);
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
        assert!(runs(&["--collector.wifi"], "wifi"));
        let error = parse(&["--collector.perf"]).unwrap_err().to_string();
        assert!(error.contains("no collector perf"), "{error}");
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
