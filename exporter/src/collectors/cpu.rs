//! CPU time by mode, and how often CPUs were throttled for heat.
//!
//! Sources: `/proc/stat`, which counts in hundredths of a second on every system, and, on Intel
//! CPUs, `/sys/devices/system/cpu/cpu*/thermal_throttle`. On request `/proc/cpuinfo`.

pub(crate) mod info;

use self::info::CpuInfo;
use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError, flag};
use crate::file::{KernelFile, SysfsFile};
use crate::filter::NamePattern;
use crate::paths::Paths;
use crate::sysfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `cpu`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct CpuOptions {
    /// Leave out node_cpu_guest_seconds_total.
    #[arg(long = "no-collector.cpu.guest", overrides_with = "guest")]
    pub no_guest: bool,
    /// Export node_cpu_guest_seconds_total (default).
    #[arg(
        long = "collector.cpu.guest",
        hide_short_help = true,
        overrides_with = "no_guest"
    )]
    pub guest: bool,
    /// Export the CPUs' models: node_cpu_info.
    #[arg(long = "collector.cpu.info")]
    pub info: bool,
    /// CPU flags to export as node_cpu_flag_info. Includes --collector.cpu.info.
    #[arg(long = "collector.cpu.info.flags-include", value_name = "REGEXP")]
    pub flags_include: Option<NamePattern>,
    /// CPU bugs to export as node_cpu_bug_info. Includes --collector.cpu.info.
    #[arg(long = "collector.cpu.info.bugs-include", value_name = "REGEXP")]
    pub bugs_include: Option<NamePattern>,
}

impl CpuOptions {
    pub(crate) fn wants_info(&self) -> bool {
        self.info || self.flags_include.is_some() || self.bugs_include.is_some()
    }
}

struct Cpu {
    stat: KernelFile,
    guest: bool,
    sysfs: PathBuf,
    shown: BTreeMap<String, Ticks>,
    directories: Directories,
    isolated: Vec<usize>,
    info: Option<CpuInfo>,
}

const SECONDS: Metric = Metric::counter(
    "node_cpu_seconds_total",
    "Seconds the CPUs spent in each mode.",
    &["cpu", "mode"],
);
const GUEST: Metric = Metric::counter(
    "node_cpu_guest_seconds_total",
    "Seconds the CPUs spent in guests (VMs) for each mode.",
    &["cpu", "mode"],
);
const CORE_THROTTLES: Metric = Metric::counter(
    "node_cpu_core_throttles_total",
    "Number of times this CPU core has been throttled.",
    &["package", "core"],
);
const PACKAGE_THROTTLES: Metric = Metric::counter(
    "node_cpu_package_throttles_total",
    "Number of times this CPU package has been throttled.",
    &["package"],
);
const ISOLATED: Metric = Metric::gauge(
    "node_cpu_isolated",
    "Whether each core is isolated, information from /sys/devices/system/cpu/isolated.",
    &["cpu"],
);
const ONLINE: Metric = Metric::gauge(
    "node_cpu_online",
    "CPUs that are online and being scheduled.",
    &["cpu"],
);
const METRICS: &[Metric] = &[
    SECONDS,
    GUEST,
    CORE_THROTTLES,
    PACKAGE_THROTTLES,
    ISOLATED,
    ONLINE,
    info::METRICS[0],
    info::METRICS[1],
    info::METRICS[2],
];

/// The modes in the order of `/proc/stat`. Its columns after them count guests' time, which `user`
/// and `nice` include.
const MODES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];
const IDLE: usize = 3;
const GUEST_MODES: [&str; 2] = ["user", "nice"];
const TICKS_A_SECOND: f64 = 100.0;

/// A CPU's ticks in each of [`MODES`], then as guest in each of [`GUEST_MODES`].
type Ticks = [u64; 10];

pub(crate) fn new(paths: &Paths, options: &CpuOptions) -> Box<dyn Collector> {
    let sysfs = paths.sysfs.join("devices/system/cpu");
    let file = |name: &str| KernelFile::new(paths.procfs.join(name));
    let CpuOptions {
        no_guest,
        flags_include,
        bugs_include,
        ..
    } = options.clone();

    Box::new(Cpu {
        stat: file("stat"),
        info: options
            .wants_info()
            .then(|| CpuInfo::new(file("cpuinfo"), flags_include, bugs_include)),
        guest: !no_guest,
        shown: BTreeMap::new(),
        directories: Directories::default(),
        // Set on the kernel's command line, so it does not change.
        isolated: std::fs::read_to_string(sysfs.join("isolated"))
            .map_or(Vec::new(), |list| parse_list(&list)),
        sysfs,
    })
}

impl Collector for Cpu {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (MODES.len() + GUEST_MODES.len() + METRICS.len())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mut count = 0;
        self.stat.parse(|text| {
            for line in parse(text) {
                let (cpu, now) = line?;
                count += 1;
                let ticks = match self.shown.get_mut(cpu) {
                    Some(shown) => {
                        *shown = steady(shown, now);
                        shown
                    }
                    None => self.shown.entry(cpu.to_owned()).or_insert(now),
                };

                let (own, as_guest) = ticks.split_at(MODES.len());
                for (mode, ticks) in MODES.iter().zip(own) {
                    out.push(&SECONDS, &[cpu, mode], *ticks as f64 / TICKS_A_SECOND);
                }
                if !self.guest {
                    continue;
                }
                for (mode, ticks) in GUEST_MODES.iter().zip(as_guest) {
                    out.push(&GUEST, &[cpu, mode], *ticks as f64 / TICKS_A_SECOND);
                }
            }
            Ok(())
        })?;

        // CPUs came or went.
        if count != self.directories.cpus {
            self.directories = Directories::find(&self.sysfs, count);
        }

