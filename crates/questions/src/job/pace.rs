//! Whether one GPU of a run makes the others wait, from its last samples.

use super::report::JobReport;
use crate::{AnswerError, GpuNow};
use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use takt_diagnosis::{
    GpuReadings, LEAST_GPUS, Metric, Pace, Readings, SlowGpu, WINDOW_SECONDS, pace,
};
use takt_model::{MatchOp, Matcher, MatcherError, Timestamp, UnixTime};
use takt_store::{RunningJob, SeriesData, Store, StoreError, is_stale};

/// The pace of a run's GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaceReport {
    /// The finding.
    #[serde(flatten)]
    pub pace: Pace,
    /// The finding as a sentence.
    pub words: String,
    /// What differs, in words, the cause first.
    pub evidence_words: Vec<String>,
}

/// Windows that are read: twenty minutes, of which the older ones are a GPU's own past.
const WINDOWS: usize = 40;

/// Age of the last window, in seconds: every exporter has been asked since.
const SETTLED_SECONDS: i64 = 20;

/// GPUs of a run above which their samples are not read for one page.
const MOST_GPUS: usize = 1024;

/// Time before the first window in which a counter's value is the begin of an increase.
const BEFORE: Duration = Duration::from_secs(60);

/// Where a reading comes from.
struct Source {
    metric: &'static str,
    /// A label, and the values that are read.
    label: Option<(&'static str, &'static str)>,
    is_counter: bool,
    /// Whether it is of the job on the node, not of a GPU.
    is_of_job: bool,
    /// Whether several series add up; otherwise the highest counts.
    adds_up: bool,
    reading: Metric,
}

const GAUGE: Source = Source {
    metric: "",
    label: None,
    is_counter: false,
    is_of_job: false,
    adds_up: false,
    reading: Metric::Utilization,
};

const SOURCES: [Source; 11] = [
    Source {
        metric: "takt_gpu_utilization_ratio",
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_activity_ratio",
        label: Some(("part", "tensor")),
        reading: Metric::Tensor,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_power_watts",
        reading: Metric::Power,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_clock_hertz",
        label: Some(("domain", "sm")),
        reading: Metric::Clock,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_throttle",
        label: Some(("reason", "hw_slowdown|hw_thermal|hw_power_brake|sw_thermal")),
        reading: Metric::HeldDown,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_throttle_seconds_total",
        label: Some(("reason", "hw_thermal|hw_power_brake|sw_thermal|thermal")),
        is_counter: true,
        reading: Metric::HeldDown,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_pcie_degraded",
        reading: Metric::PcieDegraded,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_pcie_replays_total",
        is_counter: true,
        adds_up: true,
        reading: Metric::LinkErrors,
        ..GAUGE
    },
    Source {
        metric: "takt_gpu_nvlink_errors_total",
        is_counter: true,
        adds_up: true,
        reading: Metric::LinkErrors,
        ..GAUGE
    },
    Source {
        metric: "takt_job_cpu_throttled_seconds_total",
        is_counter: true,
        is_of_job: true,
        reading: Metric::CpuThrottled,
        ..GAUGE
    },
    Source {
        metric: "takt_job_pressure_seconds_total",
        label: Some(("resource", "io")),
        is_counter: true,
        is_of_job: true,
        reading: Metric::FileWait,
        ..GAUGE
    },
];

