//! The successive scrapes of one target.

use super::error::ScrapeError;
use super::evidence::Evidence;
use super::fetch::{FetchedPage, Fetcher};
use super::files::TargetFiles;
use super::job::Job;
use super::metrics::ScrapeMetrics;
use super::page_row::{NewSeries, PageRow, ReadRules, SeriesPlace};
use super::schedule::Schedule;
use super::series_cache::SeriesCache;
use super::status::{MetadataTable, TargetHealth, TargetStatus};
use super::target::Target;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use takt_model::exposition::{self, Metadata};
use takt_model::native::NATIVE_LABEL;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{ClockWentBack, Column, Group, Store};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// State that all scrapers share.
#[derive(Debug)]
pub(super) struct ScraperContext {
    pub store: Arc<Store>,
    pub cluster: String,
    pub files: TargetFiles,
    pub metrics: ScrapeMetrics,
    pub metadata: MetadataTable,
}

/// How the scrapes of a target end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScraperEnd {
    /// The target was removed: its series end.
    Gone,
    /// Another scraper continues the target's series.
    Replaced,
}

/// One target with the memory of its previous page.
pub(super) struct Scraper {
    shared: Arc<ScraperContext>,
    job: Arc<Job>,
    target: Target,
    fetcher: Fetcher,
    /// The file of the connection, while there is one.
    file: Option<OwnedSemaphorePermit>,
    schedule: Schedule,
    group: Group,
    cache: SeriesCache,
    report: ReportColumns,
    evidence: Evidence,
    status: Arc<Mutex<TargetStatus>>,
    page_bytes: usize,
    /// Timestamp of the latest scrape.
    newest: Timestamp,
}

/// Columns of the series that each scrape writes about itself.
struct ReportColumns {
    up: Option<Column>,
    duration: Option<Column>,
    scraped: Option<Column>,
    stored: Option<Column>,
    added: Option<Column>,
}

impl ReportColumns {
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

    /// Reserves Takt's own columns. They are written first, and the first of two samples stays, so
    /// a page cannot overwrite them.
    fn reserve(&self, row: &mut PageRow) {
        for column in [
            self.up,
            self.duration,
            self.scraped,
            self.stored,
            self.added,
        ]
        .into_iter()
        .flatten()
        {
            row.set(column, 0.0);
        }
    }

    fn fill(&self, row: &mut PageRow, is_up: bool, duration: Duration) {
        for (column, value) in [
            (self.up, f64::from(u8::from(is_up))),
            (self.duration, duration.as_secs_f64()),
            (self.scraped, row.samples as f64),
            (self.stored, row.kept as f64),
            (self.added, row.added as f64),
        ] {
            if let Some(column) = column {
                row.values[column.index()] = value;
            }
        }
    }
}

impl Scraper {
    pub fn new(
        shared: Arc<ScraperContext>,
        job: Arc<Job>,
        target: Target,
        fetcher: Fetcher,
        status: Arc<Mutex<TargetStatus>>,
    ) -> Self {
        let schedule = Schedule::new(&target);
        let group = shared.store.group();
        let report = ReportColumns::new(&group, &target);
        let cache = SeriesCache::default();
        let newest = Timestamp(i64::MIN);
        let evidence = Evidence::of(&target.url);
        Self {
            shared,
            job,
            target,
            fetcher,
            file: None,
            schedule,
            group,
            cache,
            report,
            evidence,
            status,
            page_bytes: 0,
            newest,
        }
    }

    /// Scrapes until `end` receives a message or the task is aborted.
    pub async fn run(mut self, mut end: oneshot::Receiver<ScraperEnd>) {
        let end = loop {
            tokio::select! {
                // The end comes first, so that no scrape begins after it. A scrape that it interrupts has stored
                // nothing yet.
                biased;
                end = &mut end => break end,
                () = self.scrape_once() => {}
            }
        };

        if end == Ok(ScraperEnd::Gone)
            && let Err(error) = self.end_series()
        {
            // Without the marker, queries see the series until the lookback ends.
            tracing::warn!(target_url = self.target.shown_url(), %error, "cannot mark the end of a target's series");
        }
    }

    /// Writes a row without series.
    fn end_series(&self) -> Result<(), ClockWentBack> {
        // The latest timestamp may be in the future, because scrapes are snapped to their planned
        // time.
        let at = now().max(self.newest.plus(Duration::from_millis(1)));
        self.group
            .commit(self.group.ticket(at)?, &[], &[])
            .map(drop)
    }

    async fn scrape_once(&mut self) {
        let planned = self.schedule.next(now());
        self.sleep_until(planned).await;

        let started = now();
        let failed = self
            .scrape(self.schedule.timestamp(planned, started))
            .await
            .err();

        self.shared
            .metrics
            .scrape(failed.as_ref().map(ScrapeError::reason));

        self.note(started, failed);
    }

    /// Sleeps by the server's clock, which may be changed meanwhile. Never sleeps beyond the next
    /// planned time of the changed clock.
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
        self.newest = at;

