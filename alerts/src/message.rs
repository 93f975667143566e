//! The content of a message, before a notifier writes it as text. As JSON it is the body of
//! Alertmanager's webhook (version 4).

use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use crate::order;
use crate::routing::dedup::Reason;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

/// State of an alert or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The alert fires.
    Firing,
    /// The alert has ended.
    Resolved,
}

/// A message about one group to one channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The channel: receiver, kind and number.
    pub channel: String,
    /// The receiver's name.
    pub receiver: String,
    /// Key of the group.
    pub group_key: String,
    /// Reason for sending.
    pub reason: Reason,
    /// Firing if one of the alerts fires.
    pub status: Status,
    /// Labels that define the group.
    pub group_labels: Labels,
    /// Labels that all alerts share.
    pub common_labels: Labels,
    /// Annotations that all alerts share.
    pub common_annotations: BTreeMap<String, String>,
    /// Labels of the route.
    pub route_labels: Labels,
    /// URL of this server.
    pub external_url: String,
    /// Time zone (IANA name) of the times in Takt's own texts; `None` is UTC.
    #[serde(default)]
    pub timezone: Option<String>,
    /// The alerts, in Alertmanager's order.
    pub alerts: Vec<MessageAlert>,
    /// Address of the page that acknowledges these alerts. A secret: it is made when the message is sent,
    /// and not stored.
    #[serde(skip)]
    pub acknowledge_url: Option<String>,
}

/// One alert of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageAlert {
    /// State when the message was decided.
    pub status: Status,
    /// Labels of the alert.
    pub labels: Labels,
    /// Annotations of the alert.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the alert began to fire.
    pub starts_at: Timestamp,
    /// Time since which the alert's condition holds; `None` if that is unknown.
    #[serde(default)]
    pub began_at: Option<Timestamp>,
    /// Time at which the alert ended; `None` while it fires.
    pub ends_at: Option<Timestamp>,
    /// URL of the rule.
    pub generator_url: String,
    /// Fingerprint of the labels.
    pub fingerprint: Fingerprint,
}

impl MessageAlert {
    /// Since when the alert's condition holds, as far as that is known.
    pub fn since(&self) -> Timestamp {
        self.began_at.unwrap_or(self.starts_at)
    }

    /// The alert's state at `now`.
    pub fn new(alert: &Alert, now: Timestamp) -> Self {
        let is_resolved = alert.is_resolved(now);
        Self {
            status: if is_resolved {
                Status::Resolved
            } else {
                Status::Firing
            },
            labels: alert.labels.clone(),
            annotations: alert.annotations.clone(),
            starts_at: alert.starts_at,
            began_at: alert.began_at,
            ends_at: alert.ends_at.filter(|_| is_resolved),
            generator_url: alert.generator_url.clone(),
            fingerprint: alert.fingerprint(),
        }
    }
}

impl Message {
    /// Returns the time zone of the times in Takt's own texts.
    pub fn zone(&self) -> TimeZone {
        self.timezone
            .as_deref()
            .and_then(|name| TimeZone::get(name).ok())
            .unwrap_or(TimeZone::UTC)
    }

