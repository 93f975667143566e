//! Converts the state of the alert engine to rows of the store's tables, and back.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::outbox::Row;
use takt_alerts::ports::StoreError;
use takt_alerts::routing::Logged;
use takt_alerts::routing::silence::Silence;
use takt_alerts::state::{RuleKey, Transition};
use takt_alerts::{Batch, Snapshot};
use takt_model::{Event, Labels, Timestamp};
use takt_store::{
    AlertChanges, AlertRecords, EventRecord, NotificationRecord, SilenceRecord, TransitionRecord,
};

/// Kinds of state.
const INSTANCE: &str = "instance";
const EVENT: &str = "event";
const ALERT: &str = "alert";
const FLAPPING: &str = "flapping";
const LOG: &str = "log";
const READ: &str = "read";
const RUNNING: &str = "running";

/// Separator of the parts of a key. Names of rules and keys of groups do not contain it.
const SEPARATOR: char = '\u{1f}';

/// Returns the changes of a batch. `at` is a time at which Takt is known to run.
pub fn changes(batch: &Batch, at: Timestamp) -> Result<AlertChanges, StoreError> {
    // Later entries of a key replace earlier ones, so what is forgotten comes first.
    let mut state = BTreeMap::new();
    let mut put = |kind, key: String, body: Option<String>| drop(state.insert((kind, key), body));
    let rule_key =
        |rule: &RuleKey, fingerprint: Fingerprint| format!("{rule}{SEPARATOR}{fingerprint}");

    for (rule, fingerprint) in &batch.forgotten_instances {
        put(INSTANCE, rule_key(rule, *fingerprint), None);
    }
    for (rule, fingerprint) in &batch.forgotten_event_instances {
        put(EVENT, rule_key(rule, *fingerprint), None);
    }
    for fingerprint in &batch.forgotten_alerts {
        put(ALERT, fingerprint.to_string(), None);
    }

    // An instance that begins again in the same batch stays.
    for one in &batch.instances {
        put(
            INSTANCE,
            rule_key(&one.0, Fingerprint::of(&one.1.labels)),
            Some(json(one)?),
        );
    }
    for one in &batch.event_instances {
        put(
            EVENT,
            rule_key(&one.0, Fingerprint::of(&one.1.labels)),
            Some(json(one)?),
        );
    }

    for alert in &batch.alerts {
        put(ALERT, alert.fingerprint().to_string(), Some(json(alert)?));
    }

    for (fingerprint, flapping) in &batch.flapping {
        let body = flapping
            .as_ref()
            .map(|flapping| json(&(fingerprint, flapping)))
            .transpose()?;
        put(FLAPPING, fingerprint.to_string(), body);
    }

    for Logged { key, entry } in &batch.log {
        let body = entry
            .as_ref()
            .map(|entry| json(&(key, entry)))
            .transpose()?;
        put(
            LOG,
            format!("{}{SEPARATOR}{}", key.channel, key.group_key),
            body,
        );
    }
    for (exporter, id) in &batch.read {
        put(READ, exporter.clone(), Some(id.to_string()));
    }
    // The time at which the server was running last: the next start knows how long it was down.
    put(RUNNING, "at".to_owned(), Some(at.0.to_string()));

    let notifications = batch
        .outbox
        .iter()
        .map(|row| Ok((row.id, notification(row, at)?)));
    let forgotten = batch
        .forgotten_silences
        .iter()
        .map(|id| Ok((id.clone(), None)));
    let silences = batch
        .silences
        .iter()
        .map(|one| Ok((one.id.clone(), Some(silence(one)?))));

    Ok(AlertChanges {
        state,
        transitions: batch.transitions.iter().map(transition).collect(),
        events: batch.events.iter().map(event).collect(),
        notifications: notifications.collect::<Result<_, StoreError>>()?,
        silences: forgotten
            .chain(silences)
            .collect::<Result<_, StoreError>>()?,
    })
}