        let started = Instant::now();
        let fetched = self.fetch().await;

        let mut row = PageRow::default();
        row.values.reserve(self.group.width());
        self.report.reserve(&mut row);

        let result = fetched.and_then(|fetched| self.read(&fetched, &mut row));

        // None of a failed page's samples are stored, but the counts of its samples are reported.
        if result.is_err() {
            let PageRow {
                samples,
                kept,
                duplicates,
                ..
            } = row;
            row = PageRow {
                samples,
                kept,
                duplicates,
                ..PageRow::default()
            };
            self.report.reserve(&mut row);
        }

        match &result {
            Ok(()) => self.evidence.clear(),
            Err(error) if error.is_refusal() => {
                self.note_alive(&mut row, "takt_scrape_refused");
            }
            Err(error) => {
                if error.has_answer() || self.evidence.answers() {
                    self.note_alive(&mut row, "takt_scrape_host_answers");
                }
                self.evidence.look();
            }
        }

        self.report
            .fill(&mut row, result.is_ok(), started.elapsed());

        self.shared.metrics.samples.inc_by(row.samples as u64);
        self.shared.metrics.duplicates.inc_by(row.duplicates as u64);
        self.status().take(&row, started.elapsed());

        let committed = self.group.commit(ticket, &row.values, &row.own_time)?;
        self.group.keep_exemplars(at, &row.exemplars);
        // A freed column may be given to another series, so the cache must not keep it.
        self.cache.forget(&committed.dropped);

        result
    }

    /// Fetches a page. Where files are short, the connection is closed after it, for another target's.
    /// Waiting for a file is part of the scrape's timeout.
    async fn fetch(&mut self) -> Result<FetchedPage, ScrapeError> {
        let deadline = tokio::time::Instant::now() + self.target.timeout;
        if self.file.is_none() {
            let file = self.shared.files.for_scrape();
            let file = tokio::time::timeout_at(deadline, file).await;
            self.file = file.ok().flatten();
        }
        if self.file.is_none() {
            return Err(ScrapeError::NoFile);
        }

        let keeps = self.shared.files.has_spare();
        let fetched = self.fetcher.fetch(self.page_bytes, keeps, deadline).await;
        if !keeps {
            self.file = None;
        }
        fetched
    }

    /// Writes that the target's machine runs although the scrape failed. Requests the column each
    /// time, because the store frees the column of a rarely written series.
    fn note_alive(&self, row: &mut PageRow, metric: &str) {
        let mut labels = self.target.labels.clone();
        labels.set(METRIC_NAME, metric);
        if let Some(column) = self.group.column(&labels) {
            row.set(column, 1.0);
        }
    }

    fn read(&mut self, fetched: &FetchedPage, row: &mut PageRow) -> Result<(), ScrapeError> {
        // A sixteenth more, because pages grow a little from scrape to scrape.
        self.page_bytes = fetched.body.len() + fetched.body.len() / 16;

        let rules = ReadRules {
            sample_limit: self.job.limits.samples,
            honor_timestamps: self.job.config.honor_timestamps,
        };

        let mut new_series = StoreSeries {
            shared: &self.shared,
            job: &self.job,
            target: &self.target,
            group: &self.group,
            has_parts: fetched.has_parts,
            checked: HashSet::new(),
        };

        self.cache
            .read(fetched.format, &fetched.body, rules, row, &mut new_series)
    }

    fn note(&self, started: Timestamp, failed: Option<ScrapeError>) {
        let mut status = self.status();
        let before = status.health;
        status.last_scrape = Some(started);
        status.health = if failed.is_some() {
            TargetHealth::Down
        } else {
            TargetHealth::Up
        };

        status.reason = failed.as_ref().map(ScrapeError::reason);
        status.error = failed.as_ref().map(ScrapeError::in_full);

        // Only changes are logged: the scrapes of a dead target would fill the log.
        let target_url = self.target.shown_url();
        match (before, &status.error) {
            (TargetHealth::Down, Some(_)) | (TargetHealth::Up, None) => {}
            (_, None) => tracing::info!(target_url, "a target is up"),
            (TargetHealth::Up, Some(error)) => {
                tracing::warn!(target_url, %error, "a target went down")
            }
            (TargetHealth::Unknown, Some(error)) => {
                tracing::warn!(target_url, %error, "a target is down")
            }
        }
    }

    fn status(&self) -> std::sync::MutexGuard<'_, TargetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Registers new series with the store and stores their metadata.
struct StoreSeries<'a> {
    shared: &'a ScraperContext,
    job: &'a Job,
    target: &'a Target,
    group: &'a Group,
    /// Whether the page has the parts of native histograms.
    has_parts: bool,
    /// Hashes of the new series that were checked. Two lines may have the same series.
    checked: HashSet<u64>,
}

