//! `ALERTS` of event rules: who counts alerts in PromQL counts these too.

use super::EventRun;
use crate::ports::Sample;
use crate::series::{WrittenSeries, series_of};
use crate::state::State;
use std::time::Duration;
use takt_model::Timestamp;

/// The series of the alerts that fire by events.
#[derive(Debug, Default)]
pub struct EventSeries {
    written: WrittenSeries,
    written_at: Timestamp,
    /// Alerts when they were written.
    alerts: usize,
}

impl EventSeries {
    /// Returns the samples to write now: all of them once an interval, and when an alert begins or ends.
    pub fn samples(
        &mut self,
        events: &EventRun,
        interval: Duration,
        now: Timestamp,
    ) -> Vec<Sample> {
        let fires = || {
            events
                .iter()
                .filter_map(|(_, _, one)| Some((one, one.fired_at?)))
        };

        let alerts = fires().count();
        // The clock may have been set back.
        let is_due = now < self.written_at || self.written_at.plus(interval) <= now;
        if alerts == self.alerts && (alerts == 0 || !is_due) {
            return Vec::new();
        }

        self.alerts = alerts;
        self.written_at = now;
        let series = fires()
            .flat_map(|(one, since)| series_of(&one.labels, State::Firing.as_str(), since))
            .collect();
        self.written.samples(series, now)
    }
}
