//! The series that rules write.

use super::RuleRun;
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

impl RuleRun {
    /// The samples to write, with an end mark for each series of the last evaluation that is
    /// missing now.
    pub(super) fn samples(&mut self, series: Vec<(Labels, f64)>, at: Timestamp) -> Vec<Sample> {
        let now: BTreeSet<Labels> = series.iter().map(|(labels, _)| labels.clone()).collect();
        let before = mem::replace(&mut self.written, now);
        let ended = before
            .difference(&self.written)
            .map(|labels| Sample {
                labels: labels.clone(),
                at,
                value: None,
            })
            .collect::<Vec<_>>();
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
pub(super) fn alert_series(instances: &Instances) -> Vec<(Labels, f64)> {
    instances
        .iter()
        .filter(|(_, instance)| instance.state != State::Inactive)
        .flat_map(|(_, instance)| {
            let mut alerts = instance.labels.clone();
            alerts.set(METRIC_NAME, ALERTS);
            alerts.set("alertstate", instance.state.as_str());
            let mut since = instance.labels.clone();
            since.set(METRIC_NAME, ALERTS_FOR_STATE);
            debug_assert!(since.get(ALERT_NAME).is_some());
            [
                (alerts, 1.0),
                (since, instance.active_at.whole_seconds().0 as f64),
            ]
        })
        .collect()
}
