//! The engine as a whole, over a store in memory that can lose the process at any moment.

mod changes;
mod clock;
mod closing;
mod events;
mod laws;
mod load;
mod sending;

use super::*;
use crate::alert::{Posted, PostedError};
use crate::events::EventInstance;
use crate::message::Status;
use crate::outbox::RowState;
use crate::ports::{AlertStore, StoreError};
use crate::ports::{ExporterState, ExporterStates, SampleSink};
use crate::routing::dedup::{LogEntry, Reason};
use crate::routing::maintenance::Maintenance;
use crate::routing::matcher::{Matchers, parse_matchers};
use crate::routing::{LogKey, Logged};
use crate::state::{Closing, Transition};
use crate::testing::{Memory, parse_series};
use proptest::prelude::*;
use std::cell::RefCell;

/// The tables of committed batches.
#[derive(Default)]
struct Disk(RefCell<Tables>);

#[derive(Default, Clone)]
struct Tables {
    transitions: Vec<Transition>,
    instances: BTreeMap<(RuleKey, Fingerprint), Instance>,
    event_instances: BTreeMap<(RuleKey, Fingerprint), EventInstance>,
    alerts: BTreeMap<Fingerprint, Alert>,
    flapping: BTreeMap<Fingerprint, Flapping>,
    silences: BTreeMap<String, Silence>,
    log: BTreeMap<LogKey, LogEntry>,
    outbox: BTreeMap<u64, Row>,
    read: BTreeMap<String, u64>,
    down_at: Option<Timestamp>,
}

impl AlertStore for Disk {
    fn load(&self) -> Result<Snapshot, StoreError> {
        let tables = self.0.borrow().clone();
        Ok(Snapshot {
            instances: tables
                .instances
                .into_iter()
                .map(|((key, _), instance)| (key, instance))
                .collect(),
            event_instances: tables
                .event_instances
                .into_iter()
                .map(|((key, _), instance)| (key, instance))
                .collect(),
            alerts: tables.alerts.into_values().collect(),
            flapping: tables.flapping.into_iter().collect(),
            silences: tables.silences.into_values().collect(),
            log: tables.log.into_iter().collect(),
            next_row: tables.outbox.keys().next_back().map_or(1, |last| last + 1),
            outbox: tables
                .outbox
                .into_values()
                .filter(|row| !row.state.is_final())
                .collect(),
            read: tables.read,
            down_at: tables.down_at,
        })
    }

    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError> {
        let mut tables = self.0.borrow_mut();
        tables.down_at = Some(at);
        tables.read.extend(batch.read.iter().cloned());
        let batch = batch.clone();
        tables.transitions.extend(batch.transitions);
        for (key, instance) in batch.instances {
            tables
                .instances
                .insert((key, Fingerprint::of(&instance.labels)), instance);
        }
        for gone in batch.forgotten_instances {
            tables.instances.remove(&gone);
        }
        for (key, instance) in batch.event_instances {
            tables
                .event_instances
                .insert((key, Fingerprint::of(&instance.labels)), instance);
        }
        for gone in batch.forgotten_event_instances {
            tables.event_instances.remove(&gone);
        }
        for alert in batch.alerts {
            tables.alerts.insert(alert.fingerprint(), alert);
        }
        for gone in batch.forgotten_alerts {
            tables.alerts.remove(&gone);
        }
        for (fingerprint, flapping) in batch.flapping {
            match flapping {
                Some(flapping) => drop(tables.flapping.insert(fingerprint, flapping)),
                None => drop(tables.flapping.remove(&fingerprint)),
            }
        }
        for silence in batch.silences {
            tables.silences.insert(silence.id.clone(), silence);
        }
        for gone in batch.forgotten_silences {
            tables.silences.remove(&gone);
        }
        for Logged { key, entry } in batch.log {
            match entry {
                Some(entry) => drop(tables.log.insert(key, entry)),
                None => drop(tables.log.remove(&key)),
            }
        }
        for row in batch.outbox {
            tables.outbox.insert(row.id, row);
        }
        Ok(())
    }
}

const RULES: &str = "
groups:
- name: g
  interval: 15s
  rules:
  - alert: Hot
    expr: hot > 90
    labels: {severity: warning}
    annotations: {summary: '{{ $labels.node }} is at {{ $value }}'}
  - alert: Down
    expr: up == 0
    labels: {severity: critical}
  - alert: JobLost
    expr: job_lost == 1
    labels: {severity: warning}
    annotations: {action: '{{ if query \"requeued\" }}Do not submit it again.{{ else }}Submit it again.{{ end }}'}
";

const EVENTS: &str = "
groups:
- name: gpu
  rules:
  - alert: GpuXid
    when: [{kind: xid, class: [reset_gpu, restart_bm]}]
    by: [node, uuid, xid]
    until: takt_gpu_up == 1
    labels: {severity: '{{ $labels.xid_severity }}'}
    annotations: {summary: '{{ $labels.xid_meaning }} on {{ $labels.node }}', action: '{{ $labels.xid_action }}'}
  - alert: GpuXidRepeated
    when: [{kind: xid, xid: [13, 31]}]
    by: [node, uuid]
    repeat: {times: 2, within: 24h, burst: 3m, distinct: jobid}
    hold: 1h
    labels: {severity: warning}