impl NewSeries for StoreSeries<'_> {
    fn check(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError> {
        let line = sample.line;
        let Some(labels) = self.labels(sample)? else {
            return Ok(false);
        };

        if labels.metric().is_empty() {
            return Err(ScrapeError::Nameless { line });
        }
        self.check_labels(&labels, line)?;

        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        self.checked.insert(hasher.finish());

        let limit = self.job.limits.series;
        if self.group.series_count() + self.checked.len() > limit {
            return Err(ScrapeError::TooManySeries { line, limit });
        }
        Ok(true)
    }

    fn place(&mut self, sample: &exposition::Sample<'_>) -> Result<SeriesPlace, ScrapeError> {
        let Some(labels) = self.labels(sample)? else {
            return Ok(SeriesPlace::Dropped);
        };
        Ok(self
            .group
            .column(&labels)
            .map_or(SeriesPlace::Elsewhere, SeriesPlace::Column))
    }

    fn is_kept(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError> {
        self.labels(sample).map(|labels| labels.is_some())
    }

    fn describe(&mut self, metadata: &Metadata<'_>) {
        self.shared.metadata.note(metadata);
    }
}

impl StoreSeries<'_> {
    /// Returns the labels of the series in the store; `None` if relabelling drops it.
    fn labels(&self, sample: &exposition::Sample<'_>) -> Result<Option<Labels>, ScrapeError> {
        let honor_labels = self.job.config.honor_labels;
        let emptied = if honor_labels {
            sample.emptied_labels()?
        } else {
            Vec::new()
        };

        let mut labels = self
            .target
            .series_labels(sample.normal_labels()?, honor_labels, &emptied);

        // Relabelling sees a histogram, not its parts. Only pages in protobuf have parts.

        let part = labels.remove(NATIVE_LABEL).filter(|_| self.has_parts);
        let is_kept = self.job.metric_relabel.apply(&mut labels) && !labels.is_empty();
        if let Some(part) = part {
            labels.set(NATIVE_LABEL, &part);
        }
        Ok(is_kept.then_some(labels))
    }

    fn check_labels(&self, labels: &Labels, line: usize) -> Result<(), ScrapeError> {
        let limits = &self.job.limits;
        let found = labels.len().saturating_sub(self.target.added_labels);
        let limit = limits.labels;
        if found > limit {
            return Err(ScrapeError::TooManyLabels { line, found, limit });
        }

        for (name, value) in labels.iter() {
            if name.is_empty() {
                return Err(ScrapeError::NamelessLabel { line });
            }
            let found = name.len();
            let limit = limits.label_name_bytes;
            if found > limit {
                return Err(ScrapeError::LabelNameTooLong { line, found, limit });
            }

            let found = value.len();
            let limit = limits.label_value_bytes;
            if found > limit {
                return Err(ScrapeError::LabelValueTooLong { line, found, limit });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{ScrapeConfig, TargetConfig};
    use super::*;
    use prometheus_client::registry::Registry;
    use rustls::crypto::ring;
    use takt_store::{DataDir, StoreConfig};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    #[tokio::test]
    async fn waiting_for_a_file_is_part_of_the_timeout() {
        // Fails if another test came first.
        let _ = ring::default_provider().install_default();
        let root = tempfile::tempdir().unwrap();
        let mut registry = Registry::default();
        let data = DataDir::claim(root.path()).unwrap();
        let store = Arc::new(Store::open(data, &StoreConfig::default(), &mut registry).unwrap());

        // It accepts the connection and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = ScrapeConfig {
            interval_seconds: 1.0,
            timeout_seconds: Some(1.0),
            targets: vec![TargetConfig {
                address: silent.local_addr().unwrap().to_string(),
                ..TargetConfig::default()
            }],
            ..ScrapeConfig::default()
        };
        let (job, mut targets) = config.listed("lab").unwrap();
        let job = Arc::new(job);
        let target = targets.remove(0);
        let client = job.http.client().unwrap();
        let fetcher = Fetcher::new(&job, &target, &client).unwrap();
        let status = Arc::new(Mutex::new(TargetStatus::new(&target, "lab")));
        let context = ScraperContext {
            store,
            cluster: "lab".to_owned(),
            files: TargetFiles::new(2),
            metrics: ScrapeMetrics::register(&mut registry),
            metadata: MetadataTable::default(),
        };
        let mut scraper = Scraper::new(Arc::new(context), job, target, fetcher, status);

        let files = scraper.shared.files.clone();
        // All files are taken until 0.2 s before the timeout.
        let taken = [files.for_scrape().await, files.for_scrape().await];
        tokio::spawn(async move {
            sleep(Duration::from_millis(800)).await;
            drop(taken);
        });
        let began = Instant::now();
        let failed = scraper.fetch().await.unwrap_err();
        assert!(matches!(failed, ScrapeError::Timeout { .. }), "{failed}");

        // With a timeout that begins when the file is there, the scrape would end after 1.8 s.
        let passed = began.elapsed();
        assert!(passed < Duration::from_millis(1700), "{passed:?}");
    }
}
