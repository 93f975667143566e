//! Queues before network links: what passed, was dropped, and waits.
//!
//! Source: netlink. A queue within another is left out: its packets are counted by the outer one.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::filter::{NameFilter, NamePattern};
use crate::netlink::{self, LinkNames};
use rustix::io::Errno;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `qdisc`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct QdiscOptions {
    /// Network links to include.
    #[arg(
        id = "qdisc-include",
        long = "collector.qdisc.device-include",
        alias = "collector.qdisk.device-include",
        value_name = "REGEXP",
        conflicts_with = "qdisc-exclude"
    )]
    pub device_include: Option<NamePattern>,
    /// Network links to leave out.
    #[arg(
        id = "qdisc-exclude",
        long = "collector.qdisc.device-exclude",
        alias = "collector.qdisk.device-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub device_exclude: NamePattern,
    /// A directory whose results.json is read instead of asking the kernel.
    #[arg(long = "collector.qdisc.fixtures", value_name = "PATH", hide = true)]
    pub fixtures: Option<PathBuf>,
}

struct Qdisc {
    filter: NameFilter,
    fixtures: Option<PathBuf>,
}

const QUEUE: &[&str] = &["device", "kind"];
const METRICS: &[Metric] = &[
    Metric::counter("node_qdisc_bytes_total", "Number of bytes sent.", QUEUE),
    Metric::counter("node_qdisc_packets_total", "Number of packets sent.", QUEUE),
    Metric::counter(
        "node_qdisc_drops_total",
        "Number of packets dropped.",
        QUEUE,
    ),
    Metric::counter(
        "node_qdisc_requeues_total",
        "Number of packets dequeued, not transmitted, and requeued.",
        QUEUE,
    ),
    Metric::counter(
        "node_qdisc_overlimits_total",
        "Number of overlimit packets.",
        QUEUE,
    ),
    Metric::gauge(
        "node_qdisc_current_queue_length",
        "Number of packets currently in queue to be sent.",
        QUEUE,
    ),
    Metric::gauge(
        "node_qdisc_backlog",
        "Number of bytes currently in queue to be sent.",
        QUEUE,
    ),
];

/// A queue. The names are those of node_exporter's fixtures.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Queue {
    iface_name: String,
    parent: u32,
    kind: String,
    bytes: u64,
    packets: u32,
    drops: u32,
    requeues: u32,
    overlimits: u32,
    qlen: u32,
    backlog: u32,
}

const GET_QDISC: u16 = 38;
/// `struct tcmsg`: family, the link's number at 4, the queue's at 8, the outer one's at 12,
/// information.
const HEAD_BYTES: usize = 20;
const KIND: u16 = 1;
const STATS: u16 = 3;
const STATS2: u16 = 7;
const BASIC: u16 = 1;
const QUEUE_STATS: u16 = 3;

pub(crate) fn new(options: &QdiscOptions) -> Box<dyn Collector> {
    let QdiscOptions {
        device_include,
        device_exclude,
        fixtures,
    } = options.clone();
    let filter = NameFilter::new(device_include, device_exclude);
    Box::new(Qdisc { filter, fixtures })
}

impl Collector for Qdisc {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let queues = match &self.fixtures {
            Some(directory) => recorded(&directory.join("results.json"))?,
            None => asked().map_err(|error| CollectError::read("netlink".as_ref(), error))?,
        };
        for queue in queues {
            if queue.parent != 0 || !self.filter.passes(&queue.iface_name) {
                continue;
            }
            let numbers = [
                queue.packets,
                queue.drops,
                queue.requeues,
                queue.overlimits,
                queue.qlen,
                queue.backlog,
            ];
            let numbers = numbers.map(f64::from);

            // In the order of `METRICS`.
            let values = [queue.bytes as f64].into_iter().chain(numbers);
            for (metric, value) in METRICS.iter().zip(values) {
                out.push(metric, &[&queue.iface_name, &queue.kind], value);
            }
        }
        Ok(())
    }
}

