//! The page: every collector's samples, and how each fared.

use crate::collectors::{COLLECTORS, Entry, Options, Reads};
use crate::events::Events;
use crate::metered::{Metered, Outcome};
use crate::pace::Pace;
use crate::reader::{Answer, Reader};
use crate::web_config::{LiveConfig, WebConfigError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use takt_model::exposition::{Format, write_page};
use takt_model::{Metric, Samples};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

const DURATION: Metric = Metric::gauge(
    "node_scrape_collector_duration_seconds",
    "Time the collector's last reading took; where it has not ended, time since it began.",
    &["collector"],
);
const SUCCESS: Metric = Metric::gauge(
    "node_scrape_collector_success",
    "Whether the collector succeeded; also 0 where the node has no such hardware.",
    &["collector"],
);
const ABSENT: Metric = Metric::gauge(
    "takt_exporter_collector_absent",
    "Whether the node has no such hardware, so that there is nothing to collect and nothing broken.",
    &["collector"],
);
const READ_AT: Metric = Metric::gauge(
    "takt_exporter_collector_read_timestamp_seconds",
    "When the collector's values were read. Collectors without this series read when the page is asked for.",
    &["collector"],
);
const BUILD_INFO: Metric = Metric::gauge(
    "takt_exporter_build_info",
    "Which takt-exporter this is.",
    &["version"],
);

/// How long a start waits for the threads' first readings, so that the first page is whole.
const HEAD_START: Duration = Duration::from_millis(250);

/// Why an exporter cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be served on.
    #[error("cannot listen on {address}")]
    Listen {
        /// As given.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread for a collector.
    #[error("cannot start a thread for collector {collector}")]
    Thread {
        /// Which collector.
        collector: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The web configuration is wrong.
    #[error("cannot use --web.config.file")]
    WebConfig(#[source] WebConfigError),
    /// The state directory cannot be used.
    #[error("cannot keep state in {path}")]
    State {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server ended by itself.
    #[error("cannot go on serving")]
    Serve(#[source] io::Error),
}

/// The collectors of one node. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Exporter(Arc<Inner>);

struct Inner {
    at_scrape: Mutex<AtScrape>,
    readers: Vec<Reader>,
    pace: Arc<Pace>,
    names: Vec<&'static str>,
    permits: Arc<Semaphore>,
    events: Events,
    web_config: Option<Arc<LiveConfig>>,
    telemetry_path: String,
    ended: watch::Sender<bool>,
    page_bytes: AtomicUsize,
}

/// The collectors that read when the page is asked for, each with its samples.
struct AtScrape {
    collectors: Vec<(Metered, Samples)>,
    report: Samples,
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
    /// When the system gives no thread, or the state directory or the web configuration cannot be used.
    pub fn new(options: &Options) -> Result<Self, Error> {
        Self::with(options, COLLECTORS)
    }

    pub(crate) fn with(options: &Options, entries: &[Entry]) -> Result<Self, Error> {
        let web_config = options.web.config_file.as_deref().map(LiveConfig::load);
        let web_config = web_config
            .transpose()
            .map_err(Error::WebConfig)?
            .map(Arc::new);
        let state = options.state_directory.as_deref();
        let events = Events::open(&options.paths.procfs, state).map_err(|source| Error::State {
            path: state.unwrap_or("".as_ref()).to_owned(),
            source,
        })?;
        let pace = Arc::new(Pace::default());
        let (mut collectors, mut readers, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries
            .iter()
            .filter(|entry| options.selection.runs(entry.name, entry.by_default))
        {
            names.push(entry.name);
            let mut collector = (entry.new)(options);
            collector.attach(&events).map_err(|source| Error::Thread {
                collector: entry.name,
                source,
            })?;
            match entry.reads {
                Reads::AtScrape => collectors.push((Metered::new(collector), Samples::new())),
                Reads::OnItsThread { deadline } => {
                    let reader = Reader::start(collector, deadline, Arc::clone(&pace));
                    readers.push(reader.map_err(|source| Error::Thread {
                        collector: entry.name,
                        source,
                    })?);
                }
            }
        }
        let head_start = Instant::now() + HEAD_START;
        readers
            .iter()
            .for_each(|reader| reader.wait_for_first(head_start));
        let permits = match options.web.max_requests {
            0 => Semaphore::MAX_PERMITS,
            count => count.min(Semaphore::MAX_PERMITS),
        };
        Ok(Self(Arc::new(Inner {
            at_scrape: Mutex::new(AtScrape {
                collectors,
                report: Samples::new(),
            }),
            readers,
            pace,
            names,
            permits: Arc::new(Semaphore::new(permits)),
            events,
            web_config,
            telemetry_path: options.web.telemetry_path.clone(),
            ended: watch::Sender::new(false),
            page_bytes: AtomicUsize::new(0),
        })))
    }

    /// The names of the collectors that run.
    pub fn collectors(&self) -> &[&'static str] {
        &self.0.names
    }

    /// The page as it is now. Waits for no collector that may block.
    ///
    /// # Errors
    /// When a collector is named that does not run.
    pub async fn page(&self, format: Format, wanted: &Wanted) -> Result<String, UnknownCollector> {
        let inner = &*self.0;
        if let Some(name) = wanted
            .names()
            .iter()
            .find(|name| !inner.names.contains(&name.as_str()))
        {
            return Err(UnknownCollector {
                name: name.clone(),
                running: inner.names.clone(),
            });
        }
        let mut at_scrape = inner.at_scrape.lock().await;
        let AtScrape { collectors, report } = &mut *at_scrape;
        report.clear();
        report.push(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        for (metered, samples) in collectors
            .iter_mut()
            .filter(|(metered, _)| wanted.includes(metered.name()))
        {
            let (outcome, duration) = metered.read(samples);
            tell(report, metered.name(), outcome, duration);
        }
        let answers = inner.answers(wanted, report);

        let mut page = String::with_capacity(inner.page_bytes.load(Ordering::Relaxed) + 1024);
        let read_now = collectors
            .iter()
            .filter(|(metered, _)| wanted.includes(metered.name()));
        let read_now = read_now.map(|(_, samples)| samples);
        let read_before = answers
            .iter()
            .filter_map(|answer| Some(&answer.snapshot.as_ref()?.samples));
        write_page(
            format,
            read_now.chain(read_before).chain([&*report]),
            &mut page,
        );
        inner.page_bytes.store(page.len(), Ordering::Relaxed);
        Ok(page)
    }

    /// What happens on the node.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Where the page is.
    pub(crate) fn telemetry_path(&self) -> &str {
        &self.0.telemetry_path
    }

    pub(crate) fn web_config(&self) -> Option<&Arc<LiveConfig>> {
        self.0.web_config.as_ref()
    }

    /// Becomes true when the server ends: then listeners are sent home.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.0.ended.subscribe()
    }

    pub(crate) fn end(&self) {
        self.0.ended.send_replace(true);
    }

    /// Leave for one more page at the same time.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.permits).try_acquire_owned().ok()
    }
}

impl Inner {
    fn answers(&self, wanted: &Wanted, report: &mut Samples) -> Vec<Answer> {
        let now = Instant::now();
        let interval = self.pace.scraped(now);
        let wanted = self
            .readers
            .iter()
            .filter(|reader| wanted.includes(reader.name()));
        let answer = |reader: &Reader| {
            let answer = reader.answer(now, interval);
            tell(report, reader.name(), answer.outcome, answer.duration);
            if let Some(snapshot) = &answer.snapshot {
                let at = snapshot.at.duration_since(UNIX_EPOCH).unwrap_or_default();
                report.push(&READ_AT, &[reader.name()], at.as_secs_f64());
            }
            answer
        };
        wanted.map(answer).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pace.end();
    }
}

fn tell(report: &mut Samples, name: &str, outcome: Outcome, duration: Duration) {
    report.push(&DURATION, &[name], duration.as_secs_f64());
    report.push(
        &SUCCESS,
        &[name],
        f64::from(u8::from(outcome == Outcome::Collected)),
    );
    report.push(
        &ABSENT,
        &[name],
        f64::from(u8::from(outcome == Outcome::Absent)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{CollectError, Collector};
    use std::sync::atomic::AtomicUsize;

    const VALUE: Metric = Metric::gauge("value", "The number of the reading.", &[]);
    const DEADLINE: Duration = Duration::from_millis(300);

    /// How often a collector has begun to read, and after how many readings it hangs.
    struct Hangs {
        begun: &'static AtomicUsize,
        after: usize,
    }

    impl Collector for Hangs {
        fn name(&self) -> &'static str {
            "hangs"
        }
        fn metrics(&self) -> &'static [Metric] {
            &[VALUE]
        }
        fn max_series(&self) -> usize {
            1
        }
        fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
            let begun = self.begun.fetch_add(1, Ordering::Relaxed);
            if begun >= self.after {
                std::thread::sleep(Duration::from_secs(3600));
            }
            out.push::<&str>(&VALUE, &[], begun as f64);
            Ok(())
        }
    }

    fn entry(new: fn(&Options) -> Box<dyn Collector>) -> Entry {
        let reads = Reads::OnItsThread { deadline: DEADLINE };
        Entry {
            name: "hangs",
            about: "Hangs",
            by_default: true,
            reads,
            new,
        }
    }

    fn listed(name: &str) -> Entry {
        *COLLECTORS.iter().find(|entry| entry.name == name).unwrap()
    }

    async fn lines(exporter: &Exporter) -> (Vec<String>, Duration) {
        let began = Instant::now();
        let page = exporter.page(Format::Text, &Wanted::All).await.unwrap();
        let took = began.elapsed();
        let is_told = |line: &&str| line.starts_with("value") || line.contains("success{");
        (
            page.lines().filter(is_told).map(str::to_owned).collect(),
            took,
        )
    }

    const SUCCEEDED: &str = r#"node_scrape_collector_success{collector="hangs"} 1"#;
    const FAILED: &str = r#"node_scrape_collector_success{collector="hangs"} 0"#;

    #[tokio::test]
    async fn a_hung_collector_holds_up_no_page_not_even_the_first() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let entries = [
            entry(|_| {
                Box::new(Hangs {
                    begun: &BEGUN,
                    after: 0,
                })
            }),
            listed("cpu"),
        ];
        let exporter = Exporter::with(&Options::default(), &entries).unwrap();
        for _ in 0..20 {
            let (lines, took) = lines(&exporter).await;
            assert_eq!(
                lines,
                [
                    r#"node_scrape_collector_success{collector="cpu"} 1"#,
                    FAILED
                ]
            );
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
        tokio::time::sleep(2 * DEADLINE).await;
        assert_eq!(BEGUN.load(Ordering::Relaxed), 1, "it is not started twice");
    }

    #[tokio::test]
    async fn a_late_collector_is_shown_for_three_intervals() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let entries = [entry(|_| {
            Box::new(Hangs {
                begun: &BEGUN,
                after: 1,
            })
        })];
        let exporter = Exporter::with(&Options::default(), &entries).unwrap();
        assert_eq!(lines(&exporter).await.0, ["value 0", SUCCEEDED]);
        // Two scrapes tell the interval, the shortest that there is: half a second. The next reading hangs.
        assert_eq!(lines(&exporter).await.0, ["value 0", SUCCEEDED]);
        while BEGUN.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            lines(&exporter).await.0,
            ["value 0", SUCCEEDED],
            "not late yet"
        );
        tokio::time::sleep(DEADLINE + Duration::from_millis(100)).await;
        assert_eq!(lines(&exporter).await.0, ["value 0", FAILED]);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(lines(&exporter).await.0, [FAILED]);
    }

    #[tokio::test]
    async fn only_collectors_that_run_can_be_asked_for() {
        let exporter =
            Exporter::with(&Options::default(), &["cpu", "diskstats"].map(listed)).unwrap();
        assert_eq!(exporter.collectors(), ["cpu", "diskstats"]);
        let page = async |wanted| exporter.page(Format::Text, &wanted).await;
        let only = page(Wanted::Only(vec!["cpu".into()])).await.unwrap();
        assert!(only.contains("node_cpu_seconds_total") && !only.contains("disk"));
        let all_but = page(Wanted::AllBut(vec!["cpu".into()])).await.unwrap();
        assert!(!all_but.contains("cpu") && all_but.contains("diskstats"));
        let error = page(Wanted::Only(vec!["nvml".into()])).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"no collector "nvml" is running; there are cpu, diskstats"#
        );
    }

    #[test]
    fn permits_are_counted_and_given_back() {
        let mut options = Options::default();
        options.web.max_requests = 1;
        let exporter = Exporter::with(&options, &[]).unwrap();
        let permit = exporter.permit();
        assert!(permit.is_some() && exporter.permit().is_none());
        drop(permit);
        assert!(exporter.permit().is_some());
    }
}