    /// Returns the receiver's name as Alertmanager sends it: a regular expression that matches the
    /// name.
    pub fn quoted_receiver(&self) -> String {
        let mut quoted = String::with_capacity(self.receiver.len());

        for c in self.receiver.chars() {
            // As Go's `regexp.QuoteMeta`, which Alertmanager applies to the name.
            if r"\.+*?()|[]{}^$".contains(c) {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        quoted
    }

    /// Sorts the alerts, and computes the status and what all alerts share.
    pub fn arranged(mut self) -> Self {
        self.alerts
            .sort_by(|a, b| order::alerts(&a.labels, &b.labels));

        let fires = self
            .alerts
            .iter()
            .any(|alert| alert.status == Status::Firing);
        self.status = if fires {
            Status::Firing
        } else {
            Status::Resolved
        };

        // Shared texts are those of all alerts, so adding an alert may remove one.
        if let Some((first, rest)) = self.alerts.split_first() {
            self.common_labels = first
                .labels
                .iter()
                .filter(|(name, value)| rest.iter().all(|a| a.labels.get(name) == Some(value)))
                .collect();
            self.common_annotations = first
                .annotations
                .iter()
                .filter(|(name, text)| {
                    rest.iter()
                        .all(|alert| alert.annotations.get(*name) == Some(text))
                })
                .map(|(name, text)| (name.clone(), text.clone()))
                .collect();
        }
        self
    }

    /// The JSON body of Alertmanager's webhook (version 4) with at most `alerts_max` alerts; 0 is
    /// no limit. Status and shared labels are those of the alerts in the body, as in Alertmanager.
    pub fn webhook_body(&self, alerts_max: usize) -> serde_json::Value {
        if alerts_max == 0 || self.alerts.len() <= alerts_max {
            return self.body(0);
        }

        let alerts = self.alerts[..alerts_max].to_vec();
        Self {
            alerts,
            ..self.clone()
        }
        .arranged()
        .body(self.alerts.len() - alerts_max)
    }

    fn body(&self, truncated: usize) -> serde_json::Value {
        let alerts = self.alerts.iter().map(|alert| {
            serde_json::json!({
                "status": alert.status,
                "labels": by_name(&alert.labels),
                "annotations": alert.annotations,
                "startsAt": rfc3339(alert.starts_at),
                "endsAt": alert
                    .ends_at
                    .map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), rfc3339),
                "generatorURL": alert.generator_url,
                "fingerprint": alert.fingerprint,
            })
        });

        serde_json::json!({
            "version": "4",
            "groupKey": self.group_key,
            "truncatedAlerts": truncated,
            "receiver": self.quoted_receiver(),
            "status": self.status,
            "notification_reason": self.reason.words(),
            "groupLabels": by_name(&self.group_labels),
            "commonLabels": by_name(&self.common_labels),
            "commonAnnotations": self.common_annotations,
            "routeLabels": by_name(&self.route_labels),
            "externalURL": self.external_url,
            "alerts": alerts.collect::<Vec<_>>(),
        })
    }
}

fn by_name(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// The time as Go writes it into JSON: `2026-11-20T12:00:00.5Z`.
pub fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse_series;

    fn message_alert(labels: &str, summary: &str, ends_at: Option<i64>) -> MessageAlert {
        let alert = Alert {
            labels: parse_series(labels),
            annotations: [
                ("summary".to_owned(), summary.to_owned()),
                ("action".to_owned(), "drain".to_owned()),
            ]
            .into(),
            starts_at: Timestamp(1_500),
            ends_at: ends_at.map(Timestamp),
            updated_at: Timestamp(0),
            generator_url: "http://takt/g".to_owned(),
            began_at: None,
            is_timeout: false,
        };
        MessageAlert::new(&alert, Timestamp(10_000))
    }

    #[test]
    fn the_webhook_body_is_alertmanagers() {
        let message = Message {
            channel: "ops/webhook/0".to_owned(),
            receiver: "ops".to_owned(),
            group_key: "{}:{alertname=\"A\"}".to_owned(),
            reason: Reason::SomeResolved,
            status: Status::Resolved,
            group_labels: parse_series("{alertname=A}"),
            common_labels: Labels::new(),
            common_annotations: BTreeMap::new(),
            route_labels: Labels::new(),
            external_url: "http://takt".to_owned(),
            timezone: None,
            acknowledge_url: None,
            alerts: vec![
                message_alert("{alertname=A,instance=b,node=g01}", "hot", Some(9_000)),
                message_alert("{alertname=A,instance=a,node=g01}", "hotter", Some(90_000)),
            ],
        }
        .arranged();

        let body = message.webhook_body(2);
        assert_eq!(body["status"], "firing");
        assert_eq!(
            body["commonLabels"],
            serde_json::json!({"alertname": "A", "node": "g01"})
        );
        assert_eq!(
            body["commonAnnotations"],
            serde_json::json!({"action": "drain"})
        );
        assert_eq!(body["notification_reason"], "some alerts resolved");

        let a = &body["alerts"][0];
        let b = &body["alerts"][1];
        assert_eq!(a["labels"]["instance"], "a");
        assert_eq!(a["status"], "firing");
        assert_eq!(a["endsAt"], "0001-01-01T00:00:00Z");
        assert_eq!(b["status"], "resolved");
        assert_eq!(b["startsAt"], "1970-01-01T00:00:01.5Z");
        assert_eq!(b["endsAt"], "1970-01-01T00:00:09Z");
        assert_eq!(body["truncatedAlerts"], 0);
        let cut = message.webhook_body(1);
        assert_eq!(cut["truncatedAlerts"], 1);
        assert_eq!(cut["alerts"].as_array().unwrap().len(), 1);
        assert_eq!(cut["commonLabels"]["instance"], "a");
        let json = serde_json::to_string(&message).unwrap();
        assert_eq!(
            serde_json::from_str::<Message>(&json).unwrap(),
            message,
            "the outbox keeps it whole"
        );
    }
}
