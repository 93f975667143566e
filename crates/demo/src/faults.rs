//! The script of faults: the same faults each planned hour, each mended after a while.

use crate::cluster::{Cluster, Size};
use crate::pace::Pace;
use takt_model::UnixTime;
use takt_model::{EventKind, Labels};

/// Planned seconds after which the script begins again.
const PERIOD_SECONDS: i64 = 3600;

/// Kind of a scripted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A GPU falls off the bus (XID 79).
    GpuLost,
    /// An uncorrectable memory error of a GPU: a page is retired (XID 48 and 63).
    EccError,
    /// The NFS server does not answer a node.
    NfsHung,
    /// A node is gone: neither its exporter nor slurmd answers.
    NodeLost,
    /// A link falls from its speed to 1 Gbit/s.
    SlowLink,
}

/// A fault of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Index of the node.
    pub node: usize,
    /// Index of the GPU, for faults of a GPU.
    pub gpu: usize,
    /// Begin, in planned seconds after the start of the script.
    pub begins: i64,
    /// End, in planned seconds after the start of the script.
    pub ends: i64,
}

/// The script.
#[derive(Debug)]
pub struct Script {
    /// Start and speed of the script.
    pub pace: Pace,
    /// The faults, by begin.
    pub faults: Vec<Fault>,
    lines: Vec<ScriptLine>,
}

/// A line that a node's kernel logs each time the script reaches it.
#[derive(Debug)]
struct ScriptLine {
    node: usize,
    /// Planned seconds after the start of the script.
    offset: i64,
    text: String,
    kind: EventKind,
    labels: Labels,
}

/// A line that a node's kernel logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// Time of the line.
    pub at: UnixTime,
    /// The line.
    pub text: String,
    /// Kind of the event that the exporter recognises in it.
    pub kind: EventKind,
    /// Labels of the event.
    pub labels: Labels,
}

impl Script {
    /// Returns the script for a cluster.
    pub fn new(cluster: &Cluster, pace: Pace) -> Self {
        let named = |name: &str| cluster.node(name).unwrap_or(0);
        // The GPUs of alice's and frank's jobs of the tour fail.
        let [lost_gpu, ecc, nfs, lost, link] = match cluster.size {
            Size::Three => [0, 2, 1, 2, 1],
            Size::Thirty => ["g01", "g03", "l02", "l05", "l07"].map(named),
            Size::ThreeHundred => ["g001", "g003", "h020", "h042", "h077"].map(named),
        };

        let fault = |kind, node, begins, ends| Fault {
            kind,
            node,
            gpu: 0,
            begins,
            ends,
        };
        // In planned seconds, early enough that the tour shows each of them soon after the start.
        let faults = vec![
            fault(FaultKind::GpuLost, lost_gpu, 12, 1200),
            fault(FaultKind::EccError, ecc, 25, 2400),
            fault(FaultKind::NfsHung, nfs, 40, 640),
            fault(FaultKind::NodeLost, lost, 70, 490),
            fault(FaultKind::SlowLink, link, 95, 1500),
        ];

        let mut lines: Vec<ScriptLine> = faults
            .iter()
            .flat_map(|fault| script_lines(cluster, fault))
            .collect();
        lines.sort_by_key(|line| line.offset);
        Self {
            pace,
            faults,
            lines,
        }
    }

    /// Returns the fault of a kind.
    pub fn of(&self, kind: FaultKind) -> Fault {
        let found = self.faults.iter().find(|fault| fault.kind == kind);
        *found.expect("the script has a fault of each kind")
    }

    /// Returns the begin of the last repetition of a fault, if the fault lasts at `at`.
    fn lasts(&self, fault: &Fault, at: UnixTime) -> Option<UnixTime> {
        let planned = self.pace.planned(at);
        let since = planned - self.pace.began;
        // Euclidean, since before the start `since` is negative.
        let into = since.rem_euclid(PERIOD_SECONDS);
        let is_on = since >= 0 && (fault.begins..fault.ends).contains(&into);
        is_on.then(|| self.pace.clock(planned - into + fault.begins))
    }

    /// Returns the begin of a node's fault of this kind, if the fault lasts at `at`.
    pub fn on_node(&self, kind: FaultKind, node: usize, at: UnixTime) -> Option<UnixTime> {
        let fault = self.of(kind);
        (fault.node == node)
            .then(|| self.lasts(&fault, at))
            .flatten()
    }