/// Returns the pace of a run with enough GPUs that are known; of one that has ended, only if a GPU was slow.
pub(super) fn pace_of(
    store: &Store,
    report: &JobReport,
    now: UnixTime,
    zone: &TimeZone,
) -> Result<Option<PaceReport>, AnswerError> {
    let gpus = known_gpus(report);
    let Some(start) = report.run.start.filter(|_| gpus.len() >= LEAST_GPUS) else {
        return Ok(None);
    };
    // A page must not read the samples of a thousand GPUs.
    if gpus.len() > MOST_GPUS {
        let why = format!("it has more than {MOST_GPUS} GPUs, which are not compared");
        return Ok(Some(in_words(Pace::Unknown { why }, report, zone)));
    }

    // If the run has ended, the last windows before its end are read.
    let span = Span::until(report.run.end.unwrap_or(now - SETTLED_SECONDS));
    // The exporter knows the number of the cgroup, which differs for array tasks.
    let number = report.run.raw_job_id.as_ref().unwrap_or(&report.run.job_id);
    let mut jobs = [JobGpus {
        number: number.clone(),
        gpus,
    }];
    read(store, &mut jobs, span, &report.run.cluster).map_err(AnswerError::failed)?;

    let [JobGpus { mut gpus, .. }] = jobs;
    span.leave_out_before(start, &mut gpus);
    let found = pace(&gpus, span.to().whole_seconds());
    // A finished run that was not slow needs no line about its pace.
    let is_told = report.run.end.is_none() || matches!(found, Pace::Slow(_));
    Ok(is_told.then(|| in_words(found, report, zone)))
}

/// A running job that waits for one GPU, or for one node.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowJob {
    /// The number that the job's processes have.
    pub number: String,
    /// User.
    pub user: String,
    /// What it waits for.
    pub slow: SlowGpu,
    /// Index of the slow GPU on its node; empty if it is the node.
    pub index: String,
}

/// Returns the running jobs that wait for one of their GPUs. `gpus` are those of the cluster now, with their nodes.
///
/// # Errors
/// If the store fails.
pub fn slow_jobs_now(
    store: &Store,
    cluster: &str,
    running: &[RunningJob],
    gpus: &[(String, GpuNow)],
) -> Result<Vec<SlowJob>, AnswerError> {
    let by_id: HashMap<&str, &RunningJob> = running
        .iter()
        .map(|job| (job.job_id.as_str(), job))
        .collect();
    let mut held: BTreeMap<&str, Vec<GpuReadings>> = BTreeMap::new();
    for (node, gpu) in gpus {
        // Of a GPU that several hold, the readings are of all of them.
        if let [one] = &gpu.holders[..]
            && let Some(id) = one.holder.job_id.as_deref()
            && by_id.contains_key(id)
        {
            held.entry(id).or_default().push(GpuReadings {
                node: node.clone(),
                uuid: gpu.uuid.clone(),
                model: gpu.model.clone(),
                windows: Vec::new(),
            });
        }
    }
    // Pace compares a GPU with others, so a few of them say nothing.
    held.retain(|_, gpus| (LEAST_GPUS..=MOST_GPUS).contains(&gpus.len()));
    if held.is_empty() {
        return Ok(Vec::new());
    }

    let ids: Vec<&str> = held.keys().copied().collect();
    let mut jobs: Vec<JobGpus> = held
        .into_iter()
        .map(|(id, gpus)| JobGpus {
            number: by_id[id].number.clone(),
            gpus,
        })
        .collect();
    // All jobs are read together, so that each metric is read once.
    let span = Span::until(UnixTime::from(Instant::now()) - SETTLED_SECONDS);
    read(store, &mut jobs, span, cluster).map_err(AnswerError::failed)?;

    let index_of = |slow: &SlowGpu| {
        let is_it = |(node, gpu): &&(String, GpuNow)| {
            *node == slow.node && Some(&gpu.uuid) == slow.uuid.as_ref()
        };
        gpus.iter()
            .find(is_it)
            .map_or_else(String::new, |(_, gpu)| gpu.index.clone())
    };

    let slow = ids.into_iter().zip(jobs).filter_map(|(id, mut job)| {
        let running = by_id[id];
        span.leave_out_before(running.start, &mut job.gpus);
        match pace(&job.gpus, span.to().whole_seconds()) {
            Pace::Slow(slow) => Some(SlowJob {
                number: job.number,
                user: running.user.clone(),
                index: index_of(&slow),
                slow,
            }),
            _ => None,
        }
    });
    Ok(slow.collect())
}

