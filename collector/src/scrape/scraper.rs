//! One target's scrapes, one after the other.

use super::config::ScrapeConfig;
use super::error::ScrapeError;
use super::fetch::{FetchLimits, Fetched, fetch};
use super::manager::{MetadataTable, TargetHealth, TargetStatus};
use super::metrics::ScrapeMetrics;
use super::schedule::Schedule;
use super::shape::{Newcomers, PageRow, Shape};
use super::target::Target;
use crate::store::{Column, Group, Store};
use reqwest::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use takt_model::exposition::{self, Metadata};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// What all scrapers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub client: Client,
    pub config: ScrapeConfig,
    pub metrics: ScrapeMetrics,
    pub metadata: MetadataTable,
}

/// One target with what is remembered of it.
pub(super) struct Scraper {
    shared: Arc<Shared>,
    target: Target,
    schedule: Schedule,
    group: Group,
    shape: Shape,
    report: Report,
    status: Arc<Mutex<TargetStatus>>,
    page_bytes: usize,
}

/// The columns of the series that each scrape writes about itself.
struct Report {
    up: Option<Column>,
    duration: Option<Column>,
    scraped: Option<Column>,
    stored: Option<Column>,
    added: Option<Column>,
}

impl Report {
    fn new(group: &Group, target: &Target) -> Self {
        let column = |metric| {
            let mut labels = target.labels.clone();
            labels.set(METRIC_NAME, metric);
            group.column(&labels)
        };
        Self {
            up: column("up"),
            duration: column("scrape_duration_seconds"),
            scraped: column("scrape_samples_scraped"),
            stored: column("scrape_samples_post_metric_relabeling"),
            added: column("scrape_series_added"),
        }
    }

    /// A page cannot set these: ours are written first, and the first of two samples stays.
    fn reserve(&self, row: &mut PageRow) {
        for column in [self.up, self.duration, self.scraped, self.stored, self.added].into_iter().flatten() {
            row.set(column, 0.0);
        }
    }

    fn fill(&self, row: &mut PageRow, is_up: bool, duration: Duration) {
        for (column, value) in [
            (self.up, f64::from(u8::from(is_up))),
            (self.duration, duration.as_secs_f64()),
            (self.scraped, row.samples as f64),
            (self.stored, (row.samples - row.duplicates) as f64),
            (self.added, row.added as f64),
        ] {
            if let Some(column) = column {
                row.values[column.index()] = value;
            }
        }
    }
}

impl Scraper {
    pub fn new(shared: Arc<Shared>, store: &Store, target: Target, status: Arc<Mutex<TargetStatus>>) -> Self {
        let schedule = Schedule::new(&target, shared.config.interval());
        let group = store.group();
        let report = Report::new(&group, &target);
        Self { shared, target, schedule, group, shape: Shape::default(), report, status, page_bytes: 0 }
    }

    /// Scrapes until the task is aborted.
    pub async fn run(mut self) {
        loop {
            let planned = self.schedule.next(now());
            self.sleep_until(planned).await;
            let started = now();
            let failed = self.scrape(self.schedule.timestamp(planned, started)).await.err();
            self.shared.metrics.scrape(failed.as_ref().map(ScrapeError::reason));
            self.note(started, failed);
        }
    }

    /// Sleeps by the server's clock, which may be set meanwhile: never beyond what is then the next planned instant.
    async fn sleep_until(&self, planned: Timestamp) {
        let due = UNIX_EPOCH + Duration::from_millis(planned.0.unsigned_abs());
        while let Ok(left) = due.duration_since(SystemTime::now())
            && planned <= self.schedule.next(now())
        {
            tokio::time::sleep(left).await;
        }
    }

    async fn scrape(&mut self, at: Timestamp) -> Result<(), ScrapeError> {
        let ticket = self.group.ticket(at)?;
        let started = Instant::now();
        let limits =
            FetchLimits { timeout: self.shared.config.timeout(), body_bytes: self.shared.config.body_size_limit_bytes };
        let fetched = fetch(&self.shared.client, &self.target.url, limits, self.page_bytes).await;
        let mut row = PageRow::default();
        row.values.reserve(self.group.width());
        self.report.reserve(&mut row);
        let result = fetched.and_then(|fetched| self.read(&fetched, &mut row));
        if result.is_err() {
            let PageRow { samples, .. } = row;
            row = PageRow { samples, ..PageRow::default() };
            self.report.reserve(&mut row);
        }
        self.report.fill(&mut row, result.is_ok(), started.elapsed());
        self.shared.metrics.samples.inc_by(row.samples as u64);
        self.shared.metrics.duplicates.inc_by(row.duplicates as u64);
        self.status().take(&row, started.elapsed());
        let committed = self.group.commit(ticket, &row.values, &row.own_time)?;
        self.shape.forget(&committed.dropped);
        result
    }

    fn read(&mut self, fetched: &Fetched, row: &mut PageRow) -> Result<(), ScrapeError> {
        self.page_bytes = fetched.body.len() + fetched.body.len() / 16;
        let limit = self.shared.config.sample_limit;
        let mut newcomers = ToStore { shared: &self.shared, target: &self.target, group: &self.group };
        self.shape.read(fetched.format, &fetched.body, limit, row, &mut newcomers)
    }

    fn note(&self, started: Timestamp, failed: Option<ScrapeError>) {
        let mut status = self.status();
        let was_up = status.health == TargetHealth::Up;
        status.last_scrape = Some(started);
        status.health = if failed.is_some() { TargetHealth::Down } else { TargetHealth::Up };
        status.reason = failed.as_ref().map(ScrapeError::reason);
        status.error = failed.as_ref().map(ScrapeError::in_full);
        match (was_up, &status.error) {
            (true, Some(error)) => tracing::warn!(target_url = %self.target.url, %error, "a target went down"),
            (false, None) => tracing::info!(target_url = %self.target.url, "a target is up"),
            _ => {}
        }
    }

    fn status(&self) -> std::sync::MutexGuard<'_, TargetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Takes new series to the store and descriptions to the metadata.
struct ToStore<'a> {
    shared: &'a Shared,
    target: &'a Target,
    group: &'a Group,
}

impl Newcomers for ToStore<'_> {
    fn column(&mut self, sample: &exposition::Sample<'_>) -> Result<Option<Column>, ScrapeError> {
        let labels = self.target.series_labels(sample.labels()?);
        self.check(&labels, sample.line)?;
        Ok(self.group.column(&labels))
    }

    fn describe(&mut self, metadata: &Metadata<'_>) {
        self.shared.metadata.note(metadata);
    }
}

impl ToStore<'_> {
    fn check(&self, labels: &Labels, line: usize) -> Result<(), ScrapeError> {
        let config = &self.shared.config;
        let (found, limit) = (labels.len(), config.label_limit);
        if found > limit {
            return Err(ScrapeError::TooManyLabels { line, found, limit });
        }
        for (name, value) in labels.iter() {
            let (found, limit) = (name.len(), config.label_name_length_limit);
            if found > limit {
                return Err(ScrapeError::LabelNameTooLong { line, found, limit });
            }
            let (found, limit) = (value.len(), config.label_value_length_limit);
            if found > limit {
                return Err(ScrapeError::LabelValueTooLong { line, found, limit });
            }
        }
        Ok(())
    }
}
