//! The engine as a whole, over a store in memory that can lose the process at any moment.

use super::*;
use crate::events::EventInstance;
use crate::outbox::RowState;
use crate::ports::{AlertStore, StoreError};
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

fn none_down(_: Timestamp) -> IsDown {
    Box::new(|_| false)
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
    fn told(&self, channel: &str) -> Vec<(Status, String)> {
        let tables = self.disk.0.borrow();
        let rows = tables
            .outbox
            .values()
            .filter(|row| row.channel == channel && row.state != RowState::Superseded);
        let alerts = rows.flat_map(|row| &row.message.alerts);
        alerts
            .map(|alert| (alert.status, alert.labels.to_string()))
            .collect()
    }

    fn reasons(&self, channel: &str) -> Vec<(i64, Reason)> {
        let tables = self.disk.0.borrow();
        let rows = tables.outbox.values().filter(|row| row.channel == channel);
        rows.map(|row| (row.created_at.whole_seconds().0, row.message.reason))
            .collect()
    }
}

const SLACK: &str = "ops/slack/0";

#[test]
fn from_a_sample_to_a_message_and_its_end() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(120);
    let reasons: Vec<_> = takt
        .reasons(SLACK)
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, [Reason::FirstFiring, Reason::Resolved]);
    assert_eq!(
        takt.reasons("ops/email/0").len(),
        1,
        "e-mail does not ask for ends"
    );
    let tables = takt.disk.0.borrow();
    assert!(
        tables.log.is_empty() && tables.alerts.is_empty(),
        "nothing is left behind"
    );
    let row = tables.outbox.values().next().unwrap();
    assert_eq!(row.message.common_annotations["summary"], "g01 is at 95");
    assert!(
        tables
            .outbox
            .values()
            .all(|row| row.state == RowState::Sent)
    );
}

#[test]
fn a_page_goes_out_in_the_second_it_is_seen() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(20);
    let (told_at, reason) = takt.reasons(SLACK)[0];
    let fired_at = takt.disk.0.borrow().transitions[0].at.whole_seconds().0;
    assert!(
        (fired_at..=fired_at + 15).contains(&told_at) && told_at < 17,
        "{told_at} {fired_at}"
    );
    assert_eq!(reason, Reason::FirstFiring);
}

#[test]
fn inhibited_alerts_are_not_sent() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(20);
    // The node is down, then no longer hot: no message is sent while the node is down.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(100);
    assert!(
        !takt
            .told(SLACK)
            .iter()
            .any(|(status, _)| *status == Status::Resolved)
    );
    takt.set("up{node=\"g01\"}", 1.0);
    takt.seconds(130);
    let resolved = takt
        .told(SLACK)
        .into_iter()
        .filter(|(status, _)| *status == Status::Resolved);
    assert_eq!(
        resolved.count(),
        2,
        "both ends, once each: {:?}",
        takt.told(SLACK)
    );
}

#[test]
fn a_node_in_maintenance_sends_nothing_until_its_end() {
    let mut takt = Takt::new();
    takt.engine.set_maintenance(vec![Maintenance {
        name: "firmware".to_owned(),
        cluster: "lab".to_owned(),
        nodes: ["g01".to_owned(), "g02".to_owned()].into(),
        from: at(50),
        to: at(300),
    }]);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(49);
    assert_eq!(takt.told(SLACK).len(), 1, "it has not begun");
    // The node is drained, which sends no page; another node is not affected.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.set("up{node=\"g01\"}", 0.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.set("up{node=\"g03\"}", 0.0);
    takt.seconds(200);
    let told: Vec<String> = takt
        .told(SLACK)
        .into_iter()
        .map(|(_, labels)| labels)
        .collect();
    assert!(
        told.iter().skip(1).all(|labels| labels.contains("g03")) && told.len() == 2,
        "{told:?}"
    );
    let suppressed = takt.engine.router().suppressed(takt.now);
    let why: BTreeSet<_> = takt
        .engine
        .router()
        .alerts()
        .iter()
        .map(|(_, alert)| suppressed(alert).muted_by)
        .collect();
    assert_eq!(
        why,
        [vec![], vec!["reservation firmware".to_owned()]].into()
    );
    drop(suppressed);
    // One node came back in time; the other one did not, so its alert is sent.
    takt.set("up{node=\"g01\"}", 1.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.set("up{node=\"g03\"}", 0.0);
    takt.seconds(150);
    let after = takt.told(SLACK).split_off(2);
    let about = |node: &str| -> Vec<Status> {
        after
            .iter()
            .filter(|(_, labels)| labels.contains(node))
            .map(|(status, _)| *status)
            .collect()
    };
    assert_eq!(
        about("g01"),
        [Status::Resolved],
        "what was told before is over"
    );
    assert!(
        about("g02").contains(&Status::Firing) && !about("g02").contains(&Status::Resolved),
        "{after:?}"
    );
}

#[test]
fn a_restart_sends_and_loses_nothing() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).len(), 1);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

