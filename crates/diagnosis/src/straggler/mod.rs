//! Which GPU a distributed job waits for, from samples that the exporters take anyway.
//!
//! The ranks of a synchronous job wait for the slowest of them at each step. A rank that waits spins in a kernel of the
//! collective: its utilization stays high, its tensor activity and power fall. The slow one works all the time
//! (its clocks are low), or waits for its own data (its utilization is low), or moves its data slowly (its link).
//! So one metric of one GPU differs from the others', in window after window, and something shows that the others wait.
//! The stages of a pipeline differ by design. So a GPU without a physical cause must also have changed against its own
//! past.
//!
//! The method is that of Minder (arXiv 2411.01791): one metric at a time, its distance from the peers, and how long it lasts.

mod readings;
mod spread;
mod words;

pub use readings::{GpuReadings, Metric, Readings};

use serde::{Deserialize, Serialize};
use spread::{
    CPU_THROTTLED, FILE_WAIT, HELD_DOWN, LINK_ERRORS, LOW_CLOCK, LOW_UTILIZATION, Lone,
    PCIE_DEGRADED, Sign, lone, median,
};
use std::collections::BTreeMap;
use takt_model::UnixTime;

/// Length of a window, in seconds: two scrapes.
pub const WINDOW_SECONDS: i64 = 30;

/// The last windows, which decide. Four of them in a row name a GPU within three minutes.
const LATEST: usize = 5;

/// Windows among the last ones in which a GPU must differ.
const SEEN_IN: usize = 4;

/// Least number of GPUs that are compared with one another.
pub const LEAST_GPUS: usize = 4;

/// Least number of windows that are a GPU's own past.
const LEAST_PAST: usize = 6;

/// Utilization above which the others of a slow GPU work or spin.
const BUSY: f64 = 0.6;

/// Utilization below which a GPU is unused, not slow.
const UNUSED: f64 = 0.05;

/// Share of time waiting for files, or without CPUs, above which it stops every rank.
const ALL_WAIT: f64 = 0.3;

/// Share of the work per time by which a job slowed down.
const SLOWED: f64 = 0.1;

/// How evenly the GPUs of a job work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Pace {
    /// The readings do not suffice.
    Unknown {
        /// The reason, in words.
        why: String,
    },
    /// No GPU differs from the others in a way that makes them wait.
    Even,
    /// Every GPU waits for the same, and no single one is slow.
    AllWait {
        /// Cause of the wait.
        cause: Cause,
    },
    /// The others wait for one GPU, or for one node.
    Slow(SlowGpu),
}

/// The GPU, or the node, that the others wait for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowGpu {
    /// Node.
    pub node: String,
    /// UUID of the GPU; `None`: every GPU of the node.
    pub uuid: Option<String>,
    /// Begin of the first window in which it differs, at the earliest that of the readings.
    pub since: UnixTime,
    /// Whether it was measured before that time, and did not differ.
    pub was_even_before: bool,
    /// Why it is slow.
    pub cause: Cause,
    /// Share of the time for which the others wait, 0 to 1; `None` if it was not measured.
    pub others_wait_ratio: Option<f64>,
    /// How sure this is.
    pub certainty: Certainty,
    /// Readings in which it differs, the cause first.
    pub evidence: Vec<Evidence>,
}

/// Why a GPU is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Heat, a power brake or a fault of the board holds its clocks down.
    HeldDown,
    /// Its PCIe link is slower than it can be.
    PcieLink,
    /// Its links send again, or fail.
    LinkErrors,
    /// A quota keeps the job off the CPUs.
    CpuQuota,
    /// The job waits for files.
    Files,
    /// Its clocks are low; nothing says why.
    LowClock,
    /// Its process gives it too little to do; nothing says why.
    Process,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// A physical cause and the waiting of the others were both measured.
    Certain,
    /// One of the two was measured, or only a change against its own past.
    Likely,
}

/// A reading in which a GPU differs: its median over the last windows, beside that of the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The metric.
    pub metric: Metric,
    /// Its value.
    pub value: f64,
    /// The others' value.
    pub others: f64,
}

