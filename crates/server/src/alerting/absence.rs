//! Reports that the store cannot be opened.
//!
//! An engine without rules and without a store sends the alert `TaktCannotStoreAlerts` over the
//! configured channels. It sends no heartbeat, since no rule is evaluated meanwhile.

use super::{Loaded, load, outside, server, watch_config};
use crate::config::Config;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use takt_alerts::events::xid::XidTable;
use takt_alerts::ports::{
    AlertStore, ExporterState, ExporterStates, Query, QueryError, RuleQueries, Sample, SampleSink,
    StoreError,
};
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::run::{AlertMetrics, Alerting, JobsAt, Outside, WatchConfig};
use takt_alerts::{Batch, Engine, Snapshot};
use takt_model::{Event, Labels, Timestamp};
use takt_questions::LOCAL_CLUSTER;

/// A time without a store. The report ends when this is dropped.
pub struct Absence {
    /// Begin of the absence.
    pub since: Timestamp,
    /// Error of the first attempt to open the store.
    pub reason: String,
    alerting: Option<Alerting>,
}

impl Absence {
    /// Begins to report. Without a usable configuration of alerts, nothing is sent.
    pub fn begin(config: &Config, reason: String) -> Self {
        let alerting = start(config, &reason).inspect_err(|error| {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot report that the store cannot be opened"
            );
        });
        Self {
            since: SystemTime::now().into(),
            reason,
            alerting: alerting.ok(),
        }
    }

    /// Ends the report. Messages in transit get a moment to complete.
    pub async fn end(self) {
        // Ending the engine waits for its threads, which must not hold up the others of this runtime.
        let ended = takt_store::spawn_blocking(move || drop(self.alerting)).await;
        if let Err(error) = ended {
            tracing::error!(%error, "the report of the missing store failed to stop");
        }
    }
}

fn start(config: &Config, reason: &str) -> anyhow::Result<Alerting> {
    let Loaded {
        routing, channels, ..
    } = load(config)?;

    let cluster = config.cluster.as_deref().unwrap_or(LOCAL_CLUSTER);
    let address: SocketAddr = config.server.listen_address.parse()?;
    let server = server(config, cluster, address);
    // Without rules, since their queries could only fail. The engine itself reports the failing store.
    let engine = Engine::new(server, &[], &[], XidTable::shipped().clone(), routing);
    // A heartbeat would say that rules are evaluated.
    let watch = WatchConfig {
        heartbeat: None,
        ..watch_config(config)
    };

    let store = NoStore {
        reason: reason.to_owned(),
    };
    let metrics = AlertMetrics::default();
    Ok(Alerting::start(engine, store, channels, watch, metrics)?)
}

/// The services of a store that cannot be opened.
#[derive(Clone)]
struct NoStore {
    reason: String,
}

impl Query for NoStore {
    fn instant(&self, _expr: &str, _at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        Err(QueryError(self.reason.clone()))
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        outside::check(expr)
    }
}

impl SampleSink for NoStore {
    fn write(&self, _samples: &[Sample]) -> Result<(), StoreError> {
        Err(StoreError(self.reason.clone()))
    }
}

impl AlertStore for NoStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::default())
    }

    fn commit(&self, _batch: &Batch, _at: Timestamp) -> Result<(), StoreError> {
        Err(StoreError(self.reason.clone()))
    }
}

impl RuleQueries for NoStore {
    fn exporter_states(&self, _at: Timestamp, _since: Timestamp) -> ExporterStates {
        Box::new(|_| ExporterState::Answers)
    }
}

impl Outside for NoStore {
    fn queries(&self) -> Arc<dyn RuleQueries> {
        Arc::new(self.clone())
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
