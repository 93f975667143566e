//! Decides whether a report is a new event.
//!
//! The kernel log and NVML report the same XIDs; a GPU that fell off the bus is reported with an
//! XID, without one, and again at each access; a broken link or a failing DIMM can fill the log.
//! Pure: times are arguments.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use takt_model::{EventKind, Labels, Timestamp};

/// The source of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventSource {
    #[default]
    Kernel,
    Nvml,
    Bmc,
}

/// The decision about a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventVerdict {
    /// A new event: counted and sent.
    News,
    /// Reported before, by the other source or by an earlier line.
    Known,
    /// Counted but not sent by itself: one of too many of its stream.
    Flood,
}

/// Events that are limited together: those of one kind, at one device, with one code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventStream {
    kind: EventKind,
    labels: Labels,
}

/// Time within which the kernel and NVML report the same XID.
const TWINS_WITHIN: Duration = Duration::from_secs(5);
/// Time for which more lines about a GPU that fell off the bus are no new events.
const LOST_FOR: Duration = Duration::from_secs(300);
/// Events of one stream that are sent at once; then one a second.
const BURST: f64 = 100.0;

/// Streams whose limits are known. Further ones share a limit with all of their kind.
const MAX_STREAMS: usize = 1024;

/// Labels that name the device and the code. Users cannot choose their values as they like.
const STREAM_LABELS: [&str; 12] = [
    "controller",
    "device",
    "jobid",
    "pci_bus_id",
    "scope",
    "sensor",
    "server",
    "severity",
    "sluid",
    "sxid",
    "uid",
    "xid",
];

/// XIDs of faults of the GPU, its links or its driver that need an operator: they are never limited.
const FATAL_XIDS: [u32; 32] = [
    46, 48, 54, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148,
    149, 150, 151, 155, 156, 158, 167, 169, 171, 172, 173,
];

/// XIDs that can wait for the report of the other source.
const MAX_SINGLE: usize = 1024;

/// The XID "GPU has fallen off the bus".
const OFF_THE_BUS: &str = "79";

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// XIDs that only one source has reported so far.
    single: VecDeque<XidReport>,
    /// When a GPU fell off the bus, by bus id.
    lost: BTreeMap<String, Timestamp>,
    /// Events of each stream that may still be sent, and the time of that count.
    allowance: BTreeMap<EventStream, (f64, Timestamp)>,
}

#[derive(Debug)]
struct XidReport {
    source: EventSource,
    gpu: String,
    xid: String,
    at: Timestamp,
}