    /// Returns the begin of a GPU's fault of this kind, if the fault lasts at `at`.
    pub fn on_gpu(
        &self,
        kind: FaultKind,
        node: usize,
        gpu: usize,
        at: UnixTime,
    ) -> Option<UnixTime> {
        (self.of(kind).gpu == gpu)
            .then(|| self.on_node(kind, node, at))
            .flatten()
    }

    /// Returns how often a fault has begun until `at`.
    pub fn times(&self, kind: FaultKind, node: usize, at: UnixTime) -> i64 {
        let fault = self.of(kind);
        let since = self.pace.planned(at) - self.pace.began;
        if fault.node != node || since < fault.begins {
            return 0;
        }
        (since - fault.begins) / PERIOD_SECONDS + 1
    }

    /// Returns the first time in which the lost node is lost: planned begin and end.
    pub fn first_node_loss(&self) -> (usize, UnixTime, UnixTime) {
        let fault = self.of(FaultKind::NodeLost);
        (
            fault.node,
            self.pace.began + fault.begins,
            self.pace.began + fault.ends,
        )
    }

    /// Returns the lines that a node's kernel logs in `(after, until]`, in order of time.
    pub fn kernel_lines(&self, node: usize, after: UnixTime, until: UnixTime) -> Vec<KernelLine> {
        let mut found = Vec::new();
        let after = self.pace.planned(after);
        let until = self.pace.planned(until);
        for line in self.lines.iter().filter(|line| line.node == node) {
            let first = self.pace.began + line.offset;
            // Repetitions until `after` are skipped by arithmetic: counting from the start would take longer each hour.
            let passed = (after - first).div_euclid(PERIOD_SECONDS) + 1;
            let mut at = first + PERIOD_SECONDS * passed.max(0);
            while at <= until {
                found.push(KernelLine {
                    at: self.pace.clock(at),
                    text: line.text.clone(),
                    kind: line.kind,
                    labels: line.labels.clone(),
                });
                at += PERIOD_SECONDS;
            }
        }
        // Two faults of one node may be due in another order than the script has them.
        found.sort_by_key(|line| line.at);
        found
    }
}

/// Returns the lines of a fault. The exporter's patterns recognise each of them.
fn script_lines(cluster: &Cluster, fault: &Fault) -> Vec<ScriptLine> {
    spoken(cluster, fault)
        .into_iter()
        .filter_map(|(offset, text)| {
            let (kind, mut labels) = takt_exporter::recognise(&text)?;

            let gpus = &cluster.nodes[fault.node].gpus;
            // NVML counts the GPU by its UUID, the kernel by its place on the bus.
            let gpu = labels
                .get("pci_bus_id")
                .and_then(|bus| gpus.iter().find(|gpu| gpu.bus_id == bus));
            if let Some(gpu) = gpu {
                labels.set("uuid", &gpu.uuid);
            }
            Some(ScriptLine {
                node: fault.node,
                offset,
                text,
                kind,
                labels,
            })
        })
        .collect()
}

/// Lines of the kernel log about a fault, with the seconds after the start of the script.
fn spoken(cluster: &Cluster, fault: &Fault) -> Vec<(i64, String)> {
    let Fault {
        kind,
        node,
        gpu,
        begins,
        ends,
    } = *fault;
    let node = &cluster.nodes[node];
    // The driver writes the address without the function, as in `PCI:0000:07:00`.
    let bus = node
        .gpus
        .get(gpu)
        .map_or("0000:07:00", |gpu| gpu.bus_id.trim_end_matches(".0"));

    let nas = cluster.nas;
    match kind {
        FaultKind::GpuLost => vec![(
            begins,
            format!(
                "NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off \
                 the bus."
            ),
        )],
        FaultKind::EccError => vec![
            (
                begins,
                format!(
                    "NVRM: Xid (PCI:{bus}): 48, pid=81723, name=python, DBE (double bit error) \
                     ECC Error"
                ),
            ),
            (
                begins + 1,
                format!(
                    "NVRM: Xid (PCI:{bus}): 63, pid='<unknown>', name=<unknown>, Row Remapper: \
                     New row marked for remapping, reset gpu to activate."
                ),
            ),
        ],
        FaultKind::NfsHung => vec![
            (
                begins,
                format!("nfs: server {nas} not responding, still trying"),
            ),
            (ends, format!("nfs: server {nas} OK")),
        ],
        // A node that is gone logs nothing.
        FaultKind::NodeLost => Vec::new(),
        FaultKind::SlowLink => vec![
            (
                begins,
                "ixgbe 0000:01:00.0 eth0: NIC Link is Down".to_owned(),
            ),
            (
                begins + 2,
                "ixgbe 0000:01:00.0 eth0: NIC Link is Up 1 Gbps, Flow Control: RX/TX".to_owned(),
            ),
        ],
    }
}

