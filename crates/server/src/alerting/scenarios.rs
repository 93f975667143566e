//! The shipped rules and routes over made-up clusters, second by second through the real engine.
//! Compares the sent messages.

use super::{instant, outside, pack};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;
use takt_alerts::Engine;
use takt_alerts::config::AlertsConfig;
use takt_alerts::engine::Server;
use takt_alerts::events::xid::XidTable;
use takt_alerts::group::Defaults;
use takt_alerts::message::Status;
use takt_alerts::outbox::Outcome;
use takt_alerts::ports::{Query, QueryError, Sample, SampleSink, StoreError};
use takt_alerts::routing::Settings;
use takt_alerts::routing::config::Config as Routing;
use takt_alerts::routing::dedup::Reason;
use takt_alerts::routing::matcher::{Matchers, parse_matchers};
use takt_model::{Event, EventKind, Labels, METRIC_NAME, Timestamp};
use takt_promql::Memory;

/// Seconds between two scrapes, and between two rows of the server's own series.
const SCRAPE: i64 = 15;

/// One node of the made-up cluster.
#[derive(Clone, Copy)]
struct Node {
    /// Whether its exporter answers.
    exporter: bool,
    /// Whether its kernel answers TCP.
    machine: bool,
    /// Its state in Slurm.
    slurm: &'static str,
}

const WELL: Node = Node {
    exporter: true,
    machine: true,
    slurm: "IDLE",
};

/// A server with its samples and sent messages.
struct Lab {
    engine: Engine,
    samples: Samples,
    nodes: BTreeMap<String, Node>,
    /// Carrier changes of each node that was unplugged.
    carrier_changes: BTreeMap<String, f64>,
    /// Series of one node or GPU. Each scrape writes them while the node's exporter answers.
    more: Vec<(Labels, f64)>,
    /// Whether slurmctld answers.
    controller: bool,
    now: i64,
    sent: Vec<(i64, String)>,
}

#[derive(Default)]
struct Samples(RefCell<Memory>, RefCell<BTreeSet<Labels>>);

impl Query for Samples {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        instant(&*self.0.borrow(), expr, at)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        outside::check(expr)
    }
}

impl SampleSink for Samples {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        let mut memory = self.0.borrow_mut();
        for sample in samples {
            memory.add(sample.labels.clone(), [(sample.at, sample.value)]);
        }
        Ok(())
    }
}

impl Samples {
    /// Writes a row. Series of the previous row that this row lacks end.
    fn row(&self, row: Vec<(Labels, f64)>, at: Timestamp) {
        let mut memory = self.0.borrow_mut();
        let labels: BTreeSet<Labels> = row.iter().map(|(labels, _)| labels.clone()).collect();

        let before = self.1.replace(labels);
        for (labels, value) in row {
            memory.add(labels, [(at, Some(value))]);
        }
        for gone in before.difference(&self.1.borrow()) {
            memory.add(gone.clone(), [(at, None)]);
        }
    }
}

fn labels(metric: &str, pairs: &[(&str, &str)]) -> Labels {
    let mut labels: Labels = pairs.iter().copied().collect();
    labels.set(METRIC_NAME, metric);
    labels.set("cluster", "lab");
    labels
}

