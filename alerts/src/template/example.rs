//! Invented data to try templates with when they are read.

use crate::alert::Alert;
use crate::message::{Message, MessageAlert, Status};
use crate::ports::{Query, QueryError};
use crate::routing::dedup::Reason;
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

/// Labels of an alert; `n` tells two of them apart.
pub(super) fn labels(n: &str) -> Labels {
    [
        ("alertname", "Example"),
        ("cluster", "lab"),
        ("node", n),
        ("instance", "node.example:9855"),
        ("job", "takt"),
        ("uuid", n),
        ("severity", "critical"),
        ("user", "ada"),
        ("jobid", n),
    ]
    .into_iter()
    .collect()
}

/// Answers each query with one sample.
pub(super) struct OneSample;

impl Query for OneSample {
    fn instant(&self, _: &str, _: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        Ok(vec![(labels("1"), 1.0)])
    }

    fn check(&self, _: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

/// Messages about one alert that fires, several that fire and have ended, and one that has ended.
pub(super) fn messages() -> Vec<Message> {
    let now = Timestamp::from_seconds(1_000_000);
    let alert = |n: &str, is_over: bool| {
        let words = ["summary", "description", "action", "runbook_url"];
        let words = words.map(|name| (name.to_owned(), format!("{name} of alert {n}")));

        let alert = Alert {
            labels: labels(n),
            annotations: words.into(),
            starts_at: Timestamp::from_seconds(999_000),
            began_at: None,
            ends_at: is_over.then_some(now),
            updated_at: now,
            generator_url: "http://takt.example/alerts".to_owned(),
            is_timeout: false,
        };
        MessageAlert::new(&alert, now)
    };

    let message = |reason, alerts| {
        let message = Message {
            channel: "example/webhook/0".to_owned(),
            receiver: "example".to_owned(),
            group_key: "{}:{alertname=\"Example\"}".to_owned(),
            reason,
            status: Status::Firing,
            group_labels: [("alertname", "Example")].into_iter().collect(),
            common_labels: Labels::new(),
            common_annotations: BTreeMap::new(),
            route_labels: Labels::new(),
            external_url: "http://takt.example".to_owned(),
            timezone: None,
            acknowledge_url: None,
            alerts,
        };
        message.arranged()
    };
    vec![
        message(Reason::FirstFiring, vec![alert("1", false)]),
        message(
            Reason::SomeResolved,
            vec![alert("1", false), alert("2", false), alert("3", true)],
        ),
        message(Reason::Resolved, vec![alert("1", true)]),
    ]
}
