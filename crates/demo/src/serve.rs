//! The other ends of the server's connections, over HTTP: exporters, Slurm's commands, Slack.

use crate::mail::MailFolder;
use crate::mailbox;
use crate::page::{Demo, Instant, Scope, Sink};
use crate::slack::Channel;
use crate::slurm;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use takt_model::UnixTime;
use takt_model::exposition::{Format, write_page};
use takt_model::{Event, Metric, Samples, Timestamp};
use tokio::net::TcpListener;
use tokio::time;

/// Pause between two looks at the script of faults.
const EVENTS_EVERY: Duration = Duration::from_millis(500);

/// Interval of comments in a stream of events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time after which a request to a lost node fails by itself. Clients give up earlier.
const LOST: Duration = Duration::from_secs(60);

/// Listening sockets of the simulated cluster.
#[derive(Debug)]
pub struct Ports {
    /// Exporters, Slurm and Slack.
    pub http: TcpListener,
    /// Mail.
    pub smtp: TcpListener,
}

/// Serves the simulated cluster until the future is dropped.
///
/// # Errors
/// If the socket fails.
pub async fn serve(demo: Arc<Demo>, ports: Ports, mails: MailFolder) -> io::Result<()> {
    let mail = tokio::spawn(mails.clone().serve(ports.smtp));
    let routes = Router::new()
        .route("/{node}/metrics", get(metrics))
        .route("/{node}/events", get(events))
        .route("/slurm/{program}", post(run_program))
        .with_state(demo)
        .merge(
            Router::new()
                .route("/mail", get(mailbox::list))
                .route("/mail/{number}", get(mailbox::show))
                .with_state(mails),
        )
        .merge(Channel::default().routes());
    let served = axum::serve(ports.http, routes).await;
    // Mail ends with the HTTP server, which is the end of the demo.
    mail.abort();
    served
}

fn now() -> Instant {
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant {
        second: now.into(),
        exact: since.as_secs_f64(),
    }
}

/// Writes readings as an exposition page.
#[derive(Default)]
struct Page(Samples);

impl Sink for Page {
    fn push(&mut self, metric: &'static Metric, values: &[&str], value: f64) {
        self.0.push(metric, values, value);
    }
}

async fn metrics(State(demo): State<Arc<Demo>>, Path(node): Path<String>) -> Response {
    let Some(number) = demo.cluster.node(&node) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let now = now();
    // A node that is gone does not refuse the connection: it stays silent until the client gives up.
    if !demo.answers(number, now.second) {
        time::sleep(LOST).await;
        return StatusCode::GATEWAY_TIMEOUT.into_response();
    }

    let mut page = Page::default();
    demo.read(number, now, Scope::Everything, &mut page);
    let mut text = String::new();
    write_page(Format::Text, [&page.0], &mut text);
    ([(header::CONTENT_TYPE, Format::Text.content_type())], text).into_response()
}

/// Streams the lines of the node's kernel as the exporter does (docs/events.md). Ids are times in
/// milliseconds.
async fn events(
    State(demo): State<Arc<Demo>>,
    Path(node): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let Some(number) = demo.cluster.node(&node) else {
        return StatusCode::NOT_FOUND.into_response();
    };

    if !demo.answers(number, now().second) {
        time::sleep(LOST).await;
        return StatusCode::GATEWAY_TIMEOUT.into_response();
    }

    let asked = |name: &str| {
        query
            .iter()
            .find(|(key, _)| key == name)
            .and_then(|(_, value)| value.parse::<i64>().ok())
    };

    // A reconnecting client names the last event that it has. `after` is the same in the address.
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse::<i64>().ok())
        .or_else(|| asked("after"));
    let after = last
        .or_else(|| asked("since").map(|since| since - 1))
        .unwrap_or_else(|| Timestamp::from(now().second).0);

    // Only a new stream has a begin, from which the client knows what it may have missed.
    let begin = last.is_none().then(|| {
        let message = Message::default().event("begin").id(after.to_string());
        Ok::<_, Infallible>(message.data(format!("{{\"after\":{after}}}")))
    });

    let state = (demo, number, Timestamp(after).whole_seconds());
    let news = stream::unfold(state, |(demo, number, after)| async move {
        loop {
            time::sleep(EVENTS_EVERY).await;
            let until = now().second;
            // The stream breaks off when the node is lost, as its connection would.
            if !demo.answers(number, until) {
                return None;
            }
            let messages = messages(&demo, number, after, until);
            if !messages.is_empty() {
                return Some((stream::iter(messages), (demo, number, until)));
            }
        }
    });

    Sse::new(stream::iter(begin).chain(news.flatten()))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn messages(
    demo: &Demo,
    number: usize,
    after: UnixTime,
    until: UnixTime,
) -> Vec<Result<Message, Infallible>> {
    demo.script
        .kernel_lines(number, after, until)
        .into_iter()
        .map(|line| {
            let at = Timestamp::from(line.at);
            let event = Event {
                id: at.0.cast_unsigned(),
                at,
                kind: line.kind,
                labels: line.labels,
                message: line.text,
            };
            let data = serde_json::to_string(&event).unwrap_or_default();
            Ok(Message::default().id(event.id.to_string()).data(data))
        })
        .collect()
}

/// Runs one of Slurm's commands: the body has one argument in each line.
async fn run_program(
    State(demo): State<Arc<Demo>>,
    Path(program): Path<String>,
    body: String,
) -> Response {
    let args: Vec<&str> = body.lines().collect();
    match slurm::answer(&demo, now().second, &program, &args) {
        Ok(text) => text.into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error).into_response(),
    }
}
