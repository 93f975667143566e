//! Past readings, for a store that has just been opened.

use crate::cluster::Size;
use crate::page::{Demo, Instant, Scope, Sink};
use crate::schedule::PAST_DAYS;
use hashbrown::HashMap;
use takt_model::UnixTime;
use takt_model::{Labels, METRIC_NAME, Metric, Timestamp};

/// A part of the past and the interval of its readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// Begin.
    pub from: UnixTime,
    /// End (exclusive).
    pub to: UnixTime,
    /// Seconds between two readings.
    pub step: i64,
    /// Selection of the readings.
    pub scope: Scope,
}

/// Receiver of past samples.
pub trait HistorySink {
    /// Identity of a series.
    type Series: Copy;
    /// Returns the series with these labels.
    fn series(&mut self, labels: &Labels) -> Self::Series;
    /// Takes a sample. `None` marks the end of the series.
    fn sample(&mut self, series: Self::Series, at: Timestamp, value: Option<f64>);
}

const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

/// Returns the parts of the history before `now`, newest first. Parts older than a day are days in
/// UTC, as the store's blocks are. Larger clusters have longer intervals, so that the history is
/// complete within half a minute.
pub fn spans(size: Size, now: UnixTime) -> Vec<HistorySpan> {
    let [two_hours, eight_hours, day, week, older] = match size {
        Size::Three => [15, 60, 60, 300, 300],
        Size::Thirty => [60, 180, 180, 600, 600],
        Size::ThreeHundred => [120, 240, 600, 1800, 3600],
    };
    let span = |from: UnixTime, to: UnixTime, step, scope| HistorySpan {
        from,
        to,
        step,
        scope,
    };

    let mut spans = vec![
        span(now - 2 * HOUR, now, two_hours, Scope::Everything),
        span(
            now - 8 * HOUR,
            now - 2 * HOUR,
            eight_hours,
            Scope::Everything,
        ),
        span(now - DAY, now - 8 * HOUR, day, Scope::Everything),
    ];

    // The efficiency of jobs needs the older days, and the pages about nodes do not.
    let begin = now - PAST_DAYS * DAY;

    let mut to = now - DAY;
    while to > begin {
        // Without the 1, a `to` at the begin of a day would give an empty part.
        let from = (to - 1).round_down(DAY).max(begin);
        let step = if to > now - 7 * DAY { week } else { older };
        spans.push(span(from, to, step, Scope::Jobs));
        to = from;
    }
    spans
}

/// Gives the readings of one node in a span to `sink`, in order of time. The labels are those that
/// the server adds when it scrapes the node.
pub fn history(demo: &Demo, node: usize, span: HistorySpan, sink: &mut impl HistorySink) {
    let name = &demo.cluster.nodes[node].name;
    let target = [
        ("cluster", demo.cluster.name.to_owned()),
        ("instance", format!("{name}:9855")),
        ("job", "node".to_owned()),
        ("node", name.clone()),
    ];

    let mut writer = NodeWriter {
        target: target.into_iter().collect(),
        sink,
        known: HashMap::new(),
        last_step: Vec::new(),
        active: Vec::new(),
        key: String::new(),
        at: Timestamp(0),
        step: 0,
    };
    // Nodes begin at different seconds, as a scraper spreads them.
    let first = node as i64 % span.step;
    let steps = (first..span.to - span.from).step_by(usize::try_from(span.step).unwrap_or(1));
    for (step, seconds) in steps.enumerate() {
        let second = span.from + seconds;
        writer.at = second.into();
        writer.step = step;
        let is_up = demo.answers(node, second);
        writer.push(&UP, &[], if is_up { 1.0 } else { 0.0 });
        if is_up {
            // A node that does not answer has `up` and nothing else.
            let instant = Instant {
                second,
                exact: second.0 as f64,
            };
            demo.read(node, instant, span.scope, &mut writer);
        }
        writer.end_others();
    }
}

static UP: Metric = Metric::gauge("up", "", &[]);

/// Finds the series of readings by metric and label values.
struct NodeWriter<'s, S: HistorySink> {
    target: Labels,
    sink: &'s mut S,
    known: HashMap<String, usize>,
    /// By place in this list: the series, and the step of its last sample.
    last_step: Vec<(S::Series, usize)>,
    /// Places of the series with a sample in the last step.
    active: Vec<usize>,
    key: String,
    at: Timestamp,
    step: usize,
}