";

const ROUTES: &str = "
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 30s
  group_interval: 1m
  repeat_interval: 1h
  routes:
  - matchers: [severity=info]
    receiver: nobody
receivers:
- name: ops
  slack_configs: [{channel: '#ops', send_resolved: true}]
  email_configs: [{to: ops@lab}]
- name: nobody
inhibit_rules:
- source_matchers: [alertname=Down]
  target_matchers: [alertname=Hot]
  equal: [node]
";

fn engine() -> Engine {
    let rules = RuleFile::read("r.yml", RULES).unwrap();
    let events = EventFile::read("e.events.yml", EVENTS, XidTable::shipped()).unwrap();
    let defaults = Defaults {
        interval: Duration::from_secs(15),
        query_offset: Duration::ZERO,
    };
    let pages = Some(Matchers(parse_matchers("severity=critical").unwrap()));
    let settings = Settings {
        external_url: "http://takt".to_owned(),
        timezone: None,
        pages,
    };
    let server = Server {
        external_labels: Labels::new(),
        defaults,
        settings,
        posted_max: 8,
    };
    let config = Config::read("am.yml", ROUTES).unwrap();
    Engine::new(
        server,
        &[rules],
        &[events],
        XidTable::shipped().clone(),
        config,
    )
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn none_down(_: Timestamp, _: Timestamp) -> ExporterStates {
    Box::new(|_| ExporterState::Answers)
}

/// A running Takt: an engine, its tables, its samples, and the channels of the outbox.
struct Takt {
    engine: Engine,
    disk: Disk,
    samples: Memory,
    now: Timestamp,
    /// Delivered messages in order: id and channel.
    delivered: Vec<(u64, String)>,
}

impl Takt {
    fn new() -> Self {
        Self {
            engine: engine(),
            disk: Disk::default(),
            samples: Memory::default(),
            now: at(0),
            delivered: Vec::new(),
        }
    }

    fn commit(&self, batch: &Batch) {
        self.disk.commit(batch, self.now).unwrap();
    }

    fn set(&self, series: &str, value: f64) {
        let sample = crate::ports::Sample {
            labels: parse_series(series),
            at: self.now,
            value: Some(value),
        };
        self.samples.write(&[sample]).unwrap();
    }

    /// Runs one second: evaluate, flush, send. With `lost_after` the process ends after that step:
    /// 0 before the first commit, 1 after it, and so on.
    fn second(&mut self, lost_after: Option<usize>) {
        self.now = self.now.plus(Duration::from_secs(1));
        let now = self.now;
        for step in 0..4 {
            let batch = match step {
                0 => {
                    self.engine
                        .evaluate(&self.samples, &self.samples, &none_down, now)
                        .0
                }
                1 => self.engine.flush(&self.samples, now),
                2 => {
                    let (rows, batch) = self.engine.send_due(now);
                    // The marks are committed first: after a crash the rows count
                    // as in doubt and are sent again.
                    self.commit(&batch);
                    if lost_after == Some(2) {
                        return self.restart();
                    }

                    let mut answered = Batch::default();
                    for row in rows {
                        self.delivered.push((row.id, row.channel.clone()));
                        // The process ends between the channel's answer and the commit: delivered,
                        // but not recorded.
                        if lost_after == Some(3) {
                            return self.restart();
                        }
                        answered = answered.then(self.engine.answered(
                            row.id,
                            &Outcome::Sent(None),
                            &|_| None,
                            now,
                        ));
                    }
                    answered
                }
                _ => Batch::default(),
            };

            if lost_after == Some(step) && step < 2 {
                return self.restart();
            }
            self.commit(&batch);
        }
    }

    fn seconds(&mut self, count: usize) {
        (0..count).for_each(|_| self.second(None));
    }

    /// The process ends and starts again.
    fn restart(&mut self) {
        self.engine = engine();
        let batch = self.engine.restore(self.disk.load().unwrap(), self.now);
        self.commit(&batch);
    }

    /// Returns the channel's messages in order: firing or resolved, alert name and node.
    fn sent(&self, channel: &str) -> Vec<(Status, String)> {
        let tables = self.disk.0.borrow();
        tables
            .outbox
            .values()
            .filter(|row| row.channel == channel && row.state != RowState::Superseded)
            .flat_map(|row| &row.message.alerts)
            .map(|alert| (alert.status, alert.labels.to_string()))
            .collect()
    }

    fn reasons(&self, channel: &str) -> Vec<(i64, Reason)> {
        let tables = self.disk.0.borrow();
        tables
            .outbox
            .values()
            .filter(|row| row.channel == channel)
            .map(|row| (row.created_at.whole_seconds().0, row.message.reason))
            .collect()
    }
}

const SLACK: &str = "ops/slack/0";

fn xid(number: u32, job: &str, seconds: i64) -> Event {
    let number = number.to_string();
    let labels = [
        ("node", "g01"),
        ("uuid", "GPU-1"),
        ("xid", number.as_str()),
        ("jobid", job),
        ("user", "ada"),
    ];
    Event {
        id: 1,
        at: at(seconds),
        kind: takt_model::EventKind::Xid,
        labels: labels.into_iter().collect(),
        message: format!("NVRM: Xid (PCI:0000:01:00): {number}, fell off"),
    }
}
