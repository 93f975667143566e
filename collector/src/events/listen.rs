//! Reads an exporter's events (server-sent events, docs/events.md), starting after the last
//! committed one.

use super::{EventSink, SinkStopped, StreamState};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use std::mem;
use std::time::{Duration, SystemTime};
use takt_model::{Event, Labels, Timestamp};
use tokio::time;

/// The exporter sends a comment every 15 seconds; a connection without data for this long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// First wait after a failed connection; every further wait is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// Longest wait after a failed connection.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Longest wait that an exporter may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// The first contact asks for events since this long before it, as clocks differ.
const FIRST_CONTACT_MARGIN: Duration = Duration::from_secs(60);

/// Failed connections after which the log has a line: about 15 seconds without a connection.
const FAILURES_LOGGED: u32 = 5;

/// Wait before asking an exporter without events (node_exporter) again.
const RETRY_WITHOUT: Duration = Duration::from_secs(600);

/// Longest line, in bytes; an event is far shorter.
const LINE_MAX: usize = 1 << 20;

/// An exporter with events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exporter {
    /// URL of the events.
    pub url: String,
    /// Labels of the exporter's series; every event gets them.
    pub labels: Labels,
}

/// Makes a request for the exporter's events, with the exporter's credentials and TLS settings.
pub type RequestFactory =
    Box<dyn Fn() -> BoxFuture<'static, Result<RequestBuilder, String>> + Send + Sync>;

/// Reads events until the sink stops.
pub async fn listen(requests: RequestFactory, exporter: Exporter, sink: impl EventSink) {
    let mut pause = RETRY_FIRST;
    let mut failures = 0;
    let stream = sink.stream(&exporter);
    let since = Timestamp::from(SystemTime::now()).minus(FIRST_CONTACT_MARGIN);
    loop {
        let Ok(after) = sink.read_until(&exporter.url).await else {
            return;
        };
        // Requests all events since the first attempt, even if connecting takes long.
        let start = after.map_or(Start::Since(since), Start::AfterId);
        match connection(&requests, &exporter, start, &sink, &stream).await {
            Ok(()) => (pause, failures) = (RETRY_FIRST, 0),
            Err(ListenError::Sink(_)) => return,
            Err(ListenError::Without(_)) => {
                stream.forget();
                pause = RETRY_WITHOUT;
            }
            Err(error) => {
                if stream.is_up() {
                    failures = 0;
                }
                stream.set(false);
                failures += 1;
                if failures == FAILURES_LOGGED {
                    tracing::warn!(url = exporter.url, %error, "cannot listen to events");
                } else {
                    tracing::debug!(url = exporter.url, %error, "cannot listen to events");
                }
                pause = error.pause(pause);
            }
        }
        time::sleep(pause).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error("the exporter has no events: {0}")]
    Without(StatusCode),
    #[error("the exporter answered {status}")]
    Refused {
        status: StatusCode,
        /// The pause that the exporter asks for.
        retry_after: Option<Duration>,
    },
    #[error("{0}")]
    Http(#[from] reqwest::Error),
    #[error("{0}")]
    Request(String),
    #[error("no data for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("a line of more than {LINE_MAX} bytes")]
    TooLong,
    #[error(transparent)]
    Sink(#[from] SinkStopped),
}

impl ListenError {
    /// Returns the error for a response that is not an event stream.
    fn of_answer(status: StatusCode, headers: &HeaderMap) -> Self {
        // A refused password may be accepted after the exporter's configuration changed.
        let is_temporary =
            status.is_server_error() || matches!(status.as_u16(), 401 | 403 | 408 | 429);
        if !is_temporary {
            return Self::Without(status);
        }
        let seconds = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs);
        Self::Refused {
            status,
            retry_after: seconds,
        }
    }

    /// The wait before the next attempt, after a wait of `last`.
    fn pause(&self, last: Duration) -> Duration {
        match self {
            Self::Refused {
                retry_after: Some(pause),
                ..
            } => (*pause).clamp(RETRY_FIRST, RETRY_AFTER_MAX),
            _ => (last * 2).min(RETRY_MAX),
        }
    }
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy)]
enum Start {
    AfterId(u64),
    Since(Timestamp),
}

async fn connection<S>(
    requests: &RequestFactory,
    exporter: &Exporter,
    start: Start,
    sink: &S,
    state: &S::Stream,
) -> Result<(), ListenError>
where
    S: EventSink,
{
    let request = requests()
        .await
        .map_err(ListenError::Request)?
        .header("Accept", "text/event-stream");
    let request = match start {
        Start::AfterId(id) => request.header("Last-Event-ID", id.to_string()),
        Start::Since(at) => request.query(&[("since", at.0.max(0))]),
    };
    let response = time::timeout(SILENCE_MAX, request.send())
        .await
        .map_err(|_| ListenError::Silent)??;
    let status = response.status();
    if status != StatusCode::OK || !is_event_stream(response.headers()) {
        return Err(ListenError::of_answer(status, response.headers()));
    }
    state.set(true);
    let mut stream = response.bytes_stream();
    let mut parser = EventParser::default();
    loop {
        let chunk = time::timeout(SILENCE_MAX, stream.next())
            .await
            .map_err(|_| ListenError::Silent)?;
        let Some(chunk) = chunk else { return Ok(()) };
        for message in parser.push(&chunk?)? {
            take(&message, exporter, sink).await?;
        }
    }
}

