//! The CPUs' clocks, and what governs them.
//!
//! Source: `/sys/devices/system/cpu/cpu*/cpufreq`, in kilohertz; we publish hertz. Some drivers
//! measure when they are asked, which takes milliseconds for each CPU, so this collector has a
//! thread. With --collector.cpu.info also `/proc/cpuinfo`: node_exporter has the clocks from there
//! under the same name, with more labels.

use crate::collector::{CollectError, Collector, flag};
use crate::collectors::cpu::info::frequencies;
use crate::file::KernelFile;
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Kind, Metric, Samples};

struct Cpufreq {
    cpus: PathBuf,
    cpuinfo: Option<KernelFile>,
}

macro_rules! clocks {
    ($($file:literal $name:literal $help:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        const METRICS: &[Metric] = &[$(Metric::gauge($name, $help, &["cpu"]),)* GOVERNOR];
    };
}

const GOVERNOR: Metric = Metric::gauge(
    "node_cpu_scaling_governor",
    "Current enabled CPU frequency governor.",
    &["cpu", "governor"],
);

clocks! {
    "cpuinfo_cur_freq" "node_cpu_frequency_hertz" "Current CPU thread frequency in hertz.",
    "cpuinfo_avg_freq" "node_cpu_frequency_avg_hertz" "Average CPU thread frequency in hertz.",
    "cpuinfo_min_freq" "node_cpu_frequency_min_hertz" "Minimum CPU thread frequency in hertz.",
    "cpuinfo_max_freq" "node_cpu_frequency_max_hertz" "Maximum CPU thread frequency in hertz.",
    "scaling_cur_freq" "node_cpu_scaling_frequency_hertz"
        "Current scaled CPU thread frequency in hertz.",
    "scaling_min_freq" "node_cpu_scaling_frequency_min_hertz"
        "Minimum scaled CPU thread frequency in hertz.",
    "scaling_max_freq" "node_cpu_scaling_frequency_max_hertz"
        "Maximum scaled CPU thread frequency in hertz.",
}

/// No node has more hardware threads.
const MAX_CPUS: usize = 4096;

/// `with_cpuinfo` adds the clocks of `/proc/cpuinfo`, as `cpu` does with `--collector.cpu.info`.
pub(crate) fn new(paths: &Paths, with_cpuinfo: bool) -> Box<dyn Collector> {
    let cpuinfo = || KernelFile::new(paths.procfs.join("cpuinfo"));
    Box::new(Cpufreq {
        cpus: paths.sysfs.join("devices/system/cpu"),
        cpuinfo: with_cpuinfo.then(cpuinfo),
    })
}

impl Collector for Cpufreq {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_CPUS * (METRICS.len() + 8)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (name, cpu) in sysfs::numbered(&self.cpus, "cpu").unwrap_or_default() {
            let directory = self.cpus.join(name).join("cpufreq");
            for (file, metric) in FILES.iter().zip(METRICS) {
                if let Some(kilohertz) = sysfs::number::<u64>(&directory.join(file)) {
                    out.push(metric, &[&cpu], kilohertz as f64 * 1e3);
                }
            }

            let Some(current) = sysfs::text(&directory.join("scaling_governor")) else {
                continue;
            };

            let available =
                sysfs::text(&directory.join("scaling_available_governors")).unwrap_or_default();
            for governor in available.split_ascii_whitespace() {
                let is_it = flag(governor == current);
                out.push(&GOVERNOR, &[cpu.as_str(), governor], is_it);
            }
        }

        if let Some(cpuinfo) = &mut self.cpuinfo {
            for ([package, core, cpu], hertz) in frequencies(cpuinfo.read().unwrap_or_default()) {
                let labels = [("package", package), ("core", core), ("cpu", cpu)];
                let help = "CPU frequency in hertz from /proc/cpuinfo.";
                out.push_foreign(METRICS[0].name, Kind::Gauge, help, &labels, hertz);
            }
        }
        Ok(())
    }
}