impl<S> Sink for NodeWriter<'_, S>
where
    S: HistorySink,
{
    fn push(&mut self, metric: &'static Metric, values: &[&str], value: f64) {
        // The key is built in one buffer: a look-up happens for each sample of five weeks.
        self.key.clear();
        self.key.push_str(metric.name);
        for value in values {
            self.key.push('\0');
            self.key.push_str(value);
        }

        let place = match self.known.get(&self.key) {
            Some(&place) => place,
            None => {
                let mut labels = self.target.clone();

                labels.set(METRIC_NAME, metric.name);
                metric
                    .labels
                    .iter()
                    .zip(values)
                    // An empty label is the same as none in Prometheus, and would make another series here.
                    .filter(|(_, value)| !value.is_empty())
                    .for_each(|(name, value)| labels.set(name, value));
                let place = self.last_step.len();
                self.last_step.push((self.sink.series(&labels), usize::MAX));
                self.known.insert(self.key.clone(), place);
                place
            }
        };

        let (series, last) = &mut self.last_step[place];
        // A series that was not in the last step is not in `active`. A new one has `usize::MAX`.
        if last.checked_add(1) != Some(self.step) || *last == usize::MAX {
            self.active.push(place);
        }
        *last = self.step;
        self.sink.sample(*series, self.at, Some(value));
    }
}

impl<S> NodeWriter<'_, S>
where
    S: HistorySink,
{
    /// Ends the series that had a sample in the step before and have none in this one.
    fn end_others(&mut self) {
        let Self {
            active,
            last_step,
            sink,
            at,
            step,
            ..
        } = self;
        active.retain(|&place| {
            let (series, last) = last_step[place];
            if last == *step {
                return true;
            }
            // A stale marker, as a scraper writes it for a series that has left the page.
            sink.sample(series, *at, None);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Kept {
        series: Vec<Labels>,
        samples: BTreeMap<u32, Vec<(i64, Option<f64>)>>,
    }

    impl HistorySink for Kept {
        type Series = u32;

        fn series(&mut self, labels: &Labels) -> u32 {
            let place = self
                .series
                .iter()
                .position(|known| known == labels)
                .unwrap_or_else(|| {
                    self.series.push(labels.clone());
                    self.series.len() - 1
                });
            u32::try_from(place).unwrap()
        }

        fn sample(&mut self, series: u32, at: Timestamp, value: Option<f64>) {
            self.samples.entry(series).or_default().push((at.0, value));
        }
    }

    #[test]
    fn series_have_one_sample_for_each_time_and_end_with_their_job() {
        let now = UnixTime(1_795_000_000);
        let demo = Demo::new(Cluster::new(Size::Three), now, 1);
        let mut kept = Kept::default();
        let span = HistorySpan {
            from: now - 86_400,
            to: now,
            step: 300,
            scope: Scope::Everything,
        };
        history(&demo, 0, span, &mut kept);

        let mut ended = 0;
        for (series, samples) in &kept.samples {
            let labels = &kept.series[*series as usize];
            assert!(samples.is_sorted_by(|a, b| a.0 < b.0), "{labels}");
            // A counter that falls would be read as a restart of the node.
            let is_counter = labels.metric().ends_with("_total");
            let values: Vec<f64> = samples.iter().filter_map(|(_, value)| *value).collect();
            assert!(!is_counter || values.is_sorted(), "{labels} falls");
            ended += usize::from(samples.iter().any(|(_, value)| value.is_none()));
        }
        assert!(kept.series.len() > 120, "{}", kept.series.len());
        assert!(ended > 5, "{ended} series ended");

        let up = kept
            .series
            .iter()
            .position(|labels| labels.metric() == "up");
        let up = u32::try_from(up.unwrap()).unwrap();
        // One day in steps of five minutes, whatever else is missing.
        assert_eq!(kept.samples[&up].len(), 288);
    }

    #[test]
    fn the_spans_follow_each_other_without_a_gap() {
        for size in [Size::Three, Size::Thirty, Size::ThreeHundred] {
            let now = UnixTime(10_000_000);

            let spans = spans(size, now);
            assert!(spans.windows(2).all(|pair| pair[0].from == pair[1].to));
            assert_eq!(spans[0].to, now);
            // The first three parts are shorter than a day, and the fourth and the last one are cut.
            let inner = &spans[4..spans.len() - 1];
            assert!(
                inner
                    .iter()
                    .all(|span| span.from == span.from.round_down(DAY))
            );
            assert_eq!(spans.last().unwrap().from, now - PAST_DAYS * DAY);
        }
    }
}
