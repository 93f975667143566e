//! Keeps the strips of GPUs up to date, and on disk.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_model::error_chain;
use takt_store::{Store, spawn_blocking};
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Pause between two fillings of the newest slot.
const INTERVAL: Duration = Duration::from_secs(30);

/// Longest pause while older slots remain to be filled.
const CATCH_UP: Duration = Duration::from_millis(250);

/// Pause while older slots remain to be filled, as a multiple of the time that the last ones took.
const CATCH_UP_SHARE: u32 = 4;

/// Time between two writings of the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(3600);

/// Fills the strips until `stop` is cancelled, then writes them.
pub(crate) async fn keep_filling(store: Arc<Store>, stop: CancellationToken) {
    let mut saved = Instant::now();
    loop {
        let of = Arc::clone(&store);
        let now = SystemTime::now().into();
        let began = Instant::now();
        let filled = spawn_blocking(move || of.fill_strips(now)).await;
        // Older slots are filled with pauses, so that a long history does not use a core for minutes.
        let pause = match filled {
            Ok(Ok(true)) => CATCH_UP.min(began.elapsed() * CATCH_UP_SHARE),
            Ok(Ok(false)) => INTERVAL,
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot fill the strips of GPUs");
                INTERVAL
            }
            Err(_) => return,
        };
        // A crash loses at most an hour of strips, which are computed again from the samples.
        if saved.elapsed() > SAVE_INTERVAL {
            save(&store).await;
            saved = Instant::now();
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = time::sleep(pause) => {}
        }
    }
    // The last state, for a start without computing.
    save(&store).await;
}

async fn save(store: &Arc<Store>) {
    let of = Arc::clone(store);
    let saved = spawn_blocking(move || of.strips().save(&of.path())).await;
    if let Ok(Err(error)) = saved {
        tracing::warn!(%error, "cannot write the strips of GPUs");
    }
}
