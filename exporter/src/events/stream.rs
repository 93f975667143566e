//! `/events`: server-sent events, from now on or from an id.

use super::{After, Events};
use crate::exporter::Exporter;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use std::convert::Infallible;
use std::time::Duration;
use takt_model::Event;
use tokio::sync::watch;

/// So many listen at the same time; those beyond get 503.
const MAX_LISTENERS: usize = 32;
/// A connection that says nothing for longer may be cut by what is between.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) async fn events(
    State(exporter): State<Exporter>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let events = exporter.events();
    if events.listeners() >= MAX_LISTENERS {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many listeners\n").into_response();
    }
    // A browser repeats the query when it comes back, and says in the header what it has seen by then.
    let header = headers
        .get("last-event-id")
        .map(|id| id.to_str().unwrap_or("unreadable"));
    let after = header.or_else(|| {
        query
            .iter()
            .find(|(key, _)| key == "after")
            .map(|(_, id)| id.as_str())
    });
    let receiver = events.subscribe();
    let is_new = after.is_none();
    let after = match after.map(str::parse) {
        None => *receiver.borrow(),
        Some(Ok(0)) => events.oldest(),
        Some(Ok(id)) => id,
        Some(Err(_)) => {
            let reason = "Last-Event-ID, or ?after=: expected the id of an event, or 0 for all that are kept\n";
            return (StatusCode::BAD_REQUEST, reason).into_response();
        }
    };
    // Who comes for the first time hears where it begins: should it be gone before the first event, it can ask from there.
    let begin = is_new.then(|| Ok(told("begin", after).id(after.to_string())));
    let messages = messages(events.clone(), receiver, exporter.ended(), after);
    Sse::new(iter(begin).chain(messages))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// Each event after `after`, as it comes, until the exporter ends. A slow listener holds up nobody: it is the one that
/// asks for the next.
fn messages(
    events: Events,
    newest: watch::Receiver<u64>,
    ended: watch::Receiver<bool>,
    after: u64,
) -> impl Stream<Item = Result<Message, Infallible>> + Send {
    unfold(
        (events, newest, ended, after),
        |(events, mut newest, mut ended, mut after)| async move {
            loop {
                newest.mark_unchanged();
                let message = match events.after(after) {
                    After::Event(event) => {
                        after = event.id;
                        message(&event)
                    }
                    After::Gap => {
                        after = events.oldest();
                        told("gap", after)
                    }
                    After::Nothing => {
                        tokio::select! {
                            changed = newest.changed() => changed.ok()?,
                            _ = ended.wait_for(|ended| *ended) => return None,
                        }
                        continue;
                    }
                };
                return Some((Ok(message), (events, newest, ended, after)));
            }
        },
    )
}

fn told(kind: &str, after: u64) -> Message {
    Message::default()
        .event(kind)
        .data(format!("{{\"after\":{after}}}"))
}

fn message(event: &Event) -> Message {
    let data = serde_json::to_string(event).expect("an event is plain text and numbers");
    Message::default().id(event.id.to_string()).data(data)
}
