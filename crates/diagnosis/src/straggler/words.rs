//! The finding in words.

use super::{Cause, Certainty, Evidence, Metric, Pace, SlowGpu};
use takt_model::words::{amount, percent, whole};

impl Pace {
    /// The finding as a sentence. `name` is that of the slow GPU ("GPU 3 of g07") or node, `since` its time in words.
    pub fn words(&self, name: &str, since: &str) -> String {
        match self {
            Self::Unknown { why } => format!("whether one GPU is slow is not known: {why}"),
            Self::Even => "no GPU makes the others wait".to_owned(),
            Self::AllWait { cause } => {
                format!("no single GPU is slow: all wait, {}", cause.words())
            }
            Self::Slow(slow) => slow.words(name, since),
        }
    }
}

impl SlowGpu {
    fn words(&self, name: &str, since: &str) -> String {
        let wait = match self.others_wait_ratio {
            Some(ratio) => format!("the others wait {} of the time", percent(ratio)),
            None => "the others wait".to_owned(),
        };
        let certainty = match self.certainty {
            Certainty::Certain => "certain",
            Certainty::Likely => "likely",
        };
        format!(
            "{name} is slow since {since}, {wait}: {}; {certainty}",
            self.cause.words()
        )
    }
}

impl Cause {
    /// The cause as one word, as in a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeldDown => "held_down",
            Self::PcieLink => "pcie_link",
            Self::LinkErrors => "link_errors",
            Self::CpuQuota => "cpu_quota",
            Self::Files => "files",
            Self::LowClock => "low_clock",
            Self::Process => "process",
        }
    }

    /// The cause as part of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::HeldDown => "heat, a power brake or a fault of the board holds its clocks down",
            Self::PcieLink => "its PCIe link is slower than it can be",
            Self::LinkErrors => "its links send again or fail",
            Self::CpuQuota => "a quota keeps the job off its CPUs",
            Self::Files => "the job waits for files",
            Self::LowClock => "its clocks are low, and nothing measured says why",
            Self::Process => "its process gives it too little to do, and nothing measured says why",
        }
    }
}

impl Certainty {
    /// The certainty as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
        }
    }
}

impl Evidence {
    /// The reading beside that of the others: "clock 1,200 MHz, of the others 1,980 MHz".
    pub fn words(&self) -> String {
        let (name, write): (_, fn(f64) -> String) = match self.metric {
            Metric::Utilization => ("utilization", percent),
            Metric::Tensor => ("tensor activity", percent),
            Metric::Power => ("power", |watts| format!("{} W", whole(watts))),
            Metric::Clock => ("clock", |hertz| format!("{} MHz", whole(hertz / 1e6))),
            Metric::HeldDown => ("clocks held down", |ratio| {
                format!("{} of the time", percent(ratio))
            }),
            Metric::PcieDegraded => ("PCIe link degraded", |value| {
                if value > 0.5 { "yes" } else { "no" }.to_owned()
            }),
            Metric::LinkErrors => ("link errors", |rate| format!("{} per second", amount(rate))),
            Metric::CpuThrottled => ("off its CPUs", |ratio| {
                format!("{} of the time", percent(ratio))
            }),
            Metric::FileWait => ("waits for files", |ratio| {
                format!("{} of the time", percent(ratio))
            }),
        };
        format!(
            "{name} {}, of the others {}",
            write(self.value),
            write(self.others)
        )
    }
}