#[test]
fn coming_and_going_becomes_one_message() {
    let mut takt = Takt::new();
    for n in 0..20 {
        takt.set("hot{node=\"g01\"}", if n % 2 == 0 { 95.0 } else { 60.0 });
        takt.seconds(130);
    }
    let during = takt.told(SLACK);
    assert!(during.len() <= 8, "{during:#?}");
    assert!(
        during
            .iter()
            .any(|(status, labels)| *status == Status::Firing
                && labels.contains("flapping=\"true\""))
    );
    for _ in 0..4200 / 100 {
        takt.set("hot{node=\"g01\"}", 60.0);
        takt.seconds(100);
    }
    let after = takt.told(SLACK);
    assert!(
        after.last().is_some_and(
            |(status, labels)| *status == Status::Resolved && labels.contains("flapping")
        ),
        "{after:#?}"
    );
    assert!(takt.disk.0.borrow().flapping.is_empty());
}

#[test]
fn a_rule_that_is_gone_ends_its_alerts() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    let config = Config::read("am.yml", ROUTES).unwrap();
    let batch = takt
        .engine
        .reload(&[], &[], XidTable::shipped().clone(), config, takt.now);
    takt.commit(&batch);
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
    assert!(takt.disk.0.borrow().instances.is_empty());
}

#[test]
fn another_route_for_a_firing_alert_is_no_end() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    let other = ROUTES.replace("group_by: [alertname]", "group_by: [alertname, node]");
    let config = Config::read("am.yml", &other).unwrap();
    let rules = RuleFile::read("r.yml", RULES).unwrap();
    let batch = takt
        .engine
        .reload(&[rules], &[], XidTable::shipped().clone(), config, takt.now);
    takt.commit(&batch);
    takt.seconds(100);
    assert_eq!(
        takt.reasons(SLACK).len(),
        1,
        "the same channel goes on in the new group"
    );
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

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

#[test]
fn an_event_is_sent_at_once_and_ends_when_the_gpu_is_back() {
    let mut takt = Takt::new();
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 0.0);
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-2\"}", 1.0);
    takt.seconds(10);
    let batch = takt.engine.event(&xid(79, "7", 10), takt.now);
    takt.commit(&batch);
    takt.second(None);
    assert_eq!(takt.reasons(SLACK), [(11, Reason::FirstFiring)]);
    {
        let tables = takt.disk.0.borrow();
        let message = &tables.outbox.values().next().unwrap().message;
        let words = &message.common_annotations;
        assert_eq!(words["summary"], "GPU has fallen off the bus on g01");
        assert!(
            words["kernel_lines"].contains("Xid (PCI:0000:01:00): 79"),
            "{words:?}"
        );
        assert_eq!(message.common_labels.get("severity"), Some("critical"));
        assert_eq!(takt.delivered.len(), 2, "both channels, in the same second");
    }
    // The same fault again belongs to the same episode.
    let batch = takt.engine.event(&xid(79, "7", 12), takt.now);
    takt.commit(&batch);
    takt.seconds(100);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).len(), 1);
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 1.0);
    takt.seconds(70);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