impl Judge {
    pub fn verdict(
        &mut self,
        source: EventSource,
        kind: EventKind,
        labels: &Labels,
        at: Timestamp,
    ) -> EventVerdict {
        let gpu = labels.get("pci_bus_id").unwrap_or_default();

        let is_known = match (kind, labels.get("xid")) {
            (EventKind::Xid, Some(xid)) => {
                // A later line about the same loss is then no new event.
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

        if is_known {
            EventVerdict::Known
        } else if is_fatal(labels) || self.allows(&EventStream::of(kind, labels), at) {
            EventVerdict::News
        } else {
            EventVerdict::Flood
        }
    }

    /// Whether the other source has reported the same XID; each report matches one of the other's.
    fn has_twin(&mut self, source: EventSource, gpu: &str, xid: &str, at: Timestamp) -> bool {
        self.single
            .retain(|report| apart(report.at, at) <= TWINS_WITHIN);

        let is_twin =
            |report: &XidReport| report.source != source && report.gpu == gpu && report.xid == xid;
        match self.single.iter().position(is_twin) {
            Some(place) => self.single.remove(place).is_some(),
            None => {
                // The oldest report is the least likely to find its twin.
                if self.single.len() >= MAX_SINGLE {
                    self.single.pop_front();
                }
                self.single.push_back(XidReport {
                    source,
                    gpu: gpu.to_owned(),
                    xid: xid.to_owned(),
                    at,
                });
                false
            }
        }
    }

    /// Whether one more event of a stream may be sent at `at`; then it counts as sent.
    pub fn allows(&mut self, stream: &EventStream, at: Timestamp) -> bool {
        let stream = self.limited_as(stream, at);
        let (left, since) = self.allowance.entry(stream).or_insert((BURST, at));
        *left = refilled(*left, *since, at);

        // Also where the clock was set back: it may take years to catch up.
        *since = at;

        let allows = *left >= 1.0;
        if allows {
            *left -= 1.0;
        }
        allows
    }

    /// The stream whose limit counts: its own, or that of its kind where too many are known.
    fn limited_as(&mut self, stream: &EventStream, at: Timestamp) -> EventStream {
        if self.allowance.contains_key(stream) {
            return stream.clone();
        }

        // Streams that may send their whole burst again need no memory.
        if self.allowance.len() >= MAX_STREAMS {
            let is_used = |left: f64, since| refilled(left, since, at) < BURST;
            self.allowance
                .retain(|_, (left, since)| is_used(*left, *since));
        }

        if self.allowance.len() < MAX_STREAMS {
            return stream.clone();
        }

        EventStream {
            kind: stream.kind,
            labels: Labels::new(),
        }
    }
}

impl EventStream {
    pub fn of(kind: EventKind, labels: &Labels) -> Self {
        let labels = labels.iter();
        let named = labels.filter(|(name, _)| STREAM_LABELS.contains(name));
        Self {
            kind,
            labels: named.collect(),
        }
    }
}

fn is_fatal(labels: &Labels) -> bool {
    let xid = labels.get("xid").and_then(|xid| xid.parse().ok());
    xid.is_some_and(|xid| FATAL_XIDS.contains(&xid))
}

/// The events that may be sent at `at`, if `left` were at `since`.
fn refilled(left: f64, since: Timestamp, at: Timestamp) -> f64 {
    if at <= since {
        return left;
    }
    (left + apart(since, at).as_secs_f64()).min(BURST)
}

fn apart(one: Timestamp, other: Timestamp) -> Duration {
    Duration::from_millis(one.0.abs_diff(other.0))
}

#[cfg(test)]
mod tests {
    use super::EventSource::{Kernel, Nvml};
    use super::EventVerdict::{Flood, Known, News};
    use super::*;

    fn xid(judge: &mut Judge, source: EventSource, xid: &str, seconds: i64) -> EventVerdict {
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

    fn lost(judge: &mut Judge, gpu: &str, seconds: i64) -> EventVerdict {
        let labels = [("pci_bus_id", gpu)].into_iter().collect();
        judge.verdict(
            Kernel,
            EventKind::GpuLost,
            &labels,
            Timestamp::from_seconds(seconds),
        )
    }

    #[test]
    fn an_xid_from_both_sources_counts_once_and_a_repeated_one_twice() {
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
    fn a_flood_of_one_gpu_and_code_hides_no_other_gpu_or_code() {
        let judge = &mut Judge::default();
        let mut verdict = |bus_id: &str, xid: &str| {
            let labels = [("pci_bus_id", bus_id), ("xid", xid), ("pid", "7")];
            let labels = labels.into_iter().collect();
            judge.verdict(Kernel, EventKind::Xid, &labels, Timestamp(0))
        };
        let sent = (0..150).filter(|_| verdict("0000:06:00.0", "31") == News);
        assert_eq!(sent.count(), 100);
        assert_eq!(verdict("0000:07:00.0", "31"), News);
        assert_eq!(verdict("0000:06:00.0", "13"), News);

        // XIDs 48 and 79 are fatal, so no limit applies to them.
        assert!((0..500).all(|_| verdict("0000:06:00.0", "48") == News));
        assert!((0..500).all(|_| verdict("0000:07:00.0", "79") == News));
    }

    #[test]
    fn an_oom_flood_of_one_job_hides_no_other_job_and_not_the_node() {
        let judge = &mut Judge::default();
        let mut verdict = |scope: &str, jobid: &str, process: &str| {
            let labels = [("scope", scope), ("jobid", jobid), ("process", process)];
            let labels = labels.into_iter().collect();
            judge.verdict(Kernel, EventKind::OomKill, &labels, Timestamp(0))
        };

        // A user can give each process another name, so the name is no part of the stream.
        let names: Vec<String> = (0..150).map(|n| format!("bomb{n}")).collect();
        let sent = names
            .iter()
            .filter(|name| verdict("cgroup", "1", name) == News);
        assert_eq!(sent.count(), 100);
        assert_eq!(verdict("cgroup", "2", "python"), News);
        assert_eq!(verdict("node", "", "python"), News);
    }

    #[test]
    fn many_streams_take_bounded_memory_and_keep_a_limit() {
        let judge = &mut Judge::default();
        let mut verdict = |xid: usize, at| {
            let labels = [("xid", (1_000 + xid).to_string())].into_iter().collect();
            judge.verdict(Kernel, EventKind::Xid, &labels, Timestamp(at))
        };

        // Each stream that is remembered sends its event, and all others share one burst.
        let sent = (0..5_000).filter(|xid| verdict(*xid, 0) == News);
        assert_eq!(sent.count(), MAX_STREAMS + 100);
        assert!((0..500).all(|xid| verdict(9_000 + xid, 5_000) == News));
        assert!(judge.allowance.len() <= MAX_STREAMS + EventKind::ALL.len());
    }

    /// `critical` in the table of the alerts is what pages somebody.
    #[test]
    fn no_xid_that_pages_somebody_is_limited() {
        let table = include_str!("../../../alerts/src/events/xid.csv");
        let mut critical = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<_> = line.split(';').map(str::trim).collect();
            let (first, last) = fields[0].split_once('-').unwrap_or((fields[0], fields[0]));
            if fields[2] == "critical" {
                critical.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
            }
        }
        assert_eq!(critical, FATAL_XIDS);
    }

    #[test]
    fn a_clock_change_suppresses_no_event() {
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
