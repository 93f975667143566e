//! The series that rules write.

use crate::ports::Sample;
use crate::rules::ALERT_NAME;
use crate::state::{Instances, State};
use std::collections::BTreeSet;
use std::mem;
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// The series of active alerts.
pub const ALERTS: &str = "ALERTS";

/// The series with the time since when an alert is active.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// The series of the last evaluation, to end those that are missing in the next.
#[derive(Debug, Default)]
pub struct WrittenSeries(BTreeSet<Labels>);

impl WrittenSeries {
    /// The samples to write, with an end mark for each series of the last evaluation that is
    /// missing now.
    pub fn samples(&mut self, series: Vec<(Labels, f64)>, at: Timestamp) -> Vec<Sample> {
        let now = series.iter().map(|(labels, _)| labels.clone()).collect();
        let before = mem::replace(&mut self.0, now);
        let ended = before.difference(&self.0).map(|labels| Sample {
            labels: labels.clone(),
            at,
            value: None,
        });
        let ended: Vec<_> = ended.collect();

        series
            .into_iter()
            .map(|(labels, value)| Sample {
                labels,
                at,
                value: Some(value),
            })
            .chain(ended)
            .collect()
    }
}

/// `ALERTS` and `ALERTS_FOR_STATE` of all active alerts. An unknown alert keeps its state.
pub fn alert_series(instances: &Instances) -> Vec<(Labels, f64)> {
    instances
        .iter()
        .filter(|(_, instance)| instance.state != State::Inactive)
        .flat_map(|(_, instance)| {
            series_of(
                &instance.labels,
                instance.state.as_str(),
                instance.active_at,
            )
        })
        .collect()
}

/// `ALERTS` and `ALERTS_FOR_STATE` of one alert in this state since then.
pub fn series_of(labels: &Labels, state: &str, since: Timestamp) -> [(Labels, f64); 2] {
    debug_assert!(labels.get(ALERT_NAME).is_some());
    let mut alerts = labels.clone();
    alerts.set(METRIC_NAME, ALERTS);
    alerts.set("alertstate", state);
    let mut active = labels.clone();
    active.set(METRIC_NAME, ALERTS_FOR_STATE);
    [(alerts, 1.0), (active, since.whole_seconds().0 as f64)]
}