#[test]
fn user_faults_count_only_in_different_jobs_and_bursts() {
    let mut takt = Takt::new();
    let fires = |takt: &Takt| {
        takt.engine
            .events()
            .iter()
            .any(|(_, _, instance)| instance.fired_at.is_some())
    };
    let mut happens = |number, job: &str, seconds| {
        let batch = takt.engine.event(&xid(number, job, seconds), at(seconds));
        takt.commit(&batch);
        fires(&takt)
    };
    assert!(!happens(31, "7", 10));
    assert!(!happens(31, "7", 20), "the same burst");
    assert!(!happens(13, "7", 4_000), "the same job");
    assert!(!happens(45, "8", 5_000), "not meant");
    assert!(happens(13, "8", 5_000), "another job on the same GPU");
    takt.restart();
    assert!(fires(&takt), "survives a restart");
    takt.now = at(5_000 + 3_599);
    takt.second(None);
    assert!(!fires(&takt), "held for an hour");
}

#[test]
fn pushed_alerts_survive_a_restart_until_they_are_pushed_again() {
    let mut takt = Takt::new();
    let push = |takt: &mut Takt| {
        let posted = Posted {
            labels: parse_series("{alertname=Pushed,node=g01}"),
            ..Posted::default()
        };
        let (batch, errors) = takt.engine.post(vec![posted, Posted::default()], takt.now);
        assert_eq!(errors, [PostedError::NoLabels]);
        takt.commit(&batch);
    };
    push(&mut takt);
    takt.seconds(200);
    // Down for ten minutes: longer than the alert lives without another push.
    takt.now = takt.now.plus(Duration::from_secs(600));
    takt.restart();
    takt.seconds(100);
    push(&mut takt);
    takt.seconds(250);
    assert_eq!(takt.reasons(SLACK).len(), 1, "{:?}", takt.reasons(SLACK));
    takt.seconds(200);
    assert_eq!(
        takt.reasons(SLACK).last().unwrap().1,
        Reason::Resolved,
        "nobody pushed it for five minutes"
    );
}

/// One event in a running Takt.
#[derive(Debug, Clone)]
enum Chaos {
    Set(usize, bool),
    Down(usize, bool),
    Event(u32),
    Silence(usize, i64),
    Wait(usize),
    Crash(usize),
}

fn chaos() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        3 => (0usize..3, any::<bool>()).prop_map(|(node, hot)| Chaos::Set(node, hot)),
        1 => (0usize..3, any::<bool>()).prop_map(|(node, down)| Chaos::Down(node, down)),
        1 => prop_oneof![Just(79u32), Just(119)].prop_map(Chaos::Event),
        1 => (0usize..3, 1i64..300).prop_map(|(node, seconds)| Chaos::Silence(node, seconds)),
        3 => (1usize..90).prop_map(Chaos::Wait),
        3 => (0usize..4).prop_map(Chaos::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// With any sequence of faults, silences, inhibitions and crashes, a channel with
    /// `send_resolved` gets beginnings and ends of each alert alternately, and an end once all is
    /// well. Every message is delivered at least once, and twice only if the process ended before
    /// the answer was committed.
    #[test]
    fn every_announced_episode_has_exactly_one_end(moves in proptest::collection::vec(chaos(), 1..40)) {
        let mut takt = Takt::new();
        let mut lost_in_flight = 0;
        takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 0.0);
        let mut values = BTreeMap::new();
        for (n, what) in moves.iter().enumerate() {
            match what {
                Chaos::Set(node, hot) => drop(values.insert(format!("hot{{node=\"g{node}\"}}"), if *hot { 95.0 } else { 60.0 })),
                Chaos::Down(node, down) => drop(values.insert(format!("up{{node=\"g{node}\"}}"), if *down { 0.0 } else { 1.0 })),
                Chaos::Event(number) => {
                    let event = xid(*number, "7", takt.now.whole_seconds().0);
                    let batch = takt.engine.event(&event, takt.now);
                    takt.commit(&batch);
                }
                Chaos::Silence(node, seconds) => {
                    let wanted = Silence {
                        id: String::new(),
                        matchers: vec![Matchers(parse_matchers(&format!("node=g{node}")).unwrap())],
                        starts_at: takt.now,
                        ends_at: takt.now.plus(Duration::from_secs(seconds.unsigned_abs())),
                        updated_at: takt.now,
                        created_by: "ada".to_owned(),
                        comment: String::new(),
                        annotations: BTreeMap::new(),
                    };
                    let (_, batch) = takt.engine.silence(wanted, &format!("s{n}"), takt.now).unwrap();
                    takt.commit(&batch);
                }
                Chaos::Wait(seconds) => {
                    for _ in 0..*seconds {
                        values.iter().for_each(|(series, value)| takt.set(series, *value));
                        takt.second(None);
                    }
                }
                Chaos::Crash(step) => {
                    values.iter().for_each(|(series, value)| takt.set(series, *value));
                    takt.second(Some(*step));
                    lost_in_flight += usize::from(*step == 3) * 2;
                }
            }
        }
        // All is well from here on; wait until silences, flapping and group intervals have ended.
        values.values_mut().for_each(|value| *value = 60.0);
        let series: Vec<_> = values.keys().cloned().collect();
        for second in 0..4200 {
            if second % 120 == 0 {
                series.iter().for_each(|series| takt.set(series, if series.starts_with("up") { 1.0 } else { 60.0 }));
                takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 1.0);
            }
            takt.second(None);
        }
        let mut last: BTreeMap<String, Status> = BTreeMap::new();
        for (status, labels) in takt.told(SLACK) {
            let before = last.insert(labels.clone(), status);
            // A message about another alert of the group, or a repetition, lists the firing alerts
            // again; an end comes once.
            prop_assert!(status == Status::Firing || before == Some(Status::Firing), "an end without a beginning: {}", labels);
        }
        for (labels, status) in &last {
            prop_assert_eq!(*status, Status::Resolved, "never told to be over: {}", labels);
        }
        let tables = takt.disk.0.borrow();
        prop_assert!(tables.log.values().all(|entry| entry.open.is_empty()));
        let rows: BTreeSet<_> = tables.outbox.values().filter(|row| row.state != RowState::Superseded).map(|row| row.id).collect();
        let delivered: BTreeSet<_> = takt.delivered.iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(&rows, &delivered, "all are delivered");
        prop_assert!(takt.delivered.len() <= delivered.len() + lost_in_flight);
    }
}