impl Lab {
    fn of(nodes: usize) -> Self {
        let rules = pack::load(true, &[], &BTreeMap::new()).unwrap();
        let short = AlertsConfig {
            webhook_url: Some("http://127.0.0.1:1/hook".to_owned()),
            ..AlertsConfig::default()
        };
        let routing = Routing::read("short", &short.in_long_form(pack::ROUTES, true)).unwrap();
        let pages = Matchers(parse_matchers("severity=critical").unwrap());

        let server = Server {
            external_labels: [("cluster", "lab")].into_iter().collect(),
            defaults: Defaults {
                interval: Duration::from_secs(15),
                query_offset: Duration::ZERO,
            },
            settings: Settings {
                external_url: "http://takt".to_owned(),
                timezone: None,
                pages: Some(pages),
            },
            posted_max: 0,
        };
        let xids = XidTable::shipped().clone();
        Self {
            engine: Engine::new(server, &rules.files, &rules.events, xids, routing),
            samples: Samples::default(),
            nodes: (1..=nodes).map(|n| (format!("g{n:03}"), WELL)).collect(),
            carrier_changes: BTreeMap::new(),
            more: Vec::new(),
            controller: true,
            now: 1_000_000,
            sent: Vec::new(),
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_seconds(self.now)
    }

    fn set(&mut self, numbers: RangeInclusive<usize>, node: Node) {
        for number in numbers {
            let name = format!("g{number:03}");
            let before = self.nodes.insert(name.clone(), node);
            // The carrier of a link changes when it is unplugged and when it is plugged in.
            if before.is_some_and(|before| before.machine != node.machine) {
                *self.carrier_changes.entry(name).or_default() += 1.0;
            }
        }
    }

    fn scrape(&self) {
        let mut row = Vec::new();
        let mut states: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, node) in &self.nodes {
            let instance = format!("{name}:9855");
            let own = [
                ("node", name.as_str()),
                ("job", "takt"),
                ("instance", &instance),
            ];
            row.push((labels("up", &own), f64::from(u8::from(node.exporter))));
            // A node without an answer has no series but `up`.
            if node.exporter {
                row.push((labels("node_boot_time_seconds", &own), 1.0));
                let changes = self.carrier_changes.get(name).copied().unwrap_or_default();
                let mut carrier = labels("node_network_carrier_changes_total", &own);
                carrier.set("device", "eth0");
                row.push((carrier, changes));
            } else if node.machine {
                row.push((labels("takt_scrape_host_answers", &own), 1.0));
            }
            *states.entry(node.slurm).or_default() += 1.0;

            let of_slurm = [("node", name.as_str()), ("job", "takt-server")];
            if node.slurm == "IDLE" {
                row.push((labels("takt_slurm_node_responding", &of_slurm), 1.0));
            } else {
                let mut series = labels("takt_slurm_node_unavailable", &of_slurm);

                let is_drained = node.slurm.contains("DRAIN");
                series.set("cause", if is_drained { "drained" } else { "down" });
                series.set("state", node.slurm);
                series.set("reason", "Not responding");
                row.push((series, 1.0));
            }
        }

        let own = [("job", "takt-server"), ("instance", "head:9856")];
        row.push((labels("takt_store_disk_size_bytes", &own), 1e12));
        let mut daemon = labels("takt_slurm_up", &own);
        daemon.set("daemon", "slurmctld");
        row.push((daemon, f64::from(u8::from(self.controller))));
        for (state, nodes) in states {
            row.push((labels("takt_slurm_nodes", &[("state", state)]), nodes));
        }
        row.extend(self.more.iter().cloned());
        self.samples.row(row, self.at());
    }

    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now += 1;
            if self.now % SCRAPE == 0 {
                self.scrape();
            }
            let now = self.at();
            // As in the server: an exporter that is down keeps its alerts.
            let down = |at, since| outside::exporter_states(&*self.samples.0.borrow(), at, since);
            let (_, report) = self
                .engine
                .evaluate(&self.samples, &self.samples, &down, now);
            assert!(report.failures.is_empty(), "{:?}", report.failures);
            self.engine.flush(&self.samples, now);

            for row in self.engine.send_due(now).0 {
                let texts = row
                    .message
                    .alerts
                    .iter()
                    .map(|alert| {
                        let label = |name| alert.labels.get(name).unwrap_or_default();
                        let word = match alert.status {
                            Status::Firing if row.message.reason == Reason::Corrected => {
                                "CORRECTED"
                            }
                            Status::Firing => "FIRING",
                            Status::Resolved => "RESOLVED",
                        };

                        let place = label("uuid");
                        let place = if place.is_empty() {
                            label("node")
                        } else {
                            place
                        };
                        format!("{word} {} {place}", label("alertname"))
                            .trim()
                            .to_owned()
                    })
                    .collect::<Vec<_>>()
                    .join(", ");

                self.sent.push((self.now, texts));
                // Each message is taken at once, so that no scenario waits for a channel.
                self.engine
                    .answered(row.id, &Outcome::Sent(None), &|_| None, now);
            }
        }
    }

    fn texts(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, text)| text.as_str()).collect()
    }
}