/// Kinds of events that the script causes, for the counters of the exporter.
pub const EVENT_KINDS: [EventKind; 5] = [
    EventKind::Xid,
    EventKind::NfsNotResponding,
    EventKind::NfsResponding,
    EventKind::LinkDown,
    EventKind::LinkUp,
];

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixTime = UnixTime(1_000_000);

    fn pace(speed: i64) -> Pace {
        Pace {
            began: START,
            speed,
        }
    }

    #[test]
    fn at_ten_times_the_speed_a_fault_comes_and_goes_ten_times_as_fast() {
        let cluster = Cluster::new(Size::Thirty);
        let script = Script::new(&cluster, pace(10));
        let node = cluster.node("g01").unwrap();
        let lost = |at| {
            let since = script.on_gpu(FaultKind::GpuLost, node, 0, START + at);
            since.map(|since| since - START)
        };
        // At 10 times the speed, 12 planned seconds take 2 seconds of the clock, and 3600 take 360.
        assert_eq!([lost(1), lost(2)], [None, Some(2)]);
        assert_eq!([lost(119), lost(120)], [Some(2), None]);
        assert_eq!(lost(400), Some(362));

        // Each second is asked for separately, as a stream does.
        let seconds = (0..720).map(|second| START + second);
        let xids: Vec<i64> = seconds
            .flat_map(|second| script.kernel_lines(node, second, second + 1))
            .map(|line| line.at - START)
            .collect();
        assert_eq!(xids, [2, 362]);
    }

    #[test]
    fn a_fault_lasts_and_comes_again_each_hour() {
        let cluster = Cluster::new(Size::Thirty);
        let script = Script::new(&cluster, pace(1));
        let node = cluster.node("g01").unwrap();
        let lost = |at| {
            let since = script.on_gpu(FaultKind::GpuLost, node, 0, START + at);
            since.map(|since| since - START)
        };

        assert_eq!(lost(11), None);
        assert_eq!(lost(12), Some(12));
        assert_eq!(lost(1200), None);
        assert_eq!(lost(3612), Some(3612));
        assert_eq!(lost(-3588), None, "nothing happens before the start");
        assert_eq!(script.on_gpu(FaultKind::GpuLost, node, 1, START + 12), None);
        let times = |at| script.times(FaultKind::GpuLost, node, START + at);
        assert_eq!(
            [times(0), times(12), times(3611), times(3612)],
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn each_line_is_logged_once_and_the_exporter_recognises_it() {
        for size in [Size::Three, Size::Thirty, Size::ThreeHundred] {
            let cluster = Cluster::new(size);
            let script = Script::new(&cluster, pace(1));
            let mut kinds = Vec::new();
            for node in 0..cluster.nodes.len() {
                // Read at once and second by second: a stream and the counter must agree.
                let all = script.kernel_lines(node, UnixTime(0), START + 7199);
                let steps = (-10..7199)
                    .map(|second| START + second)
                    .flat_map(|second| script.kernel_lines(node, second, second + 1));
                assert_eq!(all, steps.collect::<Vec<_>>(), "{node}");
                for line in all {
                    assert!(EVENT_KINDS.contains(&line.kind), "{line:?}");
                    if line.kind == EventKind::Xid {
                        let gpu = &cluster.nodes[node].gpus[0];
                        assert_eq!(line.labels.get("uuid"), Some(gpu.uuid.as_str()));
                    }
                    kinds.push(line.kind);
                }
            }
            // Seven lines in an hour, for two hours.
            assert_eq!(kinds.len(), 2 * 7);
        }
    }
}
