//! Whether what was told is news.
//!
//! The kernel log and NVML tell of the same XIDs; a GPU that fell off the bus is told of with an XID, without one, and then
//! again whenever somebody touches it; a broken link or a failing DIMM can fill the log. Pure: the instants are arguments.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use takt_model::{EventKind, Labels, Timestamp};

/// Who told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    #[default]
    Kernel,
    Nvml,
    Bmc,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Counted and told.
    News,
    /// Known already, from the other source or from an earlier line.
    Known,
    /// Counted, but there are so many of the kind that telling each would drown the others.
    Flood,
}

/// The kernel and NVML tell of the same XID within this time.
const TWINS_WITHIN: Duration = Duration::from_secs(5);
/// A GPU that fell off the bus does not come back by itself; for so long more lines about it are no news.
const LOST_FOR: Duration = Duration::from_secs(300);
/// So many events of one kind are told at once, and then one a second.
const BURST: f64 = 100.0;

/// So many XIDs can wait for the other source.
const MAX_SINGLE: usize = 1024;

/// "GPU has fallen off the bus".
const OFF_THE_BUS: &str = "79";

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// XIDs that one source has told and the other not yet.
    single: VecDeque<Told>,
    /// When a GPU fell off the bus, by bus id.
    lost: BTreeMap<String, Timestamp>,
    /// How many more events of the kind may be told, as of when.
    allowance: BTreeMap<EventKind, (f64, Timestamp)>,
}

#[derive(Debug)]
struct Told {
    source: Source,
    gpu: String,
    xid: String,
    at: Timestamp,
}

impl Judge {
    pub fn verdict(
        &mut self,
        source: Source,
        kind: EventKind,
        labels: &Labels,
        at: Timestamp,
    ) -> Verdict {
        let gpu = labels.get("pci_bus_id").unwrap_or_default();
        let is_known = match (kind, labels.get("xid")) {
            (EventKind::Xid, Some(xid)) => {
                if xid == OFF_THE_BUS {
                    self.lost.insert(gpu.to_owned(), at);
                }
                self.has_twin(source, gpu, xid, at)
            }
            (EventKind::GpuLost, _) => {
                let before = self.lost.insert(gpu.to_owned(), at);
                before.is_some_and(|before| apart(before, at) <= LOST_FOR)
            }
            _ => false,
        };
        match is_known {
            true => Verdict::Known,
            false if self.allows(kind, at) => Verdict::News,
            false => Verdict::Flood,
        }
    }

    /// Each XID of one source stands for one of the other's.
    fn has_twin(&mut self, source: Source, gpu: &str, xid: &str, at: Timestamp) -> bool {
        self.single
            .retain(|told| apart(told.at, at) <= TWINS_WITHIN);
        let is_twin = |told: &Told| told.source != source && told.gpu == gpu && told.xid == xid;
        match self.single.iter().position(is_twin) {
            Some(place) => self.single.remove(place).is_some(),
            None => {
                if self.single.len() >= MAX_SINGLE {
                    self.single.pop_front();
                }
                self.single.push_back(Told {
                    source,
                    gpu: gpu.to_owned(),
                    xid: xid.to_owned(),
                    at,
                });
                false
            }
        }
    }

    fn allows(&mut self, kind: EventKind, at: Timestamp) -> bool {
        let (left, since) = self.allowance.entry(kind).or_insert((BURST, at));
        if at > *since {
            *left = (*left + apart(*since, at).as_secs_f64()).min(BURST);
        }
        // Also where the clock was set back: it may take years to come to where it was.
        *since = at;
        let allows = *left >= 1.0;
        if allows {
            *left -= 1.0;
        }
        allows
    }
}

fn apart(one: Timestamp, other: Timestamp) -> Duration {
    Duration::from_millis(one.0.abs_diff(other.0))
}

#[cfg(test)]
mod tests {
    use super::Source::{Kernel, Nvml};
    use super::Verdict::{Flood, Known, News};
    use super::*;

    fn xid(judge: &mut Judge, source: Source, xid: &str, seconds: i64) -> Verdict {
        let labels = [("pci_bus_id", "0000:06:00.0"), ("xid", xid)]
            .into_iter()
            .collect();
        judge.verdict(
            source,
            EventKind::Xid,
            &labels,
            Timestamp::from_seconds(seconds),
        )
    }

    fn lost(judge: &mut Judge, gpu: &str, seconds: i64) -> Verdict {
        let labels = [("pci_bus_id", gpu)].into_iter().collect();
        judge.verdict(
            Kernel,
            EventKind::GpuLost,
            &labels,
            Timestamp::from_seconds(seconds),
        )
    }

    #[test]
    fn an_xid_told_by_both_counts_once_and_one_told_twice_by_one_counts_twice() {
        let judge = &mut Judge::default();
        assert_eq!(xid(judge, Kernel, "31", 100), News);
        assert_eq!(xid(judge, Kernel, "31", 101), News);
        assert_eq!(xid(judge, Nvml, "31", 101), Known);
        assert_eq!(xid(judge, Nvml, "31", 102), Known);
        assert_eq!(xid(judge, Nvml, "31", 102), News, "the third");
        assert_eq!(
            xid(judge, Kernel, "31", 103),
            Known,
            "the kernel tells late"
        );
        assert_eq!(xid(judge, Nvml, "31", 104), News, "by NVML only");
        assert_eq!(
            xid(judge, Kernel, "31", 110),
            News,
            "too late to be the same"
        );
        assert_eq!(xid(judge, Nvml, "43", 110), News, "another XID");
    }

    #[test]
    fn a_gpu_is_lost_once() {
        let judge = &mut Judge::default();
        assert_eq!(xid(judge, Kernel, "79", 100), News);
        assert_eq!(
            lost(judge, "0000:06:00.0", 101),
            Known,
            "the XID has told it"
        );
        assert_eq!(lost(judge, "0000:07:00.0", 101), News);
        assert_eq!(lost(judge, "0000:07:00.0", 102), Known);
        assert_eq!(
            lost(judge, "0000:07:00.0", 1000),
            News,
            "it was there in between"
        );
    }

    #[test]
    fn a_flood_is_cut_and_drowns_no_other_kind() {
        let judge = &mut Judge::default();
        let mut corrected = |millis| {
            judge.verdict(
                Kernel,
                EventKind::PcieError,
                &Labels::new(),
                Timestamp(millis),
            )
        };
        let told = (0..1000).filter(|_| corrected(0) == News).count();
        assert_eq!(told, 100);
        assert_eq!(corrected(900), Flood);
        assert_eq!(corrected(1100), News, "one a second");
        assert_eq!(corrected(1200), Flood);
        assert_eq!(xid(judge, Kernel, "79", 1), News);
    }

    #[test]
    fn a_clock_that_is_set_silences_nothing() {
        let judge = &mut Judge::default();
        let mut told = |seconds| {
            judge.verdict(
                Kernel,
                EventKind::OomKill,
                &Labels::new(),
                Timestamp::from_seconds(seconds),
            )
        };
        let year = 365 * 86_400;
        assert!((0..100).all(|_| told(year) == News));
        assert_eq!(told(year), Flood);
        // A year back, and on from there.
        assert_eq!(told(0), Flood);
        assert!((1..200).all(|second| told(second) == News), "one a second");
        assert!(
            (0..50).all(|second| told(5 * year + second) == News),
            "far ahead"
        );
    }
}
