//! History of the demo: past samples, and what a server that had run for weeks would have computed.

use crate::output::stdout;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use takt_accounting::efficiency::EfficiencyConfig;
use takt_demo::{Demo, HistorySink};
use takt_model::UnixTime;
use takt_model::{Labels, Timestamp};
use takt_questions::{AccountingConfig, assess};
use takt_store::{Due, PastGpu, Records, STALE, Sample, SeriesId, Store};
use tokio::sync::watch;

/// Number of past samples that are written together.
const BATCH: usize = 500_000;

/// Number of samples from which a complete span is sealed.
const WORTH_SEALING: usize = 300_000;

/// Maximum number of unsealed samples: they are in memory.
const MOST_UNSEALED: usize = 4_000_000;

/// Past samples on their way to the store.
enum Past {
    Samples(Vec<(SeriesId, Sample)>),
    /// All samples of a span were sent. A span is one day: blocks of one day need no merging.
    EndOfSpan,
}

/// Writes the history of the demo into the store of the running server.
pub struct History {
    pub demo: Arc<Demo>,
    /// Start of the demo.
    pub now: UnixTime,
    /// The store; gone when the server has ended.
    pub store: Weak<Store>,
    /// Becomes true at the shutdown signal.
    pub stop: watch::Receiver<bool>,
    pub rules: EfficiencyConfig,
}