/// Returns ten thousand series for each expression that begins with `hot`, and no series for
/// others.
struct TenThousand(Vec<(Labels, f64)>);

impl Query for TenThousand {
    fn instant(
        &self,
        expr: &str,
        _: Timestamp,
    ) -> Result<Vec<(Labels, f64)>, crate::ports::QueryError> {
        Ok(if expr.starts_with("hot") {
            self.0.clone()
        } else {
            Vec::new()
        })
    }

    fn check(&self, _: &str) -> Result<(), crate::ports::QueryError> {
        Ok(())
    }
}

/// `cargo test --release -p takt-alerts -- --ignored --nocapture ten_thousand`
#[test]
#[ignore = "measures, and says how long it took"]
fn ten_thousand_firing_alerts() {
    let mut rules = RULES.to_owned();
    for n in 0..58 {
        rules += &format!("  - alert: R{n}\n    expr: quiet{n} > 1\n");
    }
    let mut engine = engine();
    let file = RuleFile::read("r.yml", &rules).unwrap();
    let config = Config::read("am.yml", ROUTES).unwrap();
    engine.reload(&[file], &[], XidTable::shipped().clone(), config, at(0));
    let series = (0..10_000).map(|n| {
        let text = format!("hot{{cluster=\"c\",node=\"g{n}\",instance=\"g{n}:9855\",job=\"takt\",uuid=\"GPU-{n}\"}}");
        (parse_series(&text), 95.0)
    });
    let query = TenThousand(series.collect());
    let sink = Memory::default();
    for cycle in 0..5 {
        let now = at(100 + cycle * 15);
        let begun = std::time::Instant::now();
        let (batch, report) = engine.evaluate(&query, &sink, &none_down, now);
        let evaluated = begun.elapsed();
        let flushed = engine.flush(&query, now);
        eprintln!(
            "cycle {cycle}: {evaluated:?} to evaluate, {:?} in all, {} transitions, {} messages",
            begun.elapsed(),
            batch.transitions.len(),
            flushed.outbox.len()
        );
        assert_eq!((report.groups, report.failures.len()), (1, 0));
    }
}

fn closing() -> Closing {
    Closing {
        by: "ada".to_owned(),
        comment: "reseated the card".to_owned(),
    }
}

impl Takt {
    fn close(&mut self, matchers: &str) -> usize {
        let matchers = Matchers(parse_matchers(matchers).unwrap());
        let (closed, batch) = self.engine.close(&matchers, &closing(), self.now);
        self.commit(&batch);
        closed.len()
    }