/// Judges the readings of a job's GPUs, of which the last window ends at `end`.
pub fn pace(gpus: &[GpuReadings], end: UnixTime) -> Pace {
    // Only GPUs of one model: another model differs by design.
    let alike = alike(gpus);
    let job = Job { gpus: &alike, end };
    if let Some(why) = job.why_unknown() {
        return Pace::Unknown { why };
    }

    match job.slow_gpu() {
        Some(slow) => Pace::Slow(slow),
        None => job
            .all_wait()
            .map_or(Pace::Even, |cause| Pace::AllWait { cause }),
    }
}

/// Returns the measured GPUs of the most frequent model.
fn alike(gpus: &[GpuReadings]) -> Vec<&GpuReadings> {
    let mut models: BTreeMap<&str, Vec<&GpuReadings>> = BTreeMap::new();
    for gpu in gpus {
        let latest = &gpu.windows[gpu.windows.len().saturating_sub(LATEST)..];
        let measured = latest.iter().filter(|window| !window.is_empty()).count();
        // A GPU with gaps could neither be named nor serve as a peer.
        if measured >= SEEN_IN {
            models.entry(&gpu.model).or_default().push(gpu);
        }
    }
    let most = models.into_values().max_by_key(Vec::len);
    most.unwrap_or_default()
}

/// The GPUs of a job that can be compared.
struct Job<'j> {
    gpus: &'j [&'j GpuReadings],
    end: UnixTime,
}

