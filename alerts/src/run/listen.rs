//! Listening to an exporter's events (server-sent events, docs/events.md), from the last one that was committed on.

use super::{ChangeError, Handle, Stopped};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use takt_model::{Event, Labels};

/// A comment comes every 15 seconds; a connection that is silent for longer is dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Waits after a connection that failed: they double.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An exporter without events (node_exporter) is asked again after this.
const RETRY_WITHOUT: Duration = Duration::from_secs(600);

/// The longest line that is read; an event is far shorter.
const LINE_MAX: usize = 1 << 20;

/// An exporter with events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exporter {
    /// Where its events are.
    pub url: String,
    /// The labels of its series; every event gets them.
    pub labels: Labels,
}

/// Makes a request for the exporter's events, with all that the exporter asks of those who ask it; or says why it cannot.
pub type Ask = Box<dyn Fn() -> BoxFuture<'static, Result<RequestBuilder, String>> + Send + Sync>;

/// Listens until the engine is gone. Ends only then.
pub async fn listen(ask: Ask, exporter: Exporter, handle: Handle) {
    let mut pause = RETRY_FIRST;
    loop {
        let name = exporter.url.clone();
        let Ok(after) = handle.read(move |engine, _| engine.read_until(&name)).await else {
            return;
        };
        match connection(&ask, &exporter, after, &handle).await {
            Ok(()) => pause = RETRY_FIRST,
            Err(ListenError::Stopped(_)) => return,
            Err(ListenError::Without(_)) => pause = RETRY_WITHOUT,
            Err(error) => {
                tracing::debug!(url = exporter.url, %error, "events cannot be read");
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error("the exporter tells no events: {0}")]
    Without(StatusCode),
    #[error("{0}")]
    Http(#[from] reqwest::Error),
    #[error("{0}")]
    Request(String),
    #[error("no word for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("a line of more than {LINE_MAX} bytes")]
    TooLong,
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

async fn connection(
    ask: &Ask,
    exporter: &Exporter,
    after: Option<u64>,
    handle: &Handle,
) -> Result<(), ListenError> {
    let request = ask().await.map_err(ListenError::Request)?;
    let mut request = request.header("Accept", "text/event-stream");
    if let Some(id) = after {
        request = request.header("Last-Event-ID", id.to_string());
    }
    let response = tokio::time::timeout(SILENCE_MAX, request.send())
        .await
        .map_err(|_| ListenError::Silent)??;
    let response = match response.status() {
        StatusCode::OK if is_event_stream(response.headers()) => response,
        // A password that is wrong today may be right when it was renewed.
        status if status.is_server_error() || matches!(status.as_u16(), 401 | 403) => {
            response.error_for_status()?
        }
        status => return Err(ListenError::Without(status)),
    };
    let mut stream = response.bytes_stream();
    let mut lines = Lines::default();
    loop {
        let chunk = tokio::time::timeout(SILENCE_MAX, stream.next())
            .await
            .map_err(|_| ListenError::Silent)?;
        let Some(chunk) = chunk else { return Ok(()) };
        for message in lines.push(&chunk?)? {
            take(&message, exporter, handle).await?;
        }
    }
}

/// Some servers answer every path with the same page: reading that again and again would tell nothing.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

async fn take(message: &Message, exporter: &Exporter, handle: &Handle) -> Result<(), Stopped> {
    if message.kind == "gap" {
        tracing::error!(
            url = exporter.url,
            data = message.data,
            "events were lost: the exporter no longer keeps them"
        );
        return Ok(());
    }
    if message.kind == "begin"
        && let Ok(Place { after }) = serde_json::from_str(&message.data)
    {
        let name = exporter.url.clone();
        return match handle
            .change(move |engine, _| ((), engine.begins_reading(&name, after)))
            .await
        {
            Err(ChangeError::Stopped(stopped)) => Err(stopped),
            // It is stored with the next commit that works, as everything is.
            Ok(()) | Err(ChangeError::Store(_)) => Ok(()),
        };
    }
    match serde_json::from_str::<Event>(&message.data) {
        Ok(mut event) => {
            // Nothing that an event says can make it look like another node's.
            exporter
                .labels
                .iter()
                .for_each(|(name, value)| event.labels.set(name, value));
            handle.event(&exporter.url, event)
        }
        Err(error) => {
            tracing::warn!(url = exporter.url, %error, data = message.data, "an event cannot be understood");
            Ok(())
        }
    }
}

/// Where reading goes on.
#[derive(Deserialize)]
struct Place {
    after: u64,
}

/// One server-sent event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Message {
    kind: String,
    data: String,
}

/// Puts server-sent events together from the pieces that arrive.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
    message: Message,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, ListenError> {
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

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
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
            // A comment, the id (it is in the data as well) or what we do not know.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = ": hello\n\nid: 7\ndata: {\"a\":1}\n\nevent: gap\r\ndata: {\"after\":3}\r\n\r\ndata: one\ndata: two\n\n";

    fn messages(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut lines = Lines::default();
        let all = pieces
            .iter()
            .flat_map(|piece| lines.push(piece).unwrap())
            .collect::<Vec<_>>();
        all.into_iter()
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
    fn messages_of_the_protocol() {
        let text = |text: &str| text.to_owned();
        let expected = [
            (text(""), text("{\"a\":1}")),
            (text("gap"), text("{\"after\":3}")),
            (text(""), text("one\ntwo")),
        ];
        assert_eq!(messages(&[TEXT.as_bytes()]), expected);
        let mut lines = Lines::default();
        assert!(
            lines.push(&vec![b'x'; LINE_MAX + 1]).is_err(),
            "what never ends is given up"
        );
    }

    proptest! {
        /// However the network cuts the text, and whatever garbage it is, reading it in pieces is reading it whole.
        #[test]
        fn pieces_do_not_matter(cuts in proptest::collection::vec(0usize..TEXT.len(), 0..6), garbage: Vec<u8>) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &TEXT.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(messages(&pieces), messages(&[TEXT.as_bytes()]));
            let halves = garbage.split_at(garbage.len() / 2);
            prop_assert_eq!(messages(&[halves.0, halves.1]), messages(&[&garbage]));
        }
    }
}
