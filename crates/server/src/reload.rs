//! Reading the configuration again while the server runs: at SIGHUP, by a request, from a page.

use crate::alerting;
use crate::config::CurrentConfig;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use takt_access::{Role, RouteNeeds};
use takt_api::{ReloadResult, Reloading};
use takt_collector::scrape::ScrapeManager;
use takt_identity::{ErrorBody, GuardedRouter};

/// Reloads the configuration while the server runs.
#[derive(Clone)]
pub struct Reload {
    scrape: Arc<ScrapeManager>,
    alerts: alerting::Reload,
    /// The configuration in force, which a reload changes.
    pub(crate) current: CurrentConfig,
    /// Whether the last reload succeeded.
    reloaded: Gauge,
    /// Sections that the last reload found changed and that need a restart.
    waiting: Arc<Mutex<Vec<String>>>,
}

impl Reload {
    /// Returns the handle, and registers the metric of the last reload.
    pub(crate) fn new(
        scrape: Arc<ScrapeManager>,
        alerts: alerting::Reload,
        current: CurrentConfig,
        registry: &mut Registry,
    ) -> Self {
        let reloaded = Gauge::default();
        // 1 from the start: an alert on 0 must not fire before the first reload.
        reloaded.set(1);
        registry.register(
            "takt_server_config_reload_successful",
            "Whether the last reload of the configuration succeeded",
            reloaded.clone(),
        );
        Self {
            scrape,
            alerts,
            current,
            reloaded,
            waiting: Arc::default(),
        }
    }

    fn lock_waiting(&self) -> MutexGuard<'_, Vec<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the route that reloads.
    pub(crate) fn router(self) -> GuardedRouter {
        let needs = RouteNeeds::change(Role::Admin);
        GuardedRouter::new().route("/-/reload", needs, post(reload_now).with_state(self))
    }

    /// Applies the new `[scrape]`, `[alerts]` and `[email]`. Returns what was done, and which other
    /// sections changed and need a restart.
    ///
    /// # Errors
    /// If a part of the configuration is invalid. Nothing changes then.
    pub async fn now(&self) -> anyhow::Result<String> {
        let result = self.read_and_follow().await;
        self.reloaded.set(i64::from(result.is_ok()));
        result
    }

    async fn read_and_follow(&self) -> anyhow::Result<String> {
        let current = self.current.clone();
        // Taken before reading: a file that is written meanwhile counts as newer than the configuration.
        let read_at = SystemTime::now();
        let (config, alerts) = takt_store::spawn_blocking(move || -> anyhow::Result<_> {
            // Both are read before anything is applied, so a mistake changes nothing.
            let config = current.read_again()?;
            let alerts = alerting::load(&config)?;
            Ok((config, alerts))
        })
        .await??;

        self.scrape.reload(&config.scrape)?;
        self.alerts.follow(&config, alerts).await?;

        let waiting = self.current.follow(config, read_at);
        let done = reload_summary(&waiting);
        *self.lock_waiting() = waiting;
        tracing::info!("configuration {done}");
        Ok(done)
    }

    /// Reloads at each SIGHUP, until the future is dropped.
    pub(crate) async fn at_hangups(self) {
        // Without a handler for SIGHUP, a reload is still possible by a request.
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            return;
        };
        while hangups.recv().await.is_some() {
            // Nothing waits for the answer here, so it goes to the log.
            if let Err(error) = self.now().await {
                tracing::error!(
                    error = format!("{error:#}"),
                    "reload failed; keeping the previous configuration"
                );
            }
        }
    }
}

impl Reloading for Reload {
    fn waiting(&self) -> Vec<String> {
        self.lock_waiting().clone()
    }

    fn now(&self) -> ReloadResult<'_> {
        Box::pin(Self::now(self))
    }
}

/// Says what a reload did. `waiting`: the sections that changed and need a restart.
fn reload_summary(waiting: &[String]) -> String {
    let done = "reloaded: [scrape], [alerts] and [email] are in use";
    let mut said = match waiting {
        [] => done.to_owned(),
        [one] => format!("{done}; {one} changed and needs a restart"),
        _ => format!("{done}; {} changed and need a restart", waiting.join(", ")),
    };
    // Only this part of `[reports]` is used by alerts, which read it again.
    if waiting.iter().any(|section| section == "[reports]") {
        said.push_str(" (the addresses of users are in use for alerts already)");
    }
    said
}

async fn reload_now(State(reload): State<Reload>) -> Response {
    match reload.now().await {
        Ok(done) => format!("{done}\n").into_response(),
        Err(error) => {
            let error = format!("{error:#}; keeping the previous configuration");
            ErrorBody::failed(error).into_response()
        }
    }
}