/// Whether the reply is an event stream. Some servers answer every path with the same page.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Hands one server-sent event to the sink.
async fn take(
    message: &ServerEvent,
    exporter: &Exporter,
    sink: &impl EventSink,
) -> Result<(), SinkStopped> {
    if message.kind == "gap" {
        tracing::error!(
            url = exporter.url,
            data = message.data,
            "events were lost: the exporter no longer keeps them"
        );
        return Ok(());
    }
    if message.kind == "begin"
        && let Ok(StreamStart { after }) = serde_json::from_str(&message.data)
    {
        return sink.begin_reading(&exporter.url, after).await;
    }
    match serde_json::from_str::<Event>(&message.data) {
        Ok(mut event) => {
            // Labels in the event cannot make it look like another node's.
            exporter
                .labels
                .iter()
                .for_each(|(name, value)| event.labels.set(name, value));
            sink.event(&exporter.url, event).await
        }
        Err(error) => {
            tracing::warn!(url = exporter.url, %error, data = message.data, "invalid event");
            Ok(())
        }
    }
}

/// Data of the first event of a stream: the position to continue from.
#[derive(Deserialize)]
struct StreamStart {
    after: u64,
}

/// One server-sent event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ServerEvent {
    kind: String,
    data: String,
}

/// Assembles server-sent events from the chunks of a stream.
#[derive(Debug, Default)]
struct EventParser {
    rest: Vec<u8>,
    message: ServerEvent,
}

impl EventParser {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<ServerEvent>, ListenError> {
        self.rest.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            messages.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        if self.rest.len() > LINE_MAX || self.message.data.len() > LINE_MAX {
            return Err(ListenError::TooLong);
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<ServerEvent> {
        if line.is_empty() {
            let message = mem::take(&mut self.message);
            return Some(message).filter(|message| !message.data.is_empty());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.kind),
            "data" => {
                if !self.message.data.is_empty() {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // A comment, the id (the data has it too), or an unknown field.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    const TEXT: &str = ": hello\n\nid: 7\ndata: {\"a\":1}\n\nevent: gap\r\ndata: \
         {\"after\":3}\r\n\r\ndata: one\ndata: two\n\n";

    fn messages(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut lines = EventParser::default();
        pieces
            .iter()
            .flat_map(|piece| lines.push(piece).unwrap())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|message| (message.kind, message.data))
            .collect()
    }

    #[test]
    fn a_page_is_no_stream_of_events() {
        let of = |kind: &'static str| {
            [(CONTENT_TYPE, kind.parse().unwrap())]
                .into_iter()
                .collect::<HeaderMap>()
        };
        assert!(
            is_event_stream(&of("text/event-stream"))
                && is_event_stream(&of("text/event-stream; charset=utf-8"))
        );
        assert!(
            !is_event_stream(&of("text/plain; version=0.0.4"))
                && !is_event_stream(&HeaderMap::new())
        );
    }

    #[test]
    fn a_refusal_is_retried_when_the_exporter_says_so() {
        let pause = |status: u16, retry_after: Option<&'static str>| {
            let headers = retry_after.map(|text| (RETRY_AFTER, text.parse().unwrap()));
            let status = StatusCode::from_u16(status).unwrap();
            match ListenError::of_answer(status, &headers.into_iter().collect()) {
                ListenError::Without(_) => RETRY_WITHOUT,
                refused => refused.pause(Duration::from_secs(4)),
            }
        };
        let doubled = Duration::from_secs(8);
        for status in [401, 403, 408, 429, 500, 503] {
            assert_eq!(pause(status, None), doubled, "{status}");
        }
        assert_eq!(pause(429, Some("15")), Duration::from_secs(15));
        assert_eq!(pause(503, Some("0")), RETRY_FIRST);
        assert_eq!(pause(503, Some("86400")), RETRY_AFTER_MAX);
        assert_eq!(pause(503, Some("Fri, 31 Dec 1999 23:59:59 GMT")), doubled);
        // No events here: a page, a redirect, node_exporter.
        for status in [200, 302, 404, 405] {
            assert_eq!(pause(status, Some("1")), RETRY_WITHOUT, "{status}");
        }
    }

    #[test]
    fn messages_of_the_protocol() {
        let text = |text: &str| text.to_owned();
        let expected = [
            (text(""), text("{\"a\":1}")),
            (text("gap"), text("{\"after\":3}")),
            (text(""), text("one\ntwo")),
        ];
        assert_eq!(messages(&[TEXT.as_bytes()]), expected);
        let mut lines = EventParser::default();
        assert!(
            lines.push(&vec![b'x'; LINE_MAX + 1]).is_err(),
            "what never ends is given up"
        );
    }

    proptest! {
        /// However the network cuts the text, and whatever garbage it is, reading it in pieces is
        /// reading it whole.
        #[test]
        fn pieces_do_not_matter(
            cuts in collection::vec(0usize..TEXT.len(), 0..6),
            garbage: Vec<u8>,
        ) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts
                .windows(2)
                .map(|pair| &TEXT.as_bytes()[pair[0]..pair[1]])
                .collect();
            prop_assert_eq!(messages(&pieces), messages(&[TEXT.as_bytes()]));
            let halves = garbage.split_at(garbage.len() / 2);
            prop_assert_eq!(messages(&[halves.0, halves.1]), messages(&[&garbage]));
        }
    }
}
