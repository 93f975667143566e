//! The collectors of a node, and the page that they make.

mod error;
mod own;

pub use self::error::Error;
pub use self::own::OWN_METRICS;
pub(crate) use self::own::Refusals;

use self::own::{report_build, report_process, report_read_at, report_reading};
use crate::collectors::{COLLECTORS, CollectorEntry, Options, Reads};
use crate::crash_guard::CrashGuard;
use crate::events::Events;
use crate::metered::MeteredCollector;
use crate::pace::Pace;
use crate::reader::{Reader, ReaderAnswer};
use crate::web::{Connections, PageLimit, PagePermit, connections, report_connections};
use crate::web_config::LiveConfig;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use takt_model::Samples;
use takt_model::exposition::{Format, write_page};
use tokio::sync::{Mutex, watch};

/// The collector that calls the driver's library, which runs in this process and may end it.
const FOREIGN_CODE: &str = "nvml";

/// How long a start waits for the threads' first readings, so that the first page is whole.
const HEAD_START: Duration = Duration::from_millis(250);

/// The collectors of one node. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Exporter(Arc<Inner>);

struct Inner {
    at_scrape: Mutex<AtScrape>,
    readers: Vec<Reader>,
    pace: Arc<Pace>,
    names: Vec<&'static str>,
    guards: Vec<Arc<CrashGuard>>,
    events: Events,
    connections: Arc<Connections>,
    pages: PageLimit,
    refusals: Refusals,
    /// Whether the page has the metrics of the process.
    shows_process: bool,
    web_config: Option<Arc<LiveConfig>>,
    telemetry_path: String,
    ended: watch::Sender<bool>,
    page_bytes: AtomicUsize,
}

/// The collectors that read during a scrape, each with its samples.
struct AtScrape {
    collectors: Vec<(MeteredCollector, Samples)>,
    report: Samples,
}

/// The collectors that were started so far.
#[derive(Default)]
struct Started {
    at_scrape: Vec<(MeteredCollector, Samples)>,
    readers: Vec<Reader>,
    pace: Arc<Pace>,
    names: Vec<&'static str>,
    guards: Vec<Arc<CrashGuard>>,
}

impl Started {
    fn start(
        &mut self,
        entry: &CollectorEntry,
        options: &Options,
        events: &Events,
    ) -> io::Result<()> {
        self.names.push(entry.name);
        let mut collector = (entry.new)(options);
        collector.attach(events)?;

        match entry.reads {
            Reads::AtScrape => {
                let metered = MeteredCollector::new(entry.name, collector);
                self.at_scrape.push((metered, Samples::new()));
            }
            Reads::OnItsThread { deadline, pause } => {
                let guard = guard(entry.name, options);
                self.guards.extend(guard.clone());
                let pace = Arc::clone(&self.pace);
                let reader = Reader::start(entry.name, collector, deadline, pause, pace, guard)?;
                self.readers.push(reader);
            }
        }
        Ok(())
    }
}

/// The count of crashes of a collector that runs code of others, where there is a place to keep it.
fn guard(collector: &str, options: &Options) -> Option<Arc<CrashGuard>> {
    let state = options.state_directory.as_deref()?;
    // Only foreign code can end the process. The failures of other collectors are errors.
    if collector != FOREIGN_CODE {
        return None;
    }
    match CrashGuard::begin(state, collector) {
        Ok(guard) => Some(Arc::new(guard)),
        Err(error) => {
            tracing::warn!(collector, %error, "cannot count crashes in the state directory");
            None
        }
    }
}

/// The collectors that a request asks for (`collect[]`, `exclude[]`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wanted {
    /// All that run.
    #[default]
    All,
    /// Only these.
    Only(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

impl Wanted {
    fn includes(&self, name: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|wanted| wanted == name);
        match self {
            Self::All => true,
            Self::Only(names) => named(names),
            Self::AllBut(names) => !named(names),
        }
    }

    fn names(&self) -> &[String] {
        match self {
            Self::All => &[],
            Self::Only(names) | Self::AllBut(names) => names,
        }
    }
}

/// Who asks for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// One who comes again: readings are made shortly before the next visit.
    Scraper,
    /// `takt node ok`, which comes with jobs. Its visits set no pace, or each job would make the collectors read
    /// faster for a while.
    NodeOk,
}

impl Visitor {
    /// Recognises the visitor by its user agent.
    pub fn of_user_agent(user_agent: Option<&str>) -> Self {
        match user_agent {
            Some(name) if name.starts_with(takt_fitness::USER_AGENT) => Self::NodeOk,
            _ => Self::Scraper,
        }
    }
}

/// A request names a collector that does not run.
#[derive(Debug, thiserror::Error)]
#[error("no collector {name:?} is running; there are {}", running.join(", "))]
pub struct UnknownCollector {
    name: String,
    running: Vec<&'static str>,
}

impl Exporter {
    /// Starts the chosen collectors.
    ///
    /// # Errors
    /// When the system gives no thread, or the state directory or the web configuration cannot be
    /// used.
    pub fn new(options: &Options) -> Result<Self, Error> {
        Self::with(options, COLLECTORS)
    }

