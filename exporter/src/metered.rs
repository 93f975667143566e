//! Measures every collector alike: duration, outcome, panics, number of series. Each failure is
//! logged once.

use crate::collector::{CollectError, Collector};
use std::error::Error;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use takt_model::Samples;

/// Outcome of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadingOutcome {
    Collected,
    /// The node has no such hardware.
    Absent,
    Failed,
}

/// A collector, and the error of its last reading.
pub(crate) struct MeteredCollector {
    name: &'static str,
    collector: Box<dyn Collector>,
    /// Error of the last reading: the same error is logged once.
    complaint: Option<String>,
    absence: Option<Absence>,
}

/// Readings in a row that found no hardware.
struct Absence {
    count: u32,
    last: Instant,
    duration: Duration,
}

/// After the second reading without hardware the collector is not asked again for this time. Most
/// nodes lack the hardware of a dozen collectors.
const ABSENT_FOR: Duration = Duration::from_secs(4);

impl MeteredCollector {
    /// `name` is the collector's name in flags, labels and `collect[]`.
    pub fn new(name: &'static str, collector: Box<dyn Collector>) -> Self {
        Self {
            name,
            collector,
            complaint: None,
            absence: None,
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Clears `samples` and reads once into them. Returns the outcome and the duration.
    pub fn read(&mut self, samples: &mut Samples) -> (ReadingOutcome, Duration) {
        let began = Instant::now();
        samples.clear();
        if let Some(absence) = &self.absence
            && absence.count >= 2
            && began - absence.last < ABSENT_FOR
        {
            return (ReadingOutcome::Absent, absence.duration);
        }

        // One collector's bug must not end the others.
        let result = catch_unwind(AssertUnwindSafe(|| self.collector.collect(samples)))
            .unwrap_or_else(|panic| Err(CollectError::Panicked(message(&*panic))));

        let result = within_bound(samples, self.collector.max_series()).and(result);
        samples.fit();

        let duration = began.elapsed();
        let outcome = self.conclude(result);

        let is_absent = outcome == ReadingOutcome::Absent && samples.is_empty();
        let before = self.absence.take().filter(|_| is_absent);
        self.absence = is_absent.then(|| Absence {
            count: before.map_or(1, |before| before.count.saturating_add(1)),
            last: began,
            duration,
        });
        (outcome, duration)
    }

    fn conclude(&mut self, result: Result<(), CollectError>) -> ReadingOutcome {
        let name = self.name();
        let outcome = match &result {
            Ok(()) => ReadingOutcome::Collected,
            Err(CollectError::Absent(_) | CollectError::Denied(_)) => ReadingOutcome::Absent,
            Err(_) => ReadingOutcome::Failed,
        };

        let complaint = result.as_ref().err().map(|error| chain(error));
        if complaint != self.complaint {
            let error = complaint.as_deref();
            match &result {
                Ok(()) => tracing::info!(collector = name, "collects again"),
                // A node lacks most kinds of hardware, so this is no news.
                Err(CollectError::Absent(_)) => {
                    tracing::debug!(collector = name, error, "absent")
                }
                Err(CollectError::Denied(_)) => {
                    tracing::info!(collector = name, error, "not permitted")
                }
                Err(_) => tracing::warn!(collector = name, error, "cannot collect"),
            }
            self.complaint = complaint;
        }
        outcome
    }
}

fn within_bound(samples: &mut Samples, max: usize) -> Result<(), CollectError> {
    let series = samples.len();
    if series <= max {
        return Ok(());
    }
    samples.clear();
    Err(CollectError::TooManySeries { series, max })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

/// The error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::Metric;

    const SERIES: Metric = Metric::gauge("series", "A series.", &["number"]);

    struct Flood(usize);

    impl Collector for Flood {
        fn metrics(&self) -> &'static [Metric] {
            &[SERIES]
        }
        fn max_series(&self) -> usize {
            3
        }
        fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
            assert!(self.0 < 10, "too much");
            for number in 0..self.0 {
                out.push(&SERIES, &[number.to_string()], 1.0);
            }
            Ok(())
        }
    }

    fn read(series: usize) -> (ReadingOutcome, usize, Option<String>) {
        let mut metered = MeteredCollector::new("flood", Box::new(Flood(series)));
        let mut samples = Samples::new();
        let (outcome, _) = metered.read(&mut samples);
        (outcome, samples.len(), metered.complaint)
    }

    #[test]
    fn a_flood_is_stopped_and_a_panic_caught() {
        assert_eq!(read(3), (ReadingOutcome::Collected, 3, None));
        assert_eq!(
            read(4),
            (
                ReadingOutcome::Failed,
                0,
                Some("4 series, but there can be only 3".into())
            )
        );
        assert_eq!(
            read(10),
            (ReadingOutcome::Failed, 0, Some("panicked: too much".into()))
        );
    }

    #[test]
    fn causes_are_in_one_line() {
        let error = CollectError::read("/proc/stat".as_ref(), rustix::io::Errno::ACCESS);
        assert_eq!(
            chain(&error),
            "cannot read /proc/stat: Permission denied (os error 13)"
        );
    }

    #[test]
    fn absent_hardware_is_not_looked_for_at_every_scrape() {
        struct Missing(std::sync::Arc<std::sync::atomic::AtomicUsize>);
        impl Collector for Missing {
            fn metrics(&self) -> &'static [Metric] {
                &[SERIES]
            }
            fn max_series(&self) -> usize {
                1
            }
            fn collect(&mut self, _: &mut Samples) -> Result<(), CollectError> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Err(CollectError::Absent("nothing here"))
            }
        }
        let readings = std::sync::Arc::default();
        let mut metered = MeteredCollector::new(
            "missing",
            Box::new(Missing(std::sync::Arc::clone(&readings))),
        );
        // The first two readings ask, and the others answer from memory.
        for _ in 0..10 {
            assert_eq!(metered.read(&mut Samples::new()).0, ReadingOutcome::Absent);
        }
        let count = readings.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(count, 2);
    }
}