        self.directories.push(out);

        for cpu in &self.isolated {
            out.push(&ISOLATED, &[cpu.to_string()], 1.0);
        }
        for (cpu, file) in &self.directories.online {
            let is_online = sysfs::number::<u8>(file) == Some(1);
            out.push(&ONLINE, &[cpu], flag(is_online));
        }

        match &mut self.info {
            Some(info) => info.push(out),
            None => Ok(()),
        }
    }
}

/// Returns the published counters after the reading `now`. The kernel lets `idle` and `iowait` step
/// back a little, which a counter must not do; a long step back means that the CPU was offline and
/// counts from 0 again.
fn steady(shown: &Ticks, now: Ticks) -> Ticks {
    const REPLUGGED: u64 = 3 * TICKS_A_SECOND as u64;
    if shown[IDLE].saturating_sub(now[IDLE]) >= REPLUGGED {
        return now;
    }
    std::array::from_fn(|mode| now[mode].max(shown[mode]))
}

/// The lines of single CPUs. Old kernels have fewer columns; what they do not count is 0.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, Ticks), ParseError>> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let (cpu, columns) = line.strip_prefix("cpu")?.split_once(' ')?;
        // The first line is the sum of all CPUs.
        if cpu.is_empty() {
            return None;
        }

        let mut ticks = Ticks::default();
        let mut is_right = cpu.bytes().all(|c| c.is_ascii_digit());
        for (ticks, column) in ticks.iter_mut().zip(columns.split_ascii_whitespace()) {
            match column.parse() {
                Ok(count) => *ticks = count,
                Err(_) => is_right = false,
            }
        }

        Some(is_right.then_some((cpu, ticks)).ok_or(ParseError {
            line: number + 1,
            expected: "a CPU's ticks",
        }))
    })
}

/// `0-2,5` is 0, 1, 2 and 5.
fn parse_list(text: &str) -> Vec<usize> {
    text.trim_ascii()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        // Without a bound, a few bytes could fill the memory.
        .flat_map(|range: std::ops::RangeInclusive<usize>| range.take(MAX_DEVICES))
        .take(MAX_DEVICES)
        .collect()
}

/// Files of the CPUs in `/sys`: the throttle counters, which all CPUs of a core, and all cores of a
/// package, share.
#[derive(Default)]
struct Directories {
    /// How many CPUs there were when they were looked for.
    cpus: usize,
    cores: BTreeMap<(String, String), SysfsFile>,
    packages: BTreeMap<String, SysfsFile>,
    /// Where each CPU says whether it is online. Empty where the first cannot be taken offline, as
    /// on most systems.
    online: Vec<(String, PathBuf)>,
    buffer: Vec<u8>,
}

impl Directories {
    fn find(sysfs: &Path, cpus: usize) -> Self {
        let mut found = Self {
            cpus,
            ..Self::default()
        };

        let directories = sysfs::numbered(sysfs, "cpu").unwrap_or_default();
        let online = |name: &String| sysfs.join(name).join("online");
        if directories
            .first()
            .is_some_and(|(first, _)| online(first).exists())
        {
            let cpus = directories.iter();
            found.online = cpus
                .map(|(name, cpu)| (cpu.clone(), online(name)))
                .collect();
        }

        for (name, _) in directories {
            let directory = sysfs.join(name);
            let topology = |name: &str| sysfs::text(&directory.join("topology").join(name));
            // A CPU that is offline has no topology.
            let (Some(package), Some(core)) =
                (topology("physical_package_id"), topology("core_id"))
            else {
                continue;
            };

            let counter =
                |name: &str| SysfsFile::open(&directory.join("thermal_throttle").join(name)).ok();

            if let Some(counter) = counter("package_throttle_count") {
                found.packages.entry(package.clone()).or_insert(counter);
            }
            if let Some(counter) = counter("core_throttle_count") {
                found.cores.entry((package, core)).or_insert(counter);
            }
        }
        found
    }

    /// A counter that cannot be read belongs to a CPU that is just going.
    fn push(&mut self, out: &mut Samples) {
        let mut read = |counter: &SysfsFile| counter.read(&mut self.buffer).ok()?.parse().ok();
        for ((package, core), counter) in &self.cores {
            if let Some(count) = read(counter) {
                out.push(&CORE_THROTTLES, &[package, core], count);
            }
        }
        for (package, counter) in &self.packages {
            if let Some(count) = read(counter) {
                out.push(&PACKAGE_THROTTLES, &[package], count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_cpus_are_read_and_the_sum_is_not() {
        let text =
            "cpu  75198 9143 13815 418248 1676 0 141 120 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(
            parse(text).collect::<Vec<_>>(),
            [Ok(("0", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]))]
        );
        assert_eq!(
            parse("cpu12 1 2 3 4\n").next(),
            Some(Ok(("12", [1, 2, 3, 4, 0, 0, 0, 0, 0, 0])))
        );
        assert_eq!(parse("ok\ncpu0 1 x\n").next().unwrap().unwrap_err().line, 2);
        assert!(parse("cpu\"} 1 2\n").next().unwrap().is_err());
    }

    #[test]
    fn a_small_step_back_is_not_shown_and_a_long_one_is() {
        let shown = [100, 0, 0, 1000, 50, 0, 0, 0, 0, 0];
        assert_eq!(
            steady(&shown, [110, 0, 0, 990, 49, 0, 0, 0, 0, 0]),
            [110, 0, 0, 1000, 50, 0, 0, 0, 0, 0]
        );
        let anew = [1, 0, 0, 10, 0, 0, 0, 0, 0, 0];
        assert_eq!(steady(&shown, anew), anew);
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list("\n"), [0; 0]);
        assert_eq!(parse_list("0-99999999999").len(), MAX_DEVICES);
    }
}