fn known_gpus(report: &JobReport) -> Vec<GpuReadings> {
    let gpus = report
        .by_node
        .iter()
        .flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)));
    // A GPU without a UUID was never measured.
    gpus.filter_map(|(node, gpu)| {
        Some(GpuReadings {
            node: node.node.clone(),
            uuid: gpu.uuid.clone()?,
            model: gpu.model.clone().unwrap_or_default(),
            windows: Vec::new(),
        })
    })
    .collect()
}

/// The windows that are read.
#[derive(Clone, Copy)]
struct Span {
    from: Timestamp,
}

impl Span {
    const WINDOW_MS: i64 = WINDOW_SECONDS * 1000;

    /// The last windows that end at this time or before.
    fn until(end: UnixTime) -> Self {
        // Windows are aligned to the epoch, so that two reads of a job have the same ones.
        let first = end.0.div_euclid(WINDOW_SECONDS) - WINDOWS as i64;
        Self {
            from: UnixTime(first * WINDOW_SECONDS).into(),
        }
    }

    fn to(self) -> Timestamp {
        self.from.plus_ms(WINDOWS as i64 * Self::WINDOW_MS)
    }

    fn window_of(self, at: Timestamp) -> Option<usize> {
        let window = usize::try_from((at.0 - self.from.0).div_euclid(Self::WINDOW_MS)).ok()?;
        (window < WINDOWS).then_some(window)
    }

    /// Leaves out the windows in which another job may have had the GPUs.
    fn leave_out_before(self, start: UnixTime, gpus: &mut [GpuReadings]) {
        // The window in which the run began is left out, too: rounded up.
        let before = (Timestamp::from(start).0 - self.from.0 + Self::WINDOW_MS - 1).max(0);
        let before = ((before / Self::WINDOW_MS) as usize).min(WINDOWS);
        gpus.iter_mut()
            .for_each(|gpu| drop(gpu.windows.drain(..before)));
    }

    /// Returns the mean of a series in each window: of a counter, its increase per second.
    fn means(self, series: &SeriesData, is_counter: bool) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0_u32); WINDOWS];
        let mut add = |at: Timestamp, value: f64| {
            if let Some(window) = self.window_of(at) {
                sums[window].0 += value;
                sums[window].1 += 1;
            }
        };

        let known = series
            .samples
            .iter()
            .filter(|sample| !is_stale(sample.value));
        if is_counter {
            let known: Vec<_> = known.collect();

            for pair in known.windows(2) {
                let [before, after] = pair else { continue };
                let seconds = (after.at.0 - before.at.0) as f64 / 1000.0;
                // A counter that falls began again.
                if seconds > 0.0 && after.value >= before.value {
                    add(after.at, (after.value - before.value) / seconds);
                }
            }
        } else {
            known.for_each(|sample| add(sample.at, sample.value));
        }

        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        sums.into_iter().map(mean).collect()
    }
}

/// An error while the samples of a run were read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A node's name is no pattern, although it is escaped; does not occur.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
}

/// A job and its GPUs.
struct JobGpus {
    /// The number that the job's processes have.
    number: String,
    gpus: Vec<GpuReadings>,
}

/// Nodes of a read that are named; of more, the samples of the whole cluster are read.
const NAMED_NODES: usize = 64;