impl Job<'_> {
    fn windows(&self) -> usize {
        self.gpus.first().map_or(0, |gpu| gpu.windows.len())
    }

    fn latest(&self) -> std::ops::Range<usize> {
        self.windows().saturating_sub(LATEST)..self.windows()
    }

    fn why_unknown(&self) -> Option<String> {
        if self.gpus.is_empty() || self.windows() < LATEST {
            return Some("its GPUs have been measured for less than three minutes".to_owned());
        }
        if self.gpus.len() < LEAST_GPUS {
            return Some(format!(
                "only {} of its GPUs are alike and measured: one can be told from the others among four",
                self.gpus.len()
            ));
        }
        match self.typical(Metric::Utilization, |_, _| true) {
            None => Some("the utilization of its GPUs is not measured".to_owned()),
            // Differences among idle GPUs are noise, and no job waits.
            Some(busy) if busy < UNUSED => Some("most of its GPUs do nothing now".to_owned()),
            Some(_) => None,
        }
    }

    /// Returns the median over the last windows of the chosen GPUs.
    fn typical(
        &self,
        metric: Metric,
        is_chosen: impl Fn(usize, &GpuReadings) -> bool,
    ) -> Option<f64> {
        self.typical_in(metric, self.latest(), is_chosen)
    }

    fn typical_in(
        &self,
        metric: Metric,
        windows: std::ops::Range<usize>,
        is_chosen: impl Fn(usize, &GpuReadings) -> bool,
    ) -> Option<f64> {
        let chosen = self
            .gpus
            .iter()
            .enumerate()
            .filter(|(at, gpu)| is_chosen(*at, gpu));
        let mut values: Vec<f64> = chosen
            .flat_map(|(_, gpu)| &gpu.windows[windows.clone()])
            .filter_map(|window| window[metric])
            .collect();
        median(&mut values)
    }

    /// The GPU or node that shows a sign in most of the last windows, and the first window of those without a break.
    fn suspect(&self, sign: Sign) -> Option<Suspect> {
        let found: Vec<Lone> = self
            .latest()
            .filter_map(|window| lone(self.gpus, window, sign))
            .collect();
        // The finding is about now, so the last one counts.
        let who = found.last()?.clone();
        if found.iter().filter(|one| **one == who).count() < SEEN_IN {
            return None;
        }

        // A single window without the finding does not end the time in which it differs.
        let mut first = self.windows();
        for window in (0..self.windows()).rev() {
            if lone(self.gpus, window, sign).as_ref() == Some(&who) {
                first = window;
            } else if window + 1 < first {
                break;
            }
        }
        Some(Suspect {
            who,
            first,
            metric: sign.metric,
        })
    }

    fn evidence(&self, suspect: &Suspect, metric: Metric) -> Option<Evidence> {
        Some(Evidence {
            metric,
            value: self.typical(metric, |at, gpu| suspect.who.has(at, gpu))?,
            others: self.typical(metric, |at, gpu| !suspect.who.has(at, gpu))?,
        })
    }

    fn slow_gpu(&self) -> Option<SlowGpu> {
        // Causes before symptoms: a GPU that is held down also has a low clock, and the first sign
        // found is reported.
        let signs = [
            HELD_DOWN,
            CPU_THROTTLED,
            FILE_WAIT,
            PCIE_DEGRADED,
            LINK_ERRORS,
            LOW_CLOCK,
            LOW_UTILIZATION,
        ];
        signs.into_iter().find_map(|sign| {
            let suspect = self.suspect(sign)?;
            let found = match sign.metric {
                Metric::HeldDown => self.is_held_down(&suspect),
                Metric::CpuThrottled | Metric::FileWait => self.lacks_work(&suspect),
                Metric::PcieDegraded | Metric::LinkErrors => self.has_a_slow_link(&suspect),
                _ => self.has_slowed_down(&suspect),
            };
            Some(self.report(&suspect, found?))
        })
    }

    /// Heat or a power brake holds its clocks down, and it works while the others wait.
    fn is_held_down(&self, suspect: &Suspect) -> Option<Found> {
        let clock = self.evidence(suspect, Metric::Clock);
        // Some heat costs no clock. A card that does less than the others is not what they wait
        // for.
        if clock.is_some_and(|clock| clock.value > 0.97 * clock.others) || self.works_less(suspect)
        {
            return None;
        }
        let tensor = self.evidence(suspect, Metric::Tensor);
        // The slow one works all the time, so its tensor activity is higher than that of the
        // others, which spin.
        let is_seen = tensor.is_some_and(|tensor| tensor.value > 1.03 * tensor.others);
        Some(Found {
            cause: Cause::HeldDown,
            others_wait_ratio: clock.map(|clock| 1.0 - clock.value / clock.others),
            certainty: if is_seen || clock.is_some() {
                Certainty::Certain
            } else {
                Certainty::Likely
            },
        })
    }

    /// Its processes wait for CPUs or files, so it has less to do than the others, which spin.
    fn lacks_work(&self, suspect: &Suspect) -> Option<Found> {
        let busy = self.evidence(suspect, Metric::Utilization)?;
        // The others spin in kernels while they wait, which looks busy; this one has gaps.
        if busy.others < BUSY || busy.others - busy.value < SLOWED || busy.value < UNUSED {
            return None;
        }
        Some(Found {
            cause: match suspect.metric {
                Metric::CpuThrottled => Cause::CpuQuota,
                _ => Cause::Files,
            },
            others_wait_ratio: Some(busy.others - busy.value),
            certainty: Certainty::Certain,
        })
    }

    /// Its link is the only bad one, and since then every GPU does less.
    fn has_a_slow_link(&self, suspect: &Suspect) -> Option<Found> {
        // All ranks share the exchange, so a slow link shows in none of them alone, but in the pace
        // of all.
        let slowed = self
            .slowed_since(suspect.first)
            .filter(|slowed| *slowed >= SLOWED)?;
        Some(Found {
            cause: match suspect.metric {
                Metric::PcieDegraded => Cause::PcieLink,
                _ => Cause::LinkErrors,
            },
            others_wait_ratio: Some(slowed),
            certainty: Certainty::Certain,
        })
    }

    /// It differs from the others more than in its own past. Without a past, the difference may be by design.
    fn has_slowed_down(&self, suspect: &Suspect) -> Option<Found> {
        let now = self.evidence(suspect, suspect.metric)?;
        // Without the window before the change, which may be half of each.
        let past = 0..suspect.first.saturating_sub(1);
        if past.len() < LEAST_PAST {
            return None;
        }
        let before = Evidence {
            metric: suspect.metric,
            value: self.typical_in(suspect.metric, past.clone(), |at, gpu| {
                suspect.who.has(at, gpu)
            })?,
            others: self.typical_in(suspect.metric, past, |at, gpu| !suspect.who.has(at, gpu))?,
        };
        // As shares of the others, so that a change of the whole job does not count.
        let lost = before.value / before.others - now.value / now.others;

        let is_unused = self
            .evidence(suspect, Metric::Utilization)
            .is_some_and(|busy| busy.value < UNUSED || busy.others < BUSY);
        if lost < 0.07 || is_unused {
            return None;
        }

        if suspect.metric == Metric::Clock {
            // A GPU with less to do lowers its clock by itself.
            return (!self.works_less(suspect)).then_some(Found {
                cause: Cause::LowClock,
                others_wait_ratio: Some(lost),
                certainty: Certainty::Likely,
            });
        }
        Some(Found {
            cause: Cause::Process,
            others_wait_ratio: Some(now.others - now.value),
            certainty: Certainty::Likely,
        })
    }

    /// Whether it does less than the others, which then do not wait for its clocks.
    fn works_less(&self, suspect: &Suspect) -> bool {
        let is_less = |metric, least: f64| {
            let found = self.evidence(suspect, metric);
            found.is_some_and(|found| found.value < least * found.others)
        };
        // Utilization has the wider margin, because it is a coarse share of time.
        is_less(Metric::Tensor, 0.9) || is_less(Metric::Utilization, 0.8)
    }

    /// Returns the share of their work per time that the GPUs lost since a window: of tensor activity, or of power
    /// where that is not measured. `None` without a past.
    fn slowed_since(&self, first: usize) -> Option<f64> {
        let past = 0..first.saturating_sub(1);
        if past.len() < LEAST_PAST {
            return None;
        }
        let lost = |metric| {
            let before = self.typical_in(metric, past.clone(), |_, _| true)?;
            let now = self.typical(metric, |_, _| true)?;
            (before > 0.0).then(|| (1.0 - now / before).clamp(0.0, 1.0))
        };
        // Power is the weaker sign: a GPU that spins draws some, too.
        lost(Metric::Tensor).or_else(|| lost(Metric::Power))
    }

    /// The cause for which every GPU waits.
    fn all_wait(&self) -> Option<Cause> {
        let busy = self.typical(Metric::Utilization, |_, _| true)?;
        let causes = [
            (Metric::FileWait, Cause::Files),
            (Metric::CpuThrottled, Cause::CpuQuota),
        ];
        let found = causes.into_iter().find(|(metric, _)| {
            let waits = self.typical(*metric, |_, _| true);
            waits.is_some_and(|waits| waits >= ALL_WAIT)
        });
        found
            // Threads may wait for files while the GPUs work, as loaders do that read ahead.
            .filter(|_| busy < 1.0 - ALL_WAIT)
            .map(|(_, cause)| cause)
    }

    fn report(&self, suspect: &Suspect, found: Found) -> SlowGpu {
        let (node, uuid) = match &suspect.who {
            Lone::Gpu(index) => {
                let gpu = &self.gpus[*index];
                (gpu.node.clone(), Some(gpu.uuid.clone()))
            }
            Lone::Node(node) => (node.clone(), None),
        };
        let windows = (self.windows() - suspect.first) as i64;

        let metrics = [
            suspect.metric,
            Metric::Clock,
            Metric::Utilization,
            Metric::Tensor,
            Metric::Power,
        ];
        let mut evidence: Vec<Evidence> = Vec::new();
        for metric in metrics {
            // The sign may be one of the other metrics itself.
            if evidence.iter().all(|known| known.metric != metric) {
                evidence.extend(self.evidence(suspect, metric));
            }
        }

        SlowGpu {
            node,
            uuid,
            since: self.end - windows * WINDOW_SECONDS,
            was_even_before: self
                .typical_in(suspect.metric, 0..suspect.first, |at, gpu| {
                    suspect.who.has(at, gpu)
                })
                .is_some(),
            cause: found.cause,
            others_wait_ratio: found.others_wait_ratio.map(|ratio| ratio.clamp(0.0, 1.0)),
            certainty: found.certainty,
            evidence,
        }
    }
}

/// A GPU or node that shows a sign.
struct Suspect {
    who: Lone,
    /// First window without a break.
    first: usize,
    metric: Metric,
}

/// Why a suspect is slow.
struct Found {
    cause: Cause,
    others_wait_ratio: Option<f64>,
    certainty: Certainty,
}

#[cfg(test)]
mod tests;
