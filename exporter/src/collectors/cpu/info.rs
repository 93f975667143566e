//! Which CPUs these are.
//!
//! Source: `/proc/cpuinfo`: a paragraph for each CPU, which differs by architecture. A missing
//! field is an empty label.

use crate::collector::CollectError;
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use takt_model::{Metric, Samples};

const INFO: Metric = Metric::gauge(
    "node_cpu_info",
    "CPU information from /proc/cpuinfo.",
    &[
        "package",
        "core",
        "cpu",
        "vendor",
        "family",
        "model",
        "model_name",
        "microcode",
        "stepping",
        "cachesize",
    ],
);
/// The fields behind the labels of [`INFO`].
const FIELDS: [&str; 10] = [
    "physical id",
    "core id",
    "processor",
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "microcode",
    "stepping",
    "cache size",
];
const FLAG: Metric = Metric::gauge(
    "node_cpu_flag_info",
    "The `flags` field of CPU information from /proc/cpuinfo taken from the first core.",
    &["flag"],
);
const BUG: Metric = Metric::gauge(
    "node_cpu_bug_info",
    "The `bugs` field of CPU information from /proc/cpuinfo taken from the first core.",
    &["bug"],
);
pub(super) const METRICS: [Metric; 3] = [INFO, FLAG, BUG];

pub(super) struct CpuInfo {
    cpuinfo: KernelFile,
    flags: Option<NameFilter>,
    bugs: Option<NameFilter>,
}

impl CpuInfo {
    pub fn new(cpuinfo: KernelFile, flags: Option<NamePattern>, bugs: Option<NamePattern>) -> Self {
        let flags = flags.map(NameFilter::including);
        let bugs = bugs.map(NameFilter::including);
        Self {
            cpuinfo,
            flags,
            bugs,
        }
    }

    pub fn push(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let text = self.cpuinfo.read()?;
        for cpu in cpus(text) {
            let labels = FIELDS.map(|name| field(cpu, name).unwrap_or_default());
            out.push(&INFO, &labels, 1.0);
        }

        // All CPUs of a node have the same flags and bugs.
        let first = cpus(text).next().unwrap_or_default();
        for (metric, filter, names) in [
            (&FLAG, &mut self.flags, ["flags", "Features"]),
            (&BUG, &mut self.bugs, ["bugs", "bugs"]),
        ] {
            let Some(filter) = filter else { continue };

            let words = names.iter().find_map(|name| field(first, name));
            for word in words.unwrap_or_default().split_ascii_whitespace() {
                if filter.passes(word) {
                    out.push(metric, &[word], 1.0);
                }
            }
        }
        Ok(())
    }
}

/// The clock of each CPU in hertz, under its package, core and number.
pub(crate) fn frequencies(text: &str) -> impl Iterator<Item = ([&str; 3], f64)> {
    cpus(text).map(|cpu| {
        let text = |name| field(cpu, name).unwrap_or_default();
        let labels = ["physical id", "core id", "processor"].map(text);
        let megahertz = text("cpu MHz").parse::<f64>().unwrap_or_default();
        (labels, megahertz * 1e6)
    })
}

fn cpus(text: &str) -> impl Iterator<Item = &str> {
    let paragraphs = text.split("\n\n");
    paragraphs.filter(|cpu| field(cpu, "processor").is_some())
}

/// `model name : AMD EPYC`
fn field<'a>(cpu: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpu.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| field.trim_ascii() == name)?;
    Some(value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let cpu =
            "processor\t: 1\nmodel\t\t: 63\nmodel name\t: Some CPU: fast\npower management:\n";
        assert_eq!(
            (field(cpu, "model"), field(cpu, "model name")),
            (Some("63"), Some("Some CPU: fast"))
        );
        assert_eq!(
            (field(cpu, "power management"), field(cpu, "bugs")),
            (Some(""), None)
        );
    }
}