/// Restores the committed state.
pub fn load(records: &AlertRecords, now: Timestamp) -> Result<Snapshot, StoreError> {
    let state = |kind| records.state(kind).map_err(failed);
    let running = state(RUNNING)?
        .pop()
        .and_then(|(_, at)| at.parse().ok())
        .map(Timestamp);

    let read = state(READ)?
        .into_iter()
        .filter_map(|(exporter, id)| Some((exporter, id.parse().ok()?)));
    Ok(Snapshot {
        instances: all(state(INSTANCE)?)?,
        event_instances: all(state(EVENT)?)?,
        alerts: all(state(ALERT)?)?,
        flapping: all(state(FLAPPING)?)?,
        log: all(state(LOG)?)?,
        silences: bodies(records.silences().map_err(failed)?)?,
        outbox: bodies(records.notifications(now).map_err(failed)?)?,
        next_row: records.next_notification().map_err(failed)?,
        read: read.collect(),
        down_at: running,
    })
}

fn event(one: &Event) -> EventRecord {
    EventRecord {
        at: one.at,
        texts: [
            one.labels.get("node").unwrap_or_default().to_owned(),
            one.kind.name().to_owned(),
            labels_json(&one.labels),
            one.message.clone(),
        ],
    }
}

fn transition(one: &Transition) -> TransitionRecord {
    let label = |name: &str| one.labels.get(name).unwrap_or_default().to_owned();
    TransitionRecord {
        at: one.at,
        texts: [
            one.rule.to_string(),
            label("alertname"),
            label("severity"),
            label("node"),
            one.fingerprint.to_string(),
            labels_json(&one.labels),
            one.from.as_str().to_owned(),
            one.to.as_str().to_owned(),
            // A closed alert names who closed it, which a reader of the history asks first.
            one.closing.as_ref().map_or_else(
                || word(&one.reason),
                |closing| format!("closed by {}: {}", closing.by, closing.comment),
            ),
        ],
        value: one.value,
    }
}

fn notification(row: &Row, at: Timestamp) -> Result<NotificationRecord, StoreError> {
    let message = &row.message;
    let texts = [
        row.channel.clone(),
        message.group_key.clone(),
        word(&message.reason),
        word(&message.status),
        word(&row.state),
        json(row)?,
    ];
    // A number that the column cannot hold is only a count for people.
    let alerts = i64::try_from(message.alerts.len()).unwrap_or(i64::MAX);
    Ok(NotificationRecord {
        texts,
        optional: [
            row.instead_of.clone(),
            row.error.clone(),
            row.handle.clone(),
        ],
        counts: [alerts, i64::from(row.attempts)],
        instants: [row.created_at, at],
        // Final messages stay as history, and are not sent again after a restart.
        is_open: !row.state.is_final(),
    })
}

fn silence(one: &Silence) -> Result<SilenceRecord, StoreError> {
    let matchers: Vec<String> = one.matchers.iter().map(ToString::to_string).collect();
    Ok(SilenceRecord {
        instants: [one.starts_at, one.ends_at, one.updated_at],
        texts: [
            one.created_by.clone(),
            one.comment.clone(),
            matchers.join(" or "),
            json(one)?,
        ],
    })
}

fn labels_json(labels: &Labels) -> String {
    // Sorted by name: the same labels always give the same text.
    let by_name: BTreeMap<&str, &str> = labels.iter().collect();
    serde_json::to_string(&by_name).unwrap_or_default()
}

/// Returns serde's name of an enum variant without fields.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError(error.to_string()))
}

fn all<T>(rows: Vec<(String, String)>) -> Result<Vec<T>, StoreError>
where
    T: DeserializeOwned,
{
    bodies(rows.into_iter().map(|(_, body)| body).collect())
}

/// Parses stored values. Logs and skips an unreadable value: one bad row must not stop all alerts.
fn bodies<T>(rows: Vec<String>) -> Result<Vec<T>, StoreError>
where
    T: DeserializeOwned,
{
    Ok(rows
        .into_iter()
        .filter_map(|body| match serde_json::from_str(&body) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::error!(%error, body, "cannot read stored alert state, ignoring it");
                None
            }
        })
        .collect())
}

fn failed(error: takt_store::StoreError) -> StoreError {
    StoreError(format!("{error:#}"))
}