/// Reads the windows of the GPUs of jobs.
fn read(store: &Store, jobs: &mut [JobGpus], span: Span, cluster: &str) -> Result<(), ReadError> {
    let mut targets = Targets::default();
    for (at, job) in jobs.iter_mut().enumerate() {
        for (position, gpu) in job.gpus.iter_mut().enumerate() {
            gpu.windows = vec![Readings::default(); WINDOWS];
            let of_gpu = (gpu.node.clone(), gpu.uuid.clone());
            targets
                .by_gpu
                .entry(of_gpu)
                .or_default()
                .push((at, position));
            let of_job = (gpu.node.clone(), job.number.clone());
            targets
                .by_job
                .entry(of_job)
                .or_default()
                .push((at, position));
        }
    }

    let mut nodes: Vec<&str> = targets
        .by_gpu
        .keys()
        .map(|(node, _)| node.as_str())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let are_named = nodes.len() <= NAMED_NODES;
    let names: Vec<String> = nodes.into_iter().map(regex::escape).collect();
    let nodes = Matcher::new("node", MatchOp::Regex, &names.join("|"))?;

    for source in &SOURCES {
        let mut matchers = vec![
            Matcher::metric(source.metric),
            Matcher::equal("cluster", cluster),
        ];
        matchers.extend(are_named.then(|| nodes.clone()));
        if let Some((label, values)) = source.label {
            matchers.push(Matcher::new(label, MatchOp::Regex, values)?);
        }
        // A counter's first increase begins with a sample before the first window.
        for series in store.range(&matchers, span.from.minus(BEFORE), span.to())? {
            let meant = targets.of(source, &series);
            if meant.is_empty() {
                continue;
            }

            let means = span.means(&series, source.is_counter);
            for (job, position) in meant {
                let gpu = &mut jobs[*job].gpus[*position];
                for (window, mean) in gpu.windows.iter_mut().zip(&means) {
                    source.add(window, *mean);
                }
            }
        }
    }
    Ok(())
}

/// Where the readings of a series go: positions of jobs and of GPUs in them.
#[derive(Default)]
struct Targets {
    by_gpu: HashMap<(String, String), Vec<(usize, usize)>>,
    by_job: HashMap<(String, String), Vec<(usize, usize)>>,
}

impl Targets {
    fn of(&self, source: &Source, series: &SeriesData) -> &[(usize, usize)] {
        let label = |name| series.labels.get(name).unwrap_or_default().to_owned();
        let found = if source.is_of_job {
            self.by_job.get(&(label("node"), label("jobid")))
        } else {
            self.by_gpu.get(&(label("node"), label("uuid")))
        };
        found.map_or(&[], Vec::as_slice)
    }
}

impl Source {
    /// Adds the mean of a series in a window to the GPU's readings.
    fn add(&self, window: &mut Readings, mean: Option<f64>) {
        let known = window[self.reading];
        window[self.reading] = match known.zip(mean) {
            Some((known, more)) if self.adds_up => Some(known + more),
            // Several reasons of throttling may hold at once; the longest of them counts.
            Some((known, more)) => Some(known.max(more)),
            None => known.or(mean),
        };
    }
}

/// Writes the finding in words.
fn in_words(pace: Pace, report: &JobReport, zone: &TimeZone) -> PaceReport {
    let (name, since, evidence_words) = match &pace {
        Pace::Slow(slow) => {
            let name = match &slow.uuid {
                Some(uuid) => gpu_name(report, &slow.node, uuid),
                None => format!("every GPU of {}", slow.node),
            };
            let since = Instant::try_from(slow.since).unwrap_or_default();
            let since = since.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M");
            // The window in which the run began is not read, and no time before the first one that is.
            let unread_since = slow.since - WINDOW_SECONDS;
            let ran_before = report.run.start.is_some_and(|start| start < unread_since);
            let or_earlier = if ran_before && !slow.was_even_before {
                " or earlier"
            } else {
                ""
            };
            let evidence = slow.evidence.iter().map(|one| one.words()).collect();
            (name, format!("{since}{or_earlier}"), evidence)
        }
        _ => Default::default(),
    };
    PaceReport {
        words: pace.words(&name, &since),
        evidence_words,
        pace,
    }
}

/// `GPU 3 of g07`.
fn gpu_name(report: &JobReport, node: &str, uuid: &str) -> String {
    let on_node = report.by_node.iter().filter(|one| one.node == node);
    let index = on_node
        .flat_map(|one| &one.gpus)
        .find(|gpu| gpu.uuid.as_deref() == Some(uuid))
        .and_then(|gpu| gpu.index.as_deref());
    format!("GPU {} of {node}", index.unwrap_or(uuid))
}
