//! `ALERTS` of event rules: who counts alerts in PromQL counts these too.

use super::EventRun;
use crate::fingerprint::Fingerprint;
use crate::ports::Sample;
use crate::series::{WrittenSeries, series_of};
use crate::state::State;
use std::collections::BTreeMap;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// The series of the alerts that fire by events.
#[derive(Debug, Default)]
pub struct EventSeries {
    written: WrittenSeries,
    written_at: Timestamp,
    /// The alerts that were written, with the times since when they fire.
    alerts: BTreeMap<Fingerprint, Timestamp>,
}

impl EventSeries {
    /// Returns the samples to write now: all of them once an interval, and when an alert begins or ends.
    pub fn samples(
        &mut self,
        events: &EventRun,
        interval: Duration,
        now: Timestamp,
    ) -> Vec<Sample> {
        // By identity: two rules may raise the same alert, and a series has one sample at a time.
        let firing: BTreeMap<Fingerprint, (&Labels, Timestamp)> = events
            .iter()
            .filter_map(|(_, print, one)| Some((print, (&one.labels, one.fired_at?))))
            .collect();

        // Not their number: one alert may end when another begins.
        let alerts = firing.iter().map(|(print, (_, since))| (*print, *since));
        let alerts: BTreeMap<_, _> = alerts.collect();
        // The clock may have been set back.
        let is_due = now < self.written_at || self.written_at.plus(interval) <= now;
        if alerts == self.alerts && (alerts.is_empty() || !is_due) {
            return Vec::new();
        }

        self.alerts = alerts;
        self.written_at = now;
        let series = firing
            .values()
            .flat_map(|(labels, since)| series_of(labels, State::Firing.as_str(), *since))
            .collect();
        self.written.samples(series, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::xid::XidTable;
    use crate::events::{EndAnswers, EventFile};
    use takt_model::{Event, EventKind};

    /// An alert that ended in the second in which another one began stayed in `ALERTS` until the next interval.
    #[test]
    fn an_end_and_a_beginning_at_once_are_both_written() {
        let text =
            "groups: [{name: g, rules: [{alert: A, when: [{kind: xid}], by: [node], hold: 1m}]}]";
        let file = EventFile::read("a.events.yml", text, XidTable::shipped()).unwrap();
        let mut run = EventRun::new(&[file], XidTable::shipped().clone());
        let at = Timestamp::from_seconds;

        let happens = |run: &mut EventRun, node: &str, second: i64| {
            let event = Event {
                id: 1,
                at: at(second),
                kind: EventKind::Xid,
                labels: [("node", node), ("xid", "79")].into_iter().collect(),
                message: String::new(),
            };
            run.event(&event, &[], &Labels::new(), "", at(second));
        };

        let mut series = EventSeries::default();
        let interval = Duration::from_secs(15);
        happens(&mut run, "g01", 0);
        assert_eq!(series.samples(&run, interval, at(59)).len(), 2);

        // 60 s are not yet a whole interval after the last write.
        run.end(EndAnswers::default(), at(60));
        happens(&mut run, "g02", 60);
        let samples = series.samples(&run, interval, at(60));
        let mut of_alerts: Vec<_> = samples
            .iter()
            .filter(|sample| sample.labels.get(takt_model::METRIC_NAME) == Some("ALERTS"))
            .map(|sample| (sample.labels.get("node").unwrap(), sample.value))
            .collect();
        of_alerts.sort_by_key(|(node, _)| *node);
        assert_eq!(of_alerts, [("g01", None), ("g02", Some(1.0))]);

        // Nothing changes until the next interval.
        assert!(series.samples(&run, interval, at(61)).is_empty());
    }
}
