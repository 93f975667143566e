//! The engine's thread over a store that fails, and real channels.

use super::*;
use crate::Snapshot;
use crate::alert::Posted;
use crate::engine::Server;
use crate::events::EventFile;
use crate::events::xid::XidTable;
use crate::group::Defaults;
use crate::notify::owner::Addresses;
use crate::notify::suite::{Verdict, service};
use crate::ports::{ExporterState, ExporterStates, Query, QueryError, Sample};
use crate::routing::Settings;
use crate::routing::config::Config;
use crate::rules::RuleFile;
use crate::testing::Memory;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use takt_mail::EmailConfig;
use tokio::net::TcpListener;
use tokio::task;
use tokio::time;

/// The channels of a configuration without mail.
fn channels(config: &Config) -> Channels {
    let nowhere = Path::new("/nonexistent");
    Channels::build(config, &EmailConfig::default(), &Addresses::none(), nowhere).unwrap()
}

/// A store whose commits fail while `is_full` is true.
#[derive(Default)]
struct FailingStore {
    memory: Memory,
    is_full: Arc<AtomicBool>,
    committed: Arc<Mutex<Vec<Batch>>>,
    /// How often the engine has asked for the time, twice a turn.
    looks: Arc<AtomicUsize>,
}

impl SampleSink for FailingStore {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        self.memory.write(samples)
    }
}

impl AlertStore for FailingStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::default())
    }

    fn commit(&self, batch: &Batch, _at: Timestamp) -> Result<(), StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError("No space left on device".to_owned()));
        }
        self.committed.lock().unwrap().push(batch.clone());
        Ok(())
    }
}

impl Outside for FailingStore {
    fn now(&self) -> Timestamp {
        self.looks.fetch_add(1, Ordering::SeqCst);
        SystemTime::now().into()
    }

    fn queries(&self) -> Arc<dyn RuleQueries> {
        Arc::new(Answers)
    }

    fn maintenance(&self, _now: Timestamp) -> Option<Vec<Maintenance>> {
        None
    }

    fn jobs_at(&self, _event: &Event) -> JobsAt {
        JobsAt::Certain(Vec::new())
    }

    fn storage_problem(&self) -> Option<String> {
        None
    }
}

/// Alerts of the expression `many`, each of whose texts needs a query of its own.
const MANY: usize = 7_000;

/// Time of a query of a text.
const TEXT_QUERY: Duration = Duration::from_millis(20);

/// A store without samples, but with alerts: one for `one`, [`MANY`] for `many`.
struct Answers;

impl Query for Answers {
    fn instant(&self, expr: &str, _at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        let node = |n: usize| (Labels::from_iter([("node", format!("g{n}"))]), 1.0);
        match expr {
            "one" => Ok(vec![node(0)]),
            "many" => Ok((0..MANY).map(node).collect()),
            _ => {
                thread::sleep(TEXT_QUERY);
                Ok(Vec::new())
            }
        }
    }