const UNPLUGGED: Node = Node {
    exporter: false,
    machine: false,
    slurm: "IDLE",
};

const LOST: Node = Node {
    slurm: "DOWN+NOT_RESPONDING",
    ..UNPLUGGED
};

/// The node answers again, but Slurm has not noticed yet.
const BACK: Node = Node {
    slurm: "DOWN+NOT_RESPONDING",
    ..WELL
};

/// Takes nodes off the network for 3.6 minutes. Slurm notices late, both ways.
fn unplug(lab: &mut Lab, numbers: RangeInclusive<usize>) -> (i64, i64) {
    // Four minutes of normal operation first, as rules look back.
    lab.run(240);
    let lost_at = lab.now;
    lab.set(numbers.clone(), UNPLUGGED);
    lab.run(170);
    lab.set(numbers.clone(), LOST);
    lab.run(46);
    let back_at = lab.now;
    lab.set(numbers.clone(), BACK);
    lab.run(200);
    lab.set(numbers, WELL);
    lab.run(600);
    (lost_at, back_at)
}

#[test]
fn one_node_unplugged_is_one_page_one_correction_and_one_end_at_3_and_at_300_nodes() {
    for nodes in [3, 300] {
        let mut lab = Lab::of(nodes);

        let (lost_at, back_at) = unplug(&mut lab, 2..=2);
        assert_eq!(
            lab.texts(),
            // Once Slurm cannot reach it either, there is something else to do.
            [
                "FIRING NodeDown g002",
                "CORRECTED NodeDown g002",
                "RESOLVED NodeDown g002"
            ],
            "{nodes} nodes: {:?}",
            lab.sent
        );
        // Two minutes from the loss, and half a minute from the return.
        let waited = [lab.sent[0].0 - lost_at, lab.sent[2].0 - back_at];
        assert!(waited[0] <= 125 && waited[1] <= 35, "{waited:?}");
    }
}

/// The page about slurmctld ends with the first row after a restart that sees it, and samples from before begin none.
#[test]
fn the_servers_own_alerts_end_and_do_not_begin_by_samples_from_before_a_restart() {
    let mut lab = Lab::of(3);
    lab.run(240);
    lab.controller = false;
    lab.run(120);

    // Takt is stopped for a while, and slurmctld comes back meanwhile. A gap is as a start to the engine.
    lab.now += 90;
    lab.controller = true;
    let back_at = lab.now;
    lab.run(600);
    assert_eq!(
        lab.texts(),
        ["FIRING SlurmControllerDown", "RESOLVED SlurmControllerDown"],
        "{:?}",
        lab.sent
    );
    let waited = lab.sent[1].0 - back_at;
    assert!(waited <= 2 * SCRAPE, "{waited}");
}

#[test]
fn a_drained_node_is_one_message_while_its_jobs_end() {
    let mut lab = Lab::of(50);
    lab.run(240);
    // The states that Slurm shows while the last jobs of a drained node end.
    for slurm in ["ALLOCATED+DRAIN", "MIXED+DRAIN", "IDLE+DRAIN", "DOWN+DRAIN"] {
        lab.set(7..=7, Node { slurm, ..WELL });
        lab.run(400);
    }
    lab.set(7..=7, WELL);
    lab.run(900);
    assert_eq!(
        lab.texts(),
        [
            "FIRING SlurmNodeDrained g007",
            "RESOLVED SlurmNodeDrained g007"
        ],
        "{:?}",
        lab.sent
    );
}

#[test]
fn a_switch_that_fails_is_one_page_and_one_end() {
    let mut lab = Lab::of(300);
    // Forty nodes at once, on one switch.
    unplug(&mut lab, 41..=80);
    assert_eq!(
        lab.texts(),
        ["FIRING ManyExportersDown", "RESOLVED ManyExportersDown"],
        "{:?}",
        lab.sent
    );
}