    fn fall_off_the_bus(&mut self) {
        let labels = [("node", "g01"), ("uuid", "GPU-1"), ("xid", "79")];
        let event = Event {
            id: u64::try_from(self.now.0).unwrap(),
            at: self.now,
            kind: takt_model::EventKind::Xid,
            labels: labels.into_iter().collect(),
            message: "NVRM: Xid (PCI:0000:01:00): 79".to_owned(),
        };
        let batch = self.engine.event(&event, self.now);
        self.commit(&batch);
    }

    fn ends_and_beginnings(&self) -> Vec<Status> {
        let told = self.told(SLACK).into_iter();
        told.map(|(status, _)| status).collect()
    }
}

#[test]
fn an_event_without_an_end_is_closed_by_hand() {
    use Status::{Firing, Resolved};
    let mut takt = Takt::new();
    takt.fall_off_the_bus();
    takt.seconds(40);
    assert_eq!(takt.close("node=g02"), 0, "another node");
    assert_eq!(takt.close("alertname=GpuXid,node=g01"), 1);
    assert_eq!(takt.close("alertname=GpuXid,node=g01"), 0, "it is closed");
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved]);
    {
        let tables = takt.disk.0.borrow();
        let last = tables.transitions.last().unwrap();
        assert_eq!((last.from, last.to), (State::Firing, State::Inactive));
        assert_eq!(last.closing, Some(closing()));
        let told = tables.outbox.values().next_back().unwrap();
        let words = &told.message.alerts[0].annotations[CLOSED];
        assert_eq!(words, "by ada: reseated the card");
    }
    takt.restart();
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings().len(), 2, "closed for good");
    takt.fall_off_the_bus();
    takt.seconds(40);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved, Firing]);
}

#[test]
fn a_closed_alert_stays_closed_until_its_condition_was_false() {
    use Status::{Firing, Resolved};
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    assert_eq!(takt.close("alertname=Hot"), 1);
    takt.seconds(70);
    takt.restart();
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved]);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(30);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved, Firing]);
}

#[test]
fn a_posted_alert_can_be_closed() {
    let mut takt = Takt::new();
    let posted = Posted {
        labels: [("alertname", "Foreign")].into_iter().collect(),
        ends_at: Some(at(100_000)),
        ..Posted::default()
    };
    let batch = takt.engine.post(vec![posted], takt.now).0;
    takt.commit(&batch);
    takt.seconds(40);
    assert_eq!(takt.close("alertname=Foreign"), 1);
    takt.seconds(70);
    assert_eq!(
        takt.ends_and_beginnings(),
        [Status::Firing, Status::Resolved]
    );
    let tables = takt.disk.0.borrow();
    let last = tables.transitions.last().unwrap();
    assert_eq!(
        (&*last.rule.0, last.reason),
        ("posted", crate::state::Reason::Closed)
    );
}

#[test]
fn the_end_of_a_page_does_not_wait_for_the_group() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(20);
    takt.set("up{node=\"g01\"}", 1.0);
    let back = takt.now.whole_seconds().0;
    takt.seconds(20);
    let reasons = takt.reasons(SLACK);
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    let (end, reason) = reasons[1];
    assert_eq!(reason, Reason::Resolved);
    assert!(end <= back + 16, "{end} and {back}: one evaluation later");
}

#[test]
fn a_consequence_that_outlives_its_cause_by_seconds_is_not_sent() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.seconds(20);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.set("hot{node=\"g02\"}", 95.0);
    takt.seconds(50);
    takt.set("up{node=\"g01\"}", 1.0);
    takt.set("up{node=\"g02\"}", 1.0);
    takt.seconds(40);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(100);
    let fired: Vec<String> = takt
        .told(SLACK)
        .into_iter()
        .filter(|(status, labels)| *status == Status::Firing && labels.contains("Hot"))
        .map(|(_, labels)| labels)
        .collect();
    assert!(
        fired.iter().all(|labels| labels.contains("g02")) && !fired.is_empty(),
        "g02 is hot for another reason: {fired:?}"
    );
    takt.set("hot{node=\"g02\"}", 60.0);
    takt.seconds(200);
    assert!(
        takt.disk.0.borrow().alerts.is_empty(),
        "nothing is left behind"
    );
}