    fn check(&self, _expr: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

impl RuleQueries for Answers {
    fn exporter_states(&self, _at: Timestamp, _since: Timestamp) -> ExporterStates {
        Box::new(|_| ExporterState::Answers)
    }
}

fn config(server: &str, routes: &str) -> Config {
    let text = format!(
        "route: {{receiver: ops, group_by: [alertname], {routes}}}\n\
         receivers: [{{name: ops, webhook_configs: [{{url: 'http://{server}/x'}}]}}]"
    );
    Config::read("am.yml", &text).unwrap()
}

fn engine(config: Config) -> Engine {
    engine_with(config, &[], &[])
}

fn engine_with(config: Config, rules: &[RuleFile], events: &[EventFile]) -> Engine {
    let server = Server {
        external_labels: Labels::new(),
        defaults: Defaults {
            interval: Duration::from_secs(15),
            query_offset: Duration::ZERO,
        },
        settings: Settings {
            external_url: "http://takt".to_owned(),
            timezone: None,
            pages: None,
        },
        posted_max: 1000,
    };
    Engine::new(server, rules, events, XidTable::shipped().clone(), config)
}

fn alert(name: &str, node: &str, starts_at: Timestamp) -> Posted {
    Posted {
        labels: [("alertname", name), ("node", node)].into_iter().collect(),
        starts_at: Some(starts_at),
        ends_at: Some(starts_at.plus(Duration::from_secs(100_000))),
        ..Posted::default()
    }
}

#[tokio::test]
async fn messages_are_sent_while_the_store_is_full() {
    let (server, mut received) = service(Verdict::Takes).await;

    let config = config(&server, "group_wait: 0s, group_interval: 1s");
    let channels = channels(&config);

    let store = FailingStore::default();
    let is_full = Arc::clone(&store.is_full);
    let committed = Arc::clone(&store.committed);
    is_full.store(true, Ordering::SeqCst);

    let metrics = AlertMetrics::default();
    let watch = WatchConfig {
        heartbeat: None,
        patience: Duration::from_secs(300),
    };
    let alerting =
        Alerting::start(engine(config), store, channels, watch, metrics.clone()).unwrap();

    let handle = alerting.handle();
    let posted = handle
        .change(|engine, now| {
            let (batch, errors) = engine.post(vec![alert("GpuHot", "g01", now)], now);
            assert!(errors.is_empty());
            ((), batch)
        })
        .await;
    // The alert is in force all the same, and will be sent.
    assert!(matches!(posted, Err(ChangeError::Store(_))), "{posted:?}");

    let limit = Duration::from_secs(10);
    let mut seen = Vec::new();
    // The alert itself, and the report of the full store.
    while seen.len() < 2 {
        let body = time::timeout(limit, received.recv())
            .await
            .unwrap()
            .unwrap();
        seen.push(if body.contains("GpuHot") {
            "GpuHot"
        } else {
            "store"
        });
        assert!(
            body.contains("GpuHot") || body.contains("TaktCannotStoreAlerts"),
            "{body}"
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, ["GpuHot", "store"]);

    assert!(metrics.uncommitted.get() >= 2 && metrics.commit_failures.get() >= 1);
    assert!(committed.lock().unwrap().is_empty());

    // With room again everything is stored, as sent, and nothing is sent twice.
    is_full.store(false, Ordering::SeqCst);
    let begun = Instant::now();
    let is_stored = || {
        let batches = committed.lock().unwrap();
        batches
            .iter()
            .flat_map(|batch| &batch.outbox)
            .filter(|row| row.state == RowState::Sent)
            .count()
            >= 2
    };
    while !is_stored() {
        assert!(begun.elapsed() < limit, "{:?}", committed.lock().unwrap());
        time::sleep(Duration::from_millis(50)).await;
    }

    assert!(received.try_recv().is_err());
    // The thread waits for the answers of channels, which this runtime delivers: it must not be blocked.
    task::spawn_blocking(move || drop(alerting)).await.unwrap();
}

/// One channel does not answer, and another has a message that is due again: the thread turned without a pause.
#[tokio::test]
async fn stopping_waits_for_answers_without_turning() {
    // Connections wait in the queue of the listener, which takes none.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();
    let (busy_at, mut received) = service(Verdict::NotNow).await;
    let text = format!(
        "route: {{receiver: ops, group_by: [alertname], group_wait: 0s}}\n\
         receivers: [{{name: ops, webhook_configs: [{{url: 'http://{silent_at}/x'}}, {{url: 'http://{busy_at}/x'}}]}}]"
    );

    let config = Config::read("am.yml", &text).unwrap();
    let channels = channels(&config);

    let store = FailingStore::default();
    let looks = Arc::clone(&store.looks);
    let watch = WatchConfig {
        heartbeat: None,
        patience: Duration::from_secs(300),
    };
    let metrics = AlertMetrics::default();
    let alerting = Alerting::start(engine(config), store, channels, watch, metrics).unwrap();

    let handle = alerting.handle();
    let posted = handle.change(|engine, now| {
        let (batch, _) = engine.post(vec![alert("GpuHot", "g01", now)], now);
        ((), batch)
    });
    posted.await.unwrap();
    let limit = Duration::from_secs(10);
    time::timeout(limit, received.recv())
        .await
        .unwrap()
        .unwrap();

    // The busy channel's message is due again after a second, four seconds before the end of the wait.
    let before = looks.load(Ordering::SeqCst);
    let begun = Instant::now();
    task::spawn_blocking(move || drop(alerting)).await.unwrap();
    let turns = looks.load(Ordering::SeqCst) - before;
    assert!(begun.elapsed() >= STOP_WITHIN / 2, "nothing was awaited");
    assert!(turns < 100, "{turns}");
}

/// A rule with a query in the text of each of 7,000 alerts delayed all other alerts, events and pages
/// by 140 s an evaluation.
#[tokio::test]
async fn a_slow_rule_delays_no_other_group_and_no_event() {
    let (server, mut received) = service(Verdict::Takes).await;
    let routes = "group_wait: 0s, group_interval: 1s, routes: [{receiver: nobody, matchers: \
                  ['alertname=\"Many\"']}]";
    let text = format!(
        "route: {{receiver: ops, group_by: [alertname], {routes}}}\n\
         receivers: [{{name: ops, webhook_configs: [{{url: 'http://{server}/x'}}]}}, {{name: nobody}}]"
    );

    let config = Config::read("am.yml", &text).unwrap();
    let channels = channels(&config);

    let rules = "
groups:
  - name: slow
    interval: 1s
    rules:
      - alert: Many
        expr: many
        annotations: {summary: '{{ query (printf \"up{node=%q}\" $labels.node) | len }}'}
  - name: quick
    interval: 1s
    rules: [{alert: One, expr: one}]
";

    let events = "groups: [{name: g, rules: [{alert: Fault, when: [{kind: xid}], hold: 1h}]}]";
    let engine = engine_with(
        config,
        &[RuleFile::read("r.yml", rules).unwrap()],
        &[EventFile::read("e.events.yml", events, XidTable::shipped()).unwrap()],
    );

    let watch = WatchConfig {
        heartbeat: None,
        patience: Duration::from_secs(300),
    };
    let store = FailingStore::default();
    let metrics = AlertMetrics::default();
    let begun = Instant::now();
    let alerting = Alerting::start(engine, store, channels, watch, metrics).unwrap();
    let handle = alerting.handle();

    let mut next = async |name: &str, within: Duration| {
        let body = time::timeout(within, received.recv()).await;
        let body = body.unwrap_or_else(|_| panic!("no {name} within {within:?}"));
        assert!(body.unwrap().contains(name), "{name}");
    };
    next("One", Duration::from_secs(3)).await;

    // The group is in its queries now, and stays there for seconds.
    let (overruns, asked) = loop {
        let asked = Instant::now();
        let overruns = handle.read(|engine, _| engine.overruns()).await.unwrap();
        if !overruns.is_empty() {
            break (overruns, asked.elapsed());
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(overruns[0].group, "r.yml;slow");
    assert_eq!(overruns[0].rule, "r.yml:slow/Many");
    assert!(asked < Duration::from_secs(1), "{asked:?}");

    let now = Timestamp::from(SystemTime::now());
    let event = Event {
        id: 1,
        at: now,
        kind: takt_model::EventKind::Xid,
        labels: [("node", "g1"), ("xid", "79")].into_iter().collect(),
        message: String::new(),
    };
    handle.event("http://g1", event).await.unwrap();
    next("Fault", Duration::from_secs(1)).await;

    // The alerts with and without a text all fire, and the rule says how many have none.
    let unwritten = loop {
        let found = handle.read(|engine, _| {
            let slow = engine
                .groups()
                .iter()
                .find(|group| group.group().name == "slow")?;
            let view = slow.views().next()?;
            let firing = view.instances.iter().len();
            let missed = slow.counts.missed;
            Some((firing, missed, view.last.error.clone()?))
        });
        if let Some(found) = found.await.unwrap() {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        time::sleep(Duration::from_millis(100)).await;
    };

    let (firing, missed, error) = unwritten;
    assert_eq!(firing, MANY);
    assert!(missed <= 1, "the next evaluation begins in time: {missed}");
    // Forty queries of 20 ms fit into 0.8 s, so about 6,960 texts are missing.
    assert!(error.starts_with("texts of 6"), "{error}");
    task::spawn_blocking(move || drop(alerting)).await.unwrap();
}

/// `group_wait` 1 s, `group_interval` 6 s, reload at 3 s, a new alert at 4 s: sent at 7 s, as
/// without the reload.
#[test]
fn a_reload_keeps_the_timers_of_groups() {
    let at = |seconds: i64| Timestamp::from_seconds(1_000_000 + seconds);
    let routes = "group_wait: 1s, group_interval: 6s";
    let sent_at = |reload_at: Option<i64>, reloaded: &str| {
        let mut engine = engine(config("localhost:1", routes));
        let mut sent = Vec::new();
        for second in 0..20 {
            let now = at(second);
            if second == 0 {
                engine.post(vec![alert("GpuHot", "g01", now)], now);
            }
            // The second alert joins the group, whose next flush is at 7 s.

            if second == 4 {
                engine.post(vec![alert("GpuHot", "g02", now)], now);
            }
            if reload_at == Some(second) {
                let config = config("localhost:1", reloaded);
                engine.reload(&[], &[], XidTable::shipped().clone(), config, now);
            }

            let _: Batch = engine.flush(&Memory::default(), now);
            for row in engine.send_due(now).0 {
                sent.push((second, row.message.alerts.len()));
                engine.answered(row.id, &Outcome::Sent(None), &|_| None, now);
            }
        }
        sent
    };

    let undisturbed = vec![(1, 1), (7, 2)];
    assert_eq!(sent_at(None, routes), undisturbed);
    for reload_at in [0, 1, 3, 4, 5, 7, 9] {
        assert_eq!(
            sent_at(Some(reload_at), routes),
            undisturbed,
            "reload at {reload_at}"
        );
    }

    // A shorter interval applies from the reload on: 3 s and 2 s.
    let shorter = "group_wait: 1s, group_interval: 2s";
    assert_eq!(sent_at(Some(3), shorter), [(1, 1), (5, 2)]);
}

#[test]
fn rules_that_fail_alike_are_logged_once() {
    let key = |name: &str| RuleKey(name.into());
    let limit = EvalError::OverLimit { limit: 1, count: 2 };
    let away = || EvalError::Query(QueryError("http://mimir does not answer".to_owned()));
    let failures = [(key("a"), away()), (key("b"), limit), (key("c"), away())];
    let causes: Vec<_> = by_cause(&failures).into_values().collect();
    assert_eq!(causes, [vec![&key("b")], vec![&key("a"), &key("c")]]);
}

#[test]
fn the_log_of_a_failed_rule_names_no_labels() {
    // A brace inside a value must not end what is left out.
    let series = |user: &str| {
        format!(
            "found duplicate series for the match group {{jobid=\"7}}\"}} on the left hand-side of the operation: \
             [a{{user={user:?}}}, a{{user=\"bob\"}}];many-to-many matching not allowed"
        )
    };

    let failed = |user| EvalError::Query(QueryError(series(user)));
    let twin = EvalError::SameLabels([("user", "dave")].into_iter().collect());
    let rules = ["a", "b", "c"].map(|name| RuleKey(name.into()));
    let [a, b, c] = rules.clone();
    let failures = [(a, failed("alice")), (b, failed("carol")), (c, twin)];
    let causes = by_cause(&failures);

    let expected = [
        (
            "the query failed: found duplicate series for the match group {…}];many-to-many matching not allowed",
            vec![&rules[0], &rules[1]],
        ),
        (
            "two series have the same labels after the rule's labels are applied: {…}",
            vec![&rules[2]],
        ),
    ];
    assert_eq!(
        causes
            .iter()
            .map(|(cause, rules)| (cause.as_str(), rules.clone()))
            .collect::<Vec<_>>(),
        expected
    );
}