impl History {
    /// Writes the samples, newest first, and computes the efficiency of the finished jobs. Returns
    /// whether the history is complete.
    pub fn fill(&self, began: Instant) -> bool {
        let spans = takt_demo::spans(self.demo.cluster.size, self.now);
        let nodes = self.demo.cluster.nodes.len();
        let bar = Progress::new((spans.len() * nodes) as u64);
        bar.begin_step("Writing five weeks of history");

        // One batch waits at most: a faster producer would fill the memory.
        let (sender, receiver) = sync_channel::<Past>(1);

        thread::scope(|scope| {
            scope.spawn(move || self.write(receiver));
            let mut samples = PastSamples {
                store: &self.store,
                sender: Some(sender),
                batch: Vec::new(),
            };

            // The newest span first: the pages show something after seconds.
            for span in spans {
                for node in 0..nodes {
                    if self.is_stopped() {
                        return;
                    }
                    takt_demo::history(&self.demo, node, span, &mut samples);
                    bar.advance();
                }
                samples.send();
                samples.pass_on(Past::EndOfSpan);
            }
        });

        let finished = self.finish(&bar);
        bar.end();
        match finished {
            // An error that the shutdown caused is not worth a message.
            _ if self.is_stopped() => false,
            Ok(()) => {
                let seconds = began.elapsed().as_secs_f64();
                let _ = writeln!(
                    stdout(),
                    "Five weeks of history are complete ({seconds:.0} s after the start)."
                );
                true
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the history is incomplete");
                false
            }
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Writes and seals samples until the sender is gone.
    fn write(&self, past: Receiver<Past>) {
        let mut unsealed = 0;
        for past in past {
            // The server owns the store, and its end must not wait for the history.
            let Some(store) = self.store.upgrade() else {
                return;
            };
            let most = match past {
                Past::Samples(batch) => {
                    unsealed += batch.len();
                    if let Err(error) = store.write_past(batch) {
                        tracing::error!(%error, "cannot write the history");
                    }
                    // Within a span only the memory is a reason to seal; a block of half a day
                    // would need merging.
                    MOST_UNSEALED
                }
                Past::EndOfSpan => WORTH_SEALING,
            };

            if unsealed >= most {
                unsealed = 0;
                if let Err(error) = store.seal() {
                    tracing::error!(%error, "cannot seal the history");
                }
            }
        }
    }

    /// Computes what a server that had run for weeks would have computed.
    fn finish(&self, bar: &Progress) -> anyhow::Result<()> {
        let Some(store) = self.store.upgrade() else {
            return Ok(());
        };
        bar.begin_step("Sealing the samples");
        store.seal()?;

        // A day more than the five weeks, and a day ahead, so that no job at an end is left out.
        let name = self.demo.cluster.name;
        let period = (self.now - 36 * 86_400, self.now + 86_400);

        assess::pass(&store, name, period, Due::All, &self.rules, |done| {
            let runs = done.runs;
            bar.go_on(format!("Computing the efficiency of finished jobs: {runs}"));
            !self.is_stopped()
        })?;

        let accounting = AccountingConfig::default();
        takt_questions::note_fairshare(store.database(), name, &accounting, 3600)?;
        Records::of(store.database()).note_past_gpus(name, &self.past_gpus())?;
        bar.begin_step("Filling the strips of the GPUs");
        self.fill_strips(&store)
    }

    /// The GPUs that jobs held before the start of the demo.
    fn past_gpus(&self) -> Vec<PastGpu> {
        let Demo {
            cluster, schedule, ..
        } = &*self.demo;

        let mut past = Vec::new();
        for job in &schedule.jobs {
            let Some(start) = job.start.filter(|start| *start < self.now) else {
                continue;
            };
            for placed in &job.placed {
                let node = &cluster.nodes[placed.node];
                past.extend(placed.gpus.iter().map(|gpu| PastGpu {
                    job_id: job.id.clone(),
                    submit: job.submit,
                    node: node.name.clone(),
                    uuid: node.gpus[*gpu].uuid.clone(),
                    // A job that still runs is seen by the poll from now on.
                    seen: (start, job.end.min(self.now)),
                }));
            }
        }

        past
    }

    /// Fills the strips of the last seven days, which the overview shows.
    fn fill_strips(&self, store: &Store) -> anyhow::Result<()> {
        let now = SystemTime::now().into();
        store.strips().past_is_complete(now);
        while !self.is_stopped() && store.fill_strips(now)? {}
        Ok(())
    }
}

/// Time between two lines of progress where stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress of the history: a bar in a terminal, lines elsewhere.
struct Progress {
    /// Hidden unless stderr is a terminal.
    bar: ProgressBar,
    /// When the last line was printed; `None` in a terminal.
    printed: Option<Cell<Instant>>,
}

impl Progress {
    fn new(steps: u64) -> Self {
        // The hidden bar still counts, for the lines.
        if !io::stderr().is_terminal() {
            let bar = ProgressBar::hidden();
            bar.set_length(steps);
            return Self {
                bar,
                printed: Some(Cell::new(Instant::now())),
            };
        }
        let bar = ProgressBar::new(steps);
        bar.enable_steady_tick(Duration::from_millis(200));
        let style = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {elapsed}");
        Self {
            bar: bar.with_style(style.expect("the template is well-formed")),
            printed: None,
        }
    }

    /// Begins a step, which gets a line of its own.
    fn begin_step(&self, step: &'static str) {
        self.bar.set_message(step);
        self.print(step);
    }

    /// Shows how far a step is that has no known length.
    fn go_on(&self, text: String) {
        self.bar.set_message(text.clone());
        if self.is_line_due() {
            self.print(&text);
        }
    }

    /// Shows that one more part of the samples was written.
    fn advance(&self) {
        self.bar.inc(1);
        if self.is_line_due() {
            let share = 100 * self.bar.position() / self.bar.length().unwrap_or(1).max(1);
            self.print(&format!("{}: {share} %", self.bar.message()));
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn is_line_due(&self) -> bool {
        let last = self.printed.as_ref().map(Cell::get);
        last.is_some_and(|last| last.elapsed() >= LINE_EVERY)
    }

    fn print(&self, line: &str) {
        if let Some(printed) = &self.printed {
            printed.set(Instant::now());
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

/// Collects past samples into batches.
struct PastSamples<'s> {
    store: &'s Weak<Store>,
    /// `None` when the server has ended.
    sender: Option<SyncSender<Past>>,
    batch: Vec<(SeriesId, Sample)>,
}

impl PastSamples<'_> {
    fn send(&mut self) {
        let batch = mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.pass_on(Past::Samples(batch));
    }

    fn pass_on(&mut self, past: Past) {
        if let Some(sender) = &self.sender
            && sender.send(past).is_err()
        {
            // The writer ends when the server does; the producer then only runs out.
            self.sender = None;
        }
    }
}
impl HistorySink for PastSamples<'_> {
    type Series = Option<SeriesId>;

    fn series(&mut self, labels: &Labels) -> Option<SeriesId> {
        self.store
            .upgrade()
            .map(|store| store.series_number(labels))
    }

    fn sample(&mut self, series: Option<SeriesId>, at: Timestamp, value: Option<f64>) {
        // A gap is written as Prometheus' marker, so that a graph shows it as one.
        let value = value.unwrap_or(STALE);
        self.batch
            .extend(series.map(|series| (series, Sample { at, value })));
        if self.batch.len() >= BATCH {
            self.send();
        }
    }
}
