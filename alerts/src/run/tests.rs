//! The engine's thread over a store that fails, and real channels.

use super::*;
use crate::Snapshot;
use crate::alert::Posted;
use crate::engine::Server;
use crate::events::xid::XidTable;
use crate::group::Defaults;
use crate::notify::owner::Addresses;
use crate::notify::suite::{Verdict, service};
use crate::ports::{QueryError, Sample};
use crate::routing::Settings;
use crate::routing::config::Config;
use crate::testing::Memory;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use takt_mail::EmailConfig;
use tokio::task;
use tokio::time;

/// A store whose commits fail while `is_full` is true.
#[derive(Default)]
struct FailingStore {
    memory: Memory,
    is_full: Arc<AtomicBool>,
    committed: Arc<Mutex<Vec<Batch>>>,
}

impl Query for FailingStore {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        self.memory.instant(expr, at)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        self.memory.check(expr)
    }
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
    fn exporters_down(&self, _at: Timestamp, _since: Timestamp) -> IsDown {
        Box::new(|_| false)
    }

    fn maintenance(&self, _now: Timestamp) -> Option<Vec<Maintenance>> {
        None
    }

    fn jobs_at(&self, _event: &Event) -> Vec<Labels> {
        Vec::new()
    }

    fn storage_problem(&self) -> Option<String> {
        None
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
    Engine::new(server, &[], &[], XidTable::shipped().clone(), config)
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
    let channels = Channels::build(
        &config,
        &EmailConfig::default(),
        &Addresses::none(),
        Path::new("/nonexistent"),
    )
    .unwrap();
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