#[test]
fn a_hung_exporter_is_no_dead_machine_and_its_recovery_is_quiet() {
    let mut lab = Lab::of(3);
    lab.run(240);

    let hung = Node {
        exporter: false,
        ..WELL
    };
    lab.set(1..=1, hung);
    lab.run(600);
    let back_at = lab.now;
    lab.set(1..=1, WELL);
    lab.run(600);
    assert_eq!(
        lab.texts(),
        ["FIRING ExporterDown g001", "RESOLVED ExporterDown g001"],
        "{:?}",
        lab.sent
    );
    assert!(lab.sent[1].0 >= back_at);
}

/// The first client's kernel line must not be a message of its own.
#[test]
fn a_silent_file_server_is_one_page_and_one_end() {
    let mut lab = Lab::of(3);

    let server = |responds: f64| {
        let own = [("node", "g001"), ("job", "takt"), ("server", "nas")];
        vec![(labels("takt_nfs_server_responding", &own), responds)]
    };
    lab.more = server(1.0);
    lab.run(300);

    let event = Event {
        id: 1,
        at: lab.at(),
        kind: EventKind::NfsNotResponding,
        labels: [("cluster", "lab"), ("node", "g001"), ("server", "nas")]
            .into_iter()
            .collect(),
        message: "nfs: server nas not responding, still trying".to_owned(),
    };
    let now = lab.at();

    lab.engine.event(&event, &[], now);
    lab.more = server(0.0);
    lab.run(600);
    lab.more = server(1.0);
    lab.run(900);
    let expected = [
        "FIRING NfsServerNotResponding",
        "RESOLVED NfsServerNotResponding",
    ];
    assert_eq!(lab.texts(), expected, "{:?}", lab.sent);
}

#[test]
fn a_gpu_off_the_bus_ends_with_its_return_and_hides_no_other_gpu() {
    let mut lab = Lab::of(1);

    let gpu = |uuid: &str, address: &str, up: f64, reason: &str| {
        let own = [("node", "g001"), ("job", "takt"), ("uuid", uuid)];
        let mut info = labels("takt_gpu_info", &own);
        // The form of older exporters, before Takt used the kernel's form.
        info.set("pci_bus_id", address);
        let mut state = labels("takt_gpu_up", &own);
        state.set("reason", reason);
        [(info, 1.0), (state, up)]
    };

    let both = |first: f64, second: f64| {
        let reason = |up: f64, word| if up == 1.0 { "" } else { word };
        let first = gpu("GPU-1", "00000000:01:00.0", first, reason(first, "lost"));
        let second = gpu("GPU-2", "0000:21:00.0", second, reason(second, "timeout"));
        first.into_iter().chain(second).collect()
    };
    lab.more = both(1.0, 1.0);
    lab.run(300);

    let event = Event {
        id: 1,
        at: lab.at(),
        kind: EventKind::Xid,
        labels: [
            ("cluster", "lab"),
            ("node", "g001"),
            ("uuid", "GPU-1"),
            ("pci_bus_id", "0000:01:00.0"),
            ("xid", "79"),
        ]
        .into_iter()
        .collect(),
        message: "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.".to_owned(),
    };

    let now = lab.at();
    lab.engine.event(&event, &[], now);
    lab.more = both(0.0, 1.0);
    lab.run(300);
    lab.more = both(0.0, 0.0);
    lab.run(300);

    let pages = |lab: &Lab| -> Vec<String> {
        lab.texts()
            .into_iter()
            .filter(|text| text.contains("Bus") || text.contains("Answering"))
            .map(str::to_owned)
            .collect()
    };

    assert_eq!(
        pages(&lab),
        ["FIRING GpuFellOffBus GPU-1", "FIRING GpuNotAnswering GPU-2"],
        "{:?}",
        lab.sent
    );

    lab.more = both(1.0, 1.0);
    lab.run(60);
    let ends: BTreeSet<_> = pages(&lab).into_iter().skip(2).collect();
    let expected = [
        "RESOLVED GpuFellOffBus GPU-1",
        "RESOLVED GpuNotAnswering GPU-2",
    ];
    assert_eq!(ends, expected.map(str::to_owned).into(), "{:?}", lab.sent);
}