    pub(crate) fn with(options: &Options, entries: &[CollectorEntry]) -> Result<Self, Error> {
        // Mistakes in the files are found before the first thread starts.
        let web_config = options.web.config_file.as_deref().map(LiveConfig::load);
        let web_config = web_config.transpose().map_err(Error::WebConfig)?;

        let state = options.state_directory.as_deref();
        let events = Events::open(&options.paths.procfs, state).map_err(|source| Error::State {
            path: state.unwrap_or("".as_ref()).to_owned(),
            source,
        })?;

        let mut started = Started::default();
        for entry in entries {
            if !options.selection.runs(entry.name, entry.by_default) {
                continue;
            }
            started
                .start(entry, options, &events)
                .map_err(|source| Error::Thread {
                    collector: entry.name,
                    source,
                })?;
        }

        let head_start = Instant::now() + HEAD_START;
        for reader in &started.readers {
            reader.wait_for_first(head_start);
        }

        Ok(Self(Arc::new(Inner {
            at_scrape: Mutex::new(AtScrape {
                collectors: started.at_scrape,
                report: Samples::new(),
            }),
            readers: started.readers,
            pace: started.pace,
            names: started.names,
            guards: started.guards,
            events,
            connections: Arc::new(connections()),
            pages: PageLimit::new(options.web.max_requests),
            refusals: Refusals::default(),
            shows_process: !options.web.disable_exporter_metrics,
            web_config: web_config.map(Arc::new),
            telemetry_path: options.web.telemetry_path.clone(),
            ended: watch::Sender::new(false),
            page_bytes: AtomicUsize::new(0),
        })))
    }

    /// The names of the collectors that run.
    pub fn collectors(&self) -> &[&'static str] {
        &self.0.names
    }

    /// The current page for a scraper. Does not wait for collectors that may block.
    ///
    /// # Errors
    /// When the request names a collector that does not run.
    pub async fn page(&self, format: Format, wanted: &Wanted) -> Result<String, UnknownCollector> {
        self.page_for(Visitor::Scraper, format, wanted).await
    }

    /// The current page for a visitor.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub(crate) async fn page_for(
        &self,
        visitor: Visitor,
        format: Format,
        wanted: &Wanted,
    ) -> Result<String, UnknownCollector> {
        let inner = &*self.0;
        let is_running = |name: &String| inner.names.contains(&name.as_str());
        if let Some(name) = wanted.names().iter().find(|name| !is_running(name)) {
            return Err(UnknownCollector {
                name: name.clone(),
                running: inner.names.clone(),
            });
        }

        // One reading at a time, because collectors keep state from one reading to the next.
        let mut at_scrape = inner.at_scrape.lock().await;
        let AtScrape { collectors, report } = &mut *at_scrape;

        report.clear();
        report_build(report);
        if inner.shows_process {
            report_process(report);
        }
        report_connections(&inner.connections, report);
        inner.refusals.report(report);

        for (metered, samples) in collectors.iter_mut() {
            if !wanted.includes(metered.name()) {
                continue;
            }
            let (outcome, duration) = metered.read(samples);
            report_reading(report, metered.name(), outcome, duration);
        }

        // Collectors with threads have read before, so the page does not wait for them.
        let answers = inner.answers(visitor, wanted, report);
        // The size of the last page, from which this one hardly differs.
        let mut page = String::with_capacity(inner.page_bytes.load(Ordering::Relaxed) + 1024);
        let read_now = collectors
            .iter()
            .filter(|(metered, _)| wanted.includes(metered.name()))
            .map(|(_, samples)| samples);
        let snapshots = answers.iter().filter_map(|answer| answer.snapshot.as_ref());
        let read_before = snapshots.map(|snapshot| &snapshot.samples);
        let samples = read_now.chain(read_before).chain([&*report]);
        write_page(format, samples, &mut page);

        inner.page_bytes.store(page.len(), Ordering::Relaxed);
        Ok(page)
    }

    /// The node's events.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Path of the page.
    pub(crate) fn telemetry_path(&self) -> &str {
        &self.0.telemetry_path
    }

    pub(crate) fn web_config(&self) -> Option<&Arc<LiveConfig>> {
        self.0.web_config.as_ref()
    }

    /// Becomes true when the exporter ends, so that streams of events end too.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.0.ended.subscribe()
    }

    /// The exporter ends in order: streams of events end, and this start counts as no crash.
    pub(crate) fn end(&self) {
        // The guards come first, because the process may end as soon as the streams do.
        for guard in &self.0.guards {
            guard.clear();
        }
        self.0.ended.send_replace(true);
    }

    /// Leave to write and send one more page to the client; `None`, counted, where there are too
    /// many.
    pub(crate) async fn permit(&self, client: IpAddr) -> Option<PagePermit> {
        let permit = self.0.pages.enter(client, &self.0.connections).await;
        if permit.is_none() {
            self.0.refusals.metrics.fetch_add(1, Ordering::Relaxed);
        }
        permit
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.0.connections
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }
}

impl Inner {
    fn answers(
        &self,
        visitor: Visitor,
        wanted: &Wanted,
        report: &mut Samples,
    ) -> Vec<ReaderAnswer> {
        let now = Instant::now();
        let interval = match visitor {
            Visitor::Scraper => self.pace.scraped(now),
            Visitor::NodeOk => self.pace.interval(),
        };

        let mut answers = Vec::new();
        for reader in &self.readers {
            if !wanted.includes(reader.name()) {
                continue;
            }

            let answer = reader.answer(now, interval);
            report_reading(report, reader.name(), answer.outcome, answer.duration);
            // The values of a thread may be older than the page, so the page has their time.
            if let Some(snapshot) = &answer.snapshot {
                report_read_at(report, reader.name(), snapshot.at);
            }
            answers.push(answer);
        }
        answers
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pace.end();
    }
}

#[cfg(test)]
mod tests;
