//! Values that the server stores at intervals.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use takt_collector::scrape::{ScrapeManager, TargetHealth};
use takt_model::{Labels, error_chain};
use takt_questions::{AccountingConfig, CardWatch};
use takt_store::{Store, StoreError, spawn_blocking};
use tokio::time;

/// Stores the fair share once an hour, for its history.
pub(super) async fn note_fairshare(store: Arc<Store>, cluster: String, config: AccountingConfig) {
    const HOUR_SECONDS: i64 = 3600;
    const SOON: Duration = Duration::from_secs(60);
    loop {
        time::sleep(SOON).await;
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let config = config.clone();
        let note = move || {
            takt_questions::note_fairshare(store.database(), &cluster, &config, HOUR_SECONDS)
        };
        match spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot store the fair share")
            }
            Err(_) => return,
        }
    }
}

/// Forecasts the starts of waiting jobs every five minutes, at most 2 % of the time of one core.
pub(super) async fn forecast_starts(store: Arc<Store>, cluster: String) {
    const INTERVAL: Duration = Duration::from_secs(300);
    const PAUSE_RATIO: u32 = 50;
    // The first poll of the scheduler comes first.
    const SOON: Duration = Duration::from_secs(60);
    let mut pause = SOON;
    loop {
        time::sleep(pause).await;
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let round = move || takt_questions::forecast_starts(store.database(), &cluster);
        let took = match spawn_blocking(round).await {
            Ok(Ok(took)) => took,
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot forecast the starts of jobs");
                None
            }
            Err(_) => return,
        };
        // Nothing waits: a job that comes gets its forecast soon.
        pause = took.map_or(SOON, |took| INTERVAL.max(took * PAUSE_RATIO));
    }
}

/// Follows which card is in which slot, and what the cards count.
pub(super) async fn watch_cards(store: Arc<Store>, cluster: String) {
    const INTERVAL: Duration = Duration::from_secs(15);
    let mut watch: Option<CardWatch> = None;
    loop {
        time::sleep(INTERVAL).await;
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        // Moved into the task. After an error it is read again from the records.
        let known = watch.take();
        let round = move || {
            let mut watch = match known {
                Some(watch) => watch,
                None => CardWatch::open(&store, &cluster)?,
            };
            watch.look(&store, &cluster, SystemTime::now().into())?;
            Ok::<_, StoreError>(watch)
        };
        match spawn_blocking(round).await {
            Ok(Ok(looked)) => watch = Some(looked),
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot store where cards are")
            }
            Err(_) => return,
        }
    }
}

/// Compares the clock with those of nodes that are scraped.
pub(super) async fn watch_clock(store: Arc<Store>, scrape: Weak<ScrapeManager>) {
    const INTERVAL: Duration = Duration::from_secs(15);
    loop {
        let Some(targets) = scrape.upgrade().map(|scrape| scrape.targets()) else {
            return;
        };
        let up: Vec<Labels> = targets
            .into_iter()
            .filter(|target| target.health == TargetHealth::Up)
            .map(|target| target.labels)
            .collect();

        let of = Arc::clone(&store);
        match spawn_blocking(move || of.hear_witnesses(&up)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot read the clocks of nodes")
            }
            Err(_) => return,
        }
        time::sleep(INTERVAL).await;
    }
}

/// Stores time zones, prices and budgets for SQL every ten minutes: clusters may be added, and
/// budgets are used.
pub(super) async fn note_calendar(store: Arc<Store>, cluster: String, config: AccountingConfig) {
    const INTERVAL: Duration = Duration::from_secs(600);
    loop {
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let config = config.clone();
        let note = move || {
            takt_questions::note_calendar(store.database(), Some(&cluster), &config)?;
            takt_questions::note_budgets(store.database(), Some(&cluster), &config)
        };
        match spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot store prices and budgets")
            }
            Err(_) => return,
        }
        time::sleep(INTERVAL).await;
    }
}
