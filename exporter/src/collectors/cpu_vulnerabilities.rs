//! Hardware vulnerabilities of the CPU, and the kernel's mitigations.
//!
//! Source: `/sys/devices/system/cpu/vulnerabilities`.

use crate::collector::{CollectError, Collector, device_names};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct CpuVulnerabilities {
    directory: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_cpu_vulnerabilities_info",
    "Details of each CPU vulnerability reported by sysfs. The value of the series is an int \
     encoded state of the vulnerability. The same state is stored as a string in the label",
    &["codename", "state", "mitigation"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(CpuVulnerabilities {
        directory: paths.sysfs.join("devices/system/cpu/vulnerabilities"),
    })
}

impl Collector for CpuVulnerabilities {
    fn metrics(&self) -> &'static [Metric] {
        &[INFO]
    }

    fn max_series(&self) -> usize {
        256
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let names = device_names(&self.directory, "", "the kernel reports none")?;
        for name in names {
            let Some(text) = sysfs::text(&self.directory.join(&name)) else {
                continue;
            };
            let (state, mitigation) = parse(&text);
            out.push(&INFO, &[name.as_str(), state, &mitigation], 1.0);
        }
        Ok(())
    }
}

/// `Mitigation: usercopy/swapgs barriers` is a state and how it came to be.
fn parse(text: &str) -> (&'static str, String) {
    const STATES: [&str; 4] = ["not affected", "vulnerable", "mitigation", "unknown"];
    let lower = text.to_ascii_lowercase();
    let Some(state) = STATES.into_iter().find(|state| lower.starts_with(state)) else {
        return ("unknown", text.to_owned());
    };

    let how = match state {
        "not affected" => String::new(),
        _ => {
            let words = text.split_ascii_whitespace().skip(1);
            words.collect::<Vec<_>>().join(" ")
        }
    };
    (state, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        assert_eq!(parse("Not affected"), ("not affected", String::new()));
        assert_eq!(parse("Mitigation: PTI"), ("mitigation", "PTI".to_owned()));
        assert_eq!(parse("Vulnerable"), ("vulnerable", String::new()));
        assert_eq!(
            parse("KVM: Mitigation: VMX disabled"),
            ("unknown", "KVM: Mitigation: VMX disabled".to_owned())
        );
    }
}
