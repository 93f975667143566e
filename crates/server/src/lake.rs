//! The task that writes the data lake of `[lake]`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use takt_lake::{Lake, LakeConfig, LakeError, RoundSummary, TABLES};
use takt_model::{Timestamp, error_chain};
use takt_store::Store;
use takt_store::blocking;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Time between the start of the server and the first round.
const FIRST: Duration = Duration::from_secs(10);

/// Longest time between a round that failed and the next one.
const RETRY: Duration = Duration::from_secs(300);

/// Metrics of the data lake.
#[derive(Debug, Clone, Default)]
pub struct LakeMetrics {
    succeeded: Gauge<f64, AtomicU64>,
    failing: Family<TableLabel, Gauge>,
    failures: Family<TableLabel, Counter>,
    files: Family<TableLabel, Gauge>,
    rows: Family<TableLabel, Gauge>,
    bytes: Family<TableLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabel {
    table: &'static str,
}

impl LakeMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "takt_lake_last_success_timestamp_seconds",
            "End of the last round that wrote all tables of the data lake, 0 before it",
            metrics.succeeded.clone(),
        );
        registry.register(
            "takt_lake_failing",
            "Whether the last round could not write this table of the data lake",
            metrics.failing.clone(),
        );
        registry.register(
            "takt_lake_failures",
            "Rounds that could not write this table of the data lake",
            metrics.failures.clone(),
        );

        let of_tables = [
            ("takt_lake_files", "Files", &metrics.files),
            ("takt_lake_rows", "Rows", &metrics.rows),
            ("takt_lake_bytes", "Bytes", &metrics.bytes),
        ];
        for (name, unit, family) in of_tables {
            let help = format!("{unit} in the newest version of this table of the data lake");
            registry.register(name, help, family.clone());
        }
        // Counters exist from the start, so that `rate` sees the first failure.
        for table in TABLES {
            let label = TableLabel { table: table.name };
            drop(metrics.failures.get_or_create(&label));
        }
        metrics
    }

    fn note(&self, done: &Result<RoundSummary, LakeError>, lake: &Lake<'_>, now: Timestamp) {
        for (at, table) in TABLES.iter().enumerate() {
            let label = TableLabel { table: table.name };
            let has_failed = match done {
                Ok(summary) => summary.tables.get(at).is_none_or(|t| !t.error.is_empty()),
                Err(_) => true,
            };
            self.failing.get_or_create(&label).set(has_failed.into());
            if has_failed {
                self.failures.get_or_create(&label).inc();
            }
        }

        if done
            .as_ref()
            .is_ok_and(|summary| summary.error().is_empty())
        {
            self.succeeded.set(now.as_seconds());
        }
        // A lake that cannot be read has an error above.
        let Ok(status) = lake.status() else { return };
        for (table, status) in TABLES.iter().zip(status.tables) {
            let label = TableLabel { table: table.name };
            let values = [
                (&self.files, status.files),
                (&self.rows, status.rows),
                (&self.bytes, status.bytes),
            ];
            for (family, value) in values {
                family.get_or_create(&label).set(value.cast_signed());
            }
        }
    }
}

/// Writes the lake in rounds until `stop` is cancelled. A round that fails is repeated by the next.
pub async fn keep_writing(
    store: Arc<Store>,
    config: LakeConfig,
    min_free_bytes: u64,
    metrics: LakeMetrics,
    stop: CancellationToken,
) {
    // Not at once, as the server has other work at its start. A short interval of a test is not lengthened.
    let mut pause = FIRST.min(config.interval());

    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(pause) => {}
        }
        let interval = config.interval();
        let store = Arc::clone(&store);
        let config = config.clone();
        let metrics = metrics.clone();
        let stop = stop.clone();
        // A round reads and writes files for minutes, which must not hold up the runtime.
        let is_complete = blocking(move || {
            let lake = Lake::new(store.database(), &config, min_free_bytes);
            // With a wrong clock, days would be over that are not, and files past their retention.
            let clock = store.database().clock_state();
            if !clock.is_trusted {
                tracing::warn!("the clock is not trusted; the next round of the data lake waits");
                return false;
            }

            let now = clock.surely_passed();
            let done = lake.round(false, now, &|| stop.is_cancelled());
            let error = match &done {
                Ok(summary) => summary.error(),
                Err(error) => error_chain(error),
            };
            // A round that was stopped is not a failure.
            if stop.is_cancelled() {
                return true;
            }
            if !error.is_empty() {
                tracing::error!(
                    error,
                    "cannot write the data lake; the next round tries again"
                );
            }
            metrics.note(&done, &lake, now);
            error.is_empty()
        })
        .await;

        pause = if is_complete {
            interval
        } else {
            interval.min(RETRY)
        };
    }
}
