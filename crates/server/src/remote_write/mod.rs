//! Remote write: sends stored samples to other Prometheus-compatible systems.
//!
//! The store is the queue. For each destination, `records.duckdb` holds the time up to which all
//! samples are acknowledged. A task reads the settled samples of a window after it, sends them, and
//! moves the time when the receiver has taken or refused each of them. A crash, a slow receiver and
//! a receiver that is down for a day are thus one case, and memory is bounded by one window.
//!
//! After a crash the same window is sent again, in the same requests: Prometheus 2 refuses a whole
//! request that begins with a sample it already has, so a request must be stored as a whole or not
//! at all.

mod config;
mod metrics;
mod sender;
mod window;

pub use config::RemoteWriteConfig;
pub use metrics::RemoteWriteMetrics;

use anyhow::Context;
use futures_util::future::join_all;
use sender::{Batch, BatchSender};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use takt_alerts::notify::http::HttpSender;
use takt_model::{Labels, Matcher, Timestamp};
use takt_push::remote_write::RequestWriter;
use takt_store::blocking;
use takt_store::{Records, RemoteWriteProgress, SeriesData, Store, StoreError};
use tokio::time;
use window::{Window, WindowLength};

/// Pause while fewer samples than a window are settled.
const PAUSE: Duration = Duration::from_secs(1);

/// Age of the oldest sample of a new store that a new destination gets.
const NEW_STORE: Duration = Duration::from_secs(60);

/// Pause after an error of the store.
const STORE_PAUSE: Duration = Duration::from_secs(10);

/// A destination with everything that its task needs.
#[derive(Clone)]
pub struct Destination {
    store: Arc<Store>,
    sender: BatchSender,
    /// Lists of matchers; a series that one of them selects is sent.
    selectors: Arc<Vec<Vec<Matcher>>>,
    external_labels: Labels,
    samples_per_request: usize,
    connections: usize,
    catch_up: Duration,
    /// How late samples may arrive that are sent.
    lateness: Duration,
}

impl Destination {
    /// Returns the destination that a section of the configuration describes.
    ///
    /// # Errors
    /// If a selector is invalid, or a file with a secret or certificate cannot be read.
    pub fn new(
        config: &RemoteWriteConfig,
        store: &Arc<Store>,
        metrics: &RemoteWriteMetrics,
        lateness: Duration,
    ) -> anyhow::Result<Self> {
        let name = config.name();
        metrics.expect(&name);
        Ok(Self {
            store: Arc::clone(store),
            sender: BatchSender {
                http: HttpSender::new(&config.http_options()?).context("HTTP client")?,
                url: config.url.clone(),
                name,
                protocol: config.protocol,
                metrics: metrics.clone(),
            },
            selectors: Arc::new(config.selectors()?),
            external_labels: config.labels(),
            samples_per_request: config.samples_per_request,
            connections: config.connections,
            catch_up: Duration::from_secs(config.catch_up_hours * 3600),
            lateness,
        })
    }