fn recorded(file: &Path) -> Result<Vec<Queue>, CollectError> {
    let text = std::fs::read(file).map_err(|error| CollectError::read(file, error))?;
    serde_json::from_slice(&text).map_err(|error| CollectError::Parse {
        path: file.to_owned(),
        line: error.line(),
        expected: "a list of queues",
    })
}

fn asked() -> Result<Vec<Queue>, Errno> {
    let names = LinkNames::new()?;
    let mut queues = Vec::new();
    netlink::list(None, GET_QDISC, &[0; HEAD_BYTES], |message| {
        if let Some((link, mut queue)) = parse(message)
            && let Some(name) = names.of(link)
        {
            queue.iface_name = name;
            queues.push(queue);
        }
    })?;
    Ok(queues)
}

/// The link's number, and its queue.
fn parse(message: &[u8]) -> Option<(u32, Queue)> {
    const ROOT: u32 = u32::MAX;
    let parent = match netlink::word(message, 12)? {
        // The kernel's `TC_H_ROOT`: no other queue is around this one.
        ROOT => 0,
        parent => parent,
    };
    let mut queue = Queue {
        parent,
        ..Queue::default()
    };

    for (kind, value) in netlink::attributes(message.get(HEAD_BYTES..)?) {
        let word = |at| netlink::word(value, at).unwrap_or_default();
        match kind {
            KIND => {
                let name = String::from_utf8_lossy(value);
                name.trim_end_matches('\0').clone_into(&mut queue.kind);
            }
            // `struct tc_stats`: the bytes have 64 bits, and all other fields 32.
            STATS => {
                queue.bytes = bytes(value);
                (queue.packets, queue.drops, queue.overlimits) = (word(8), word(12), word(16));
                (queue.qlen, queue.backlog) = (word(28), word(32));
            }
            STATS2 => {
                for (kind, value) in netlink::attributes(value) {
                    push_newer(&mut queue, kind, value);
                }
            }
            _ => {}
        }
    }

    Some((netlink::word(message, 4)?, queue))
}

fn push_newer(queue: &mut Queue, kind: u16, value: &[u8]) {
    let word = |at| netlink::word(value, at).unwrap_or_default();

    // `struct gnet_stats_basic` and `struct gnet_stats_queue`.
    match kind {
        BASIC => (queue.bytes, queue.packets) = (bytes(value), word(8)),
        QUEUE_STATS => {
            (queue.qlen, queue.backlog, queue.drops) = (word(0), word(4), word(8));
            (queue.requeues, queue.overlimits) = (word(12), word(16));
        }
        _ => {}
    }
}

fn bytes(value: &[u8]) -> u64 {
    let count = value.first_chunk();
    count.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_queue_is_read_as_the_kernel_lays_it_out() {
        let words = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            // Attributes are padded to four bytes.
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let stats = [
            attribute(BASIC, &words(&[9, 0, 8])),
            attribute(QUEUE_STATS, &words(&[1, 2, 3, 4, 5])),
        ]
        .concat();
        let message = [
            // `struct tcmsg` of a queue on link 7 that lies within no other.
            words(&[0, 7, 0, u32::MAX, 2]),
            attribute(KIND, b"fq_codel\0"),
            attribute(STATS2, &stats),
        ]
        .concat();
        let queue = Queue {
            kind: "fq_codel".into(),
            bytes: 9,
            packets: 8,
            drops: 3,
            requeues: 4,
            overlimits: 5,
            qlen: 1,
            backlog: 2,
            ..Queue::default()
        };
        assert_eq!(parse(&message), Some((7, queue)));
        assert_eq!(parse(&message[..10]), None);
    }

    proptest! {
        #[test]
        fn any_message_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut queue = Queue::default();
            [BASIC, QUEUE_STATS].into_iter().for_each(|kind| push_newer(&mut queue, kind, &bytes));
        }
    }
}
