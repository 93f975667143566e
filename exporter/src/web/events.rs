//! `/events`: server-sent events, from now on, from an id, or from a time.

use super::{client, unavailable};
use crate::events::{Events, ListenerKind, ListenerPlace, NextEvent};
use crate::exporter::Exporter;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::header::{HeaderName, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use takt_connections::Connection;
use takt_model::Event;
use tokio::sync::watch;

/// Interval of comments: proxies cut connections that are silent for longer.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Seconds after which a refused listener may come again.
const RETRY_LISTEN: u64 = 15;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) async fn events(
    State(exporter): State<Exporter>,
    Query(query): Query<Vec<(String, String)>>,
    connection: Option<Extension<Arc<Connection>>>,
    headers: HeaderMap,
) -> Response {
    let events = exporter.events();

    let start = match Start::asked(&query, &headers) {
        Ok(start) => start,
        Err(reason) => return (StatusCode::BAD_REQUEST, reason).into_response(),
    };

    let user_agent = headers.get(USER_AGENT).and_then(|name| name.to_str().ok());
    let kind = ListenerKind::of_user_agent(user_agent);
    let Some(place) = events.listeners().enter(client(connection), kind) else {
        exporter.refusals().events.fetch_add(1, Ordering::Relaxed);
        return refusal(events);
    };

    let newest = events.subscribe();
    let after = match start {
        Start::Now => *newest.borrow(),
        Start::AfterId(0) => events.oldest(),
        Start::AfterId(id) => id,
        Start::Since(at) => events.before(at),
    };

    // A new listener gets the id to go on from, should its connection end before the first event.
    let is_new = !matches!(start, Start::AfterId(_));
    let begin = is_new.then(|| Ok(place_message("begin", after).id(after.to_string())));

    let listening = Listening {
        events: events.clone(),
        newest,
        ended: exporter.ended(),
        place,
        after,
    };

    Sse::new(iter(begin).chain(listening.messages()))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// Returns the answer to a listener beyond the limit. Its `Last-Event-ID` is the newest event's, so
/// that the listener can ask later for what happened meanwhile.
fn refusal(events: &Events) -> Response {
    let newest = *events.subscribe().borrow();
    let mut response = unavailable(RETRY_LISTEN, "too many listeners\n");

    response
        .headers_mut()
        .insert(LAST_EVENT_ID, HeaderValue::from(newest));

    response
}

/// Where a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// With what happens from now on.
    Now,
    /// With what came after the event of this id; 0 is all that is kept.
    AfterId(u64),
    /// With what was recorded at this time or later, in milliseconds since 1970.
    Since(u64),
}

impl Start {
    /// Reads the header and the query. The header wins: a browser that connects again repeats the
    /// query and puts the last event it got into the header.
    fn asked(query: &[(String, String)], headers: &HeaderMap) -> Result<Self, &'static str> {
        const ID: &str =
            "Last-Event-ID, or ?after=: expected the id of an event, or 0 for all that are kept\n";
        const TIME: &str = "?since=: expected milliseconds since 1970\n";
        if let Some(id) = headers.get(LAST_EVENT_ID) {
            let id = id.to_str().ok().and_then(|id| id.parse().ok());
            return id.map(Self::AfterId).ok_or(ID);
        }

        let parameter = |name: &str| {
            let (_, value) = query.iter().find(|(key, _)| key == name)?;
            Some(value.parse())
        };

        if let Some(id) = parameter("after") {
            return id.map(Self::AfterId).map_err(|_| ID);
        }
        if let Some(at) = parameter("since") {
            return at.map(Self::Since).map_err(|_| TIME);
        }

        Ok(Self::Now)
    }
}

/// A connection that waits for events.
struct Listening {
    events: Events,
    newest: watch::Receiver<u64>,
    ended: watch::Receiver<bool>,
    place: ListenerPlace,
    /// Id of the last event that was sent.
    after: u64,
}

impl Listening {
    /// Each event after the last one, as it comes, until the exporter ends or the place is taken. A
    /// slow listener delays itself alone: each message is made when the connection asks for it.
    fn messages(self) -> impl Stream<Item = Result<Message, Infallible>> + Send {
        unfold(self, |mut listening| async move {
            let message = listening.next().await?;
            Some((Ok(message), listening))
        })
    }

    async fn next(&mut self) -> Option<Message> {
        loop {
            // Before the look, so that an event that comes after the look wakes this listener.
            self.newest.mark_unchanged();

            match self.events.after(self.after) {
                NextEvent::Event(event) => {
                    self.after = event.id;
                    return Some(event_message(&event));
                }
                NextEvent::Gap => {
                    self.after = self.events.oldest();
                    return Some(place_message("gap", self.after));
                }
                NextEvent::Nothing => {}
            }

            tokio::select! {
                changed = self.newest.changed() => changed.ok()?,
                _ = self.ended.wait_for(|ended| *ended) => return None,
                () = self.place.replaced() => return None,
            }
        }
    }
}

fn place_message(kind: &str, after: u64) -> Message {
    Message::default()
        .event(kind)
        .data(format!("{{\"after\":{after}}}"))
}

fn event_message(event: &Event) -> Message {
    let data = serde_json::to_string(event).expect("an event is plain text and numbers");
    Message::default().id(event.id.to_string()).data(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_says_where_it_begins() {
        let asked = |query: &[(&str, &str)], header: Option<&'static str>| {
            let query: Vec<_> = query
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            let headers = header.map(|id| (LAST_EVENT_ID, HeaderValue::from_static(id)));
            Start::asked(&query, &headers.into_iter().collect())
        };
        assert_eq!(asked(&[], None), Ok(Start::Now));
        assert_eq!(asked(&[("after", "7")], None), Ok(Start::AfterId(7)));
        assert_eq!(asked(&[("since", "7")], None), Ok(Start::Since(7)));
        let both = asked(&[("since", "7"), ("after", "8")], Some("9"));
        assert_eq!(both, Ok(Start::AfterId(9)));
        assert!(asked(&[("after", "x")], None).is_err());
        assert!(asked(&[("since", "x")], None).is_err());
        assert!(asked(&[], Some("-1")).is_err());
    }
}