    /// Sends samples until the future is dropped. Begins with the samples after the first start.
    pub async fn keep_sending(self) {
        let mut length = WindowLength::default();
        // Unknown at first, and after an error of the store: then it is read again.
        let mut progress = None;
        loop {
            match self.send_next(&mut progress, &mut length).await {
                Ok(true) => {}
                Ok(false) => time::sleep(PAUSE).await,
                Err(error) => {
                    tracing::error!(
                        destination = self.sender.name,
                        error = takt_model::error_chain(&error),
                        "remote write cannot use the store"
                    );
                    time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    /// Sends the next window. `progress` is what the store holds, once it is known. Returns `false`
    /// if no window is settled yet.
    async fn send_next(
        &self,
        progress: &mut Option<RemoteWriteProgress>,
        length: &mut WindowLength,
    ) -> Result<bool, StoreError> {
        let known = match *progress {
            Some(known) => known,
            None => self.progress().await?,
        };

        let acknowledged = self.without_old(known.acknowledged);
        self.note_lag(acknowledged);
        // A window that was under way at a crash is sent again with the same bounds.
        let interrupted = known.sending.filter(|&to| to > acknowledged);
        let next = match interrupted {
            Some(to) => Some(Window {
                after: acknowledged,
                to,
            }),
            None => length.next(acknowledged, self.settled()),
        };

        let Some(window) = next else {
            // Nothing is settled: only the time that was skipped is kept.
            *progress = Some(RemoteWriteProgress {
                acknowledged,
                ..known
            });
            return Ok(false);
        };

        // Noted before sending, so that a crash repeats the same window.
        let sending = RemoteWriteProgress {
            acknowledged,
            sending: Some(window.to),
        };
        self.note(sending).await?;
        *progress = Some(sending);

        let this = self.clone();
        let series = blocking(move || this.read(window)).await?;
        let samples = series.iter().map(|series| series.samples.len()).sum();
        // Each connection sends its own series, so their requests cannot overtake each other.
        join_all(
            (0..self.connections).map(|number| self.send_shard(&series, number, acknowledged)),
        )
        .await;

        // All requests are taken or refused: the window is done.
        let sent = RemoteWriteProgress {
            acknowledged: window.to,
            sending: None,
        };
        self.note(sent).await?;
        *progress = Some(sent);

        let span = Duration::from_millis(window.to.0.abs_diff(window.after.0));
        *length = length.after(span, samples);
        Ok(true)
    }

    /// Returns the stored progress. A new destination begins at the present time.
    async fn progress(&self) -> Result<RemoteWriteProgress, StoreError> {
        let this = self.clone();
        let name = self.sender.name.clone();
        let found = blocking(move || Records::of(this.store.database()).remote_write(&name));
        if let Some(found) = found.await? {
            return Ok(found);
        }

        // A new store has no watermark yet.
        let latest = Timestamp::from(SystemTime::now()).minus(NEW_STORE);
        let now = RemoteWriteProgress {
            acknowledged: self.store.watermark().max(latest),
            sending: None,
        };
        self.note(now).await?;
        Ok(now)
    }

    async fn note(&self, progress: RemoteWriteProgress) -> Result<(), StoreError> {
        let this = self.clone();
        let name = self.sender.name.clone();
        let note = move || Records::of(this.store.database()).note_remote_write(&name, progress);
        blocking(note).await
    }

    /// Time up to which all samples have arrived. Samples of a clock that is ahead for a moment wait:
    /// once acknowledged, their time would end the sending of all earlier ones.
    fn settled(&self) -> Timestamp {
        self.store.watermark().min(self.now()).minus(self.lateness)
    }

    fn now(&self) -> Timestamp {
        self.store.database().clock_state().alerting_time()
    }

    /// Skips the samples that are older than the time to catch up.
    fn without_old(&self, acknowledged: Timestamp) -> Timestamp {
        let oldest = self.now().minus(self.catch_up);
        let begin = window::begin_of(acknowledged, oldest, self.settled());
        if begin > acknowledged {
            let skipped = begin.as_seconds() - acknowledged.as_seconds();
            self.sender.metrics.skipped(&self.sender.name, skipped);
            tracing::warn!(
                destination = self.sender.name,
                seconds = skipped,
                "samples are older than catch_up_hours; they are not sent"
            );
        }
        begin
    }

    fn note_lag(&self, acknowledged: Timestamp) {
        let now = self.now();
        let lag = (now.as_seconds() - acknowledged.as_seconds()).max(0.0);
        self.sender.metrics.lag(&self.sender.name, lag);
    }

    /// Reads the samples of a window, each series once.
    fn read(&self, window: Window) -> Result<Vec<SeriesData>, StoreError> {
        // `after` is acknowledged itself, so the window begins a millisecond later.
        let from = window.after.plus(Duration::from_millis(1));
        let mut found: Vec<SeriesData> = Vec::new();
        for matchers in self.selectors.iter() {
            found.extend(self.store.own_range(matchers, from, window.to)?);
        }

        // Several selectors may select one series.
        found.sort_unstable_by_key(|series| series.id);
        found.dedup_by_key(|series| series.id);
        Ok(found)
    }

    /// Sends every series of one connection, a request after the other, so that no sample of a
    /// series overtakes another.
    async fn send_shard(&self, series: &[SeriesData], number: usize, acknowledged: Timestamp) {
        // By id: a series is always sent over the same connection.
        let is_own = |series: &&SeriesData| series.id.0 as usize % self.connections == number;
        let mut writer = RequestWriter::new(self.sender.protocol);
        let mut count = 0;
        for series in series.iter().filter(is_own) {
            let labels = self.labelled(&series.labels);
            for samples in series.samples.chunks(self.samples_per_request) {
                // A request has samples of whole chunks. It is sent before one that would make it too large.
                if count + samples.len() > self.samples_per_request {
                    self.send(&mut writer, &mut count, acknowledged).await;
                }
                writer.add(&labels, samples.iter().map(|one| (one.at, one.value)));
                count += samples.len();
            }
        }
        // The rest of the last request.
        if count > 0 {
            self.send(&mut writer, &mut count, acknowledged).await;
        }
    }

    /// Sends the request, and begins the next one.
    async fn send(&self, writer: &mut RequestWriter, count: &mut usize, acknowledged: Timestamp) {
        let batch = Batch::of(writer, *count);
        *writer = RequestWriter::new(self.sender.protocol);
        *count = 0;
        // While the receiver does not answer, the lag grows and must be seen.
        let waiting = || self.note_lag(acknowledged);
        self.sender.send(batch, waiting).await;
    }

    fn labelled(&self, labels: &Labels) -> Labels {
        let mut labels = labels.clone();
        for (name, value) in self.external_labels.iter() {
            // A label of the series has priority, as with Prometheus.
            if labels.get(name).is_none() {
                labels.set(name, value);
            }
        }
        labels
    }
}
