//! Requests that push samples: Prometheus remote write 1.0 and 2.0, and OTLP metrics.
//!
//! A reply of 2xx means that the samples are on disk. docs/push.md lists the codes.

use super::listen::SlowUpload;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flate2::read::MultiGzDecoder;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use takt_access::{Need, RouteNeeds};
use takt_collector::push::{PushConfig, PushReport, Sender, Senders};
use takt_connections::PlaceHolder;
use takt_identity::{By, GuardedRouter, OTLP_PATH, RETRY_AFTER, WRITE_PATH};
use takt_model::error_chain;
use takt_push::MemoryGrant;
use takt_push::otlp::{Encoding, ExportReply, PartialSuccess};
use takt_push::remote_write::{Protocol, RequestError, decompress, message_length, read_request};
use takt_store::{HeldMemory, MemoryBudget, MemoryRefusal, MemoryUse, PushError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;

/// Time that a request waits for others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time in which the body of a request has to arrive. Prometheus gives up after 30 seconds.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Memory for a body is taken in steps of so many bytes.
const BODY_STEP_BYTES: u64 = 64 << 10;

/// Memory of a sample on its way to the disk, in bytes.
const STORED_SAMPLE_BYTES: usize = 96;

/// How much of a body that is too long is read, as a multiple of the limit.
const DISCARDED_LIMITS: usize = 4;

/// Counts of stored samples, histograms and exemplars, for senders of version 2.0.
const WRITTEN: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

/// State of the handlers.
#[derive(Debug, Clone)]
pub struct Pushing {
    senders: Arc<Senders>,
    requests: Arc<Semaphore>,
    /// Requests of each sender at the same time: one with slow bodies leaves half to the others.
    shares: Arc<HashMap<String, Arc<Semaphore>>>,
    max_body_bytes: usize,
    max_message_bytes: usize,
    memory: MemoryBudget,
}

impl Pushing {
    /// Returns the state for these senders.
    pub fn new(senders: Arc<Senders>, config: &PushConfig, memory: MemoryBudget) -> Self {
        let share = match config.senders.len() {
            0 | 1 => config.max_requests,
            // Among several senders, none can have more than half of the places.
            _ => config.max_requests.div_ceil(2),
        };

        Self {
            requests: Arc::new(Semaphore::new(config.max_requests)),
            shares: Arc::new(
                senders
                    .names()
                    .map(|name| (name.to_owned(), Arc::new(Semaphore::new(share))))
                    .collect(),
            ),
            senders,
            max_body_bytes: config.max_body_bytes(),
            max_message_bytes: config.max_message_bytes(),
            memory,
        }
    }
}

/// The routes.
pub fn router(pushing: Pushing) -> GuardedRouter {
    // Not a change in the audit log: a sender pushes every few seconds.
    let needs = RouteNeeds::read(Need::Push);
    GuardedRouter::new()
        .route(WRITE_PATH, needs, post(write))
        .route(OTLP_PATH, needs, post(otlp))
        .with_state(pushing)
}

/// Why a request is not stored.
#[derive(Debug, thiserror::Error)]
enum PushRefusal {
    #[error("unknown content type {0:?}; docs/push.md lists those of remote write and OTLP")]
    ContentType(String),
    #[error("unknown content encoding {0:?}; expected {1}")]
    ContentEncoding(String, &'static str),
    #[error("the body is longer than {0} bytes")]
    BodyTooLong(usize),
    #[error("the message is longer than {0} bytes")]
    MessageTooLong(usize),
    #[error("the body cannot be read: {0}")]
    Body(String),
    #[error("the body did not arrive within {} seconds, or too slowly", BODY_TIME.as_secs())]
    Slow,
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Rejected(String),
    #[error("too many requests at the same time")]
    Busy,
    #[error("{0}")]
    Unwritable(String),
    #[error("no memory for the request: {0}")]
    Memory(MemoryRefusal),
}

impl PushRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::ContentType(_) | Self::ContentEncoding(..) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLong(_) | Self::MessageTooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Memory(refusal) if !refusal.is_temporary() => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(_) | Self::Damaged(_) | Self::Rejected(_) => StatusCode::BAD_REQUEST,
            // Prometheus drops its samples after 408 and 429, and repeats them after 503.
            Self::Slow | Self::Busy | Self::Unwritable(_) | Self::Memory(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl IntoResponse for PushRefusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, format!("{self}\n")).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

impl From<PushError> for PushRefusal {
    fn from(error: PushError) -> Self {
        Self::Unwritable(error_chain(&error))
    }
}

impl From<RequestError> for PushRefusal {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::TooLong { limit, .. } => Self::MessageTooLong(limit),
            error => Self::Damaged(error_chain(&error)),
        }
    }
}

/// A request that may be read now.
struct Admitted {
    sender: Arc<Sender>,
    body: Vec<u8>,
    memory: HeldMemory,
    _permits: [OwnedSemaphorePermit; 2],
}

impl Pushing {
    /// Waits until the request may be read, and reads its body.
    async fn admit(&self, name: &str, body: Body) -> Result<Admitted, PushRefusal> {
        let sender = self
            .senders
            .named(name)
            .ok_or_else(|| PushRefusal::Unwritable("unknown sender".to_owned()))?;

        let share = self.shares.get(name).unwrap_or(&self.requests);
        let permits = async {
            // The own place first: a sender that waits for its share must not hold one that others
            // could use.
            let own = Arc::clone(share).acquire_owned().await.ok()?;
            let shared = Arc::clone(&self.requests).acquire_owned().await.ok()?;
            Some([own, shared])
        };

        let permits = time::timeout(PATIENCE, permits)
            .await
            .ok()
            .flatten()
            .ok_or(PushRefusal::Busy)?;

        let holder = PlaceHolder::Sender(name.into()).to_string();
        let account = self.memory.account(holder).with_reserve(true);
        let mut memory = account.holder(MemoryUse::Push);

        let body = time::timeout(BODY_TIME, read_body(body, self.max_body_bytes, &mut memory))
            .await
            .unwrap_or(Err(PushRefusal::Slow))
            .inspect_err(|refusal| {
                if matches!(refusal, PushRefusal::Slow) {
                    tracing::warn!(sender = name, "the body of a push arrived too slowly");
                }
            })?;

        Ok(Admitted {
            sender: Arc::clone(sender),
            body,
            memory,
            _permits: permits,
        })
    }
}

/// Reads a body of up to `limit` bytes. Also reads the rest of one that is somewhat longer: its
/// sender would see a broken connection instead of the refusal, and try again for ever.
async fn read_body(
    body: Body,
    limit: usize,
    memory: &mut HeldMemory,
) -> Result<Vec<u8>, PushRefusal> {
    let mut found = Vec::new();
    let mut length = 0_usize;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            if SlowUpload::caused(&error) {
                PushRefusal::Slow
            } else {
                PushRefusal::Body(error_chain(&error))
            }
        })?;

        length = length.saturating_add(chunk.len());
        if length <= limit {
            if memory.bytes() < length as u64 {
                // In steps, because chunks may be a few bytes long.
                let more = (chunk.len() as u64).max(BODY_STEP_BYTES);
                memory.grow_soon(more).await.map_err(PushRefusal::Memory)?;
            }
            found.extend_from_slice(&chunk);
        // Beyond that, the connection is closed: reading on would cost more than the refusal is
        // worth.
        } else if length > limit.saturating_mul(DISCARDED_LIMITS) {
            break;
        }
    }

    if length > limit {
        return Err(PushRefusal::BodyTooLong(limit));
    }
    Ok(found)
}

/// Runs `work`, which waits for the disk, on a thread for blocking work.
async fn blocking<T>(
    work: impl FnOnce() -> Result<T, PushRefusal> + Send + 'static,
) -> Result<T, PushRefusal>
where
    T: Send + 'static,
{
    takt_store::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(PushRefusal::Unwritable(error.to_string())))
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Remote write.
async fn write(
    State(pushing): State<Pushing>,
    By(viewer): By,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let name = viewer.sender_name().unwrap_or_default().to_owned();
    let protocol = Protocol::of_content_type(text(&headers, header::CONTENT_TYPE));
    let stored = store_written(&pushing, &name, protocol, &headers, body).await;

    let [samples, histograms] = stored.as_ref().map_or([0, 0], |report| {
        // Repeated samples are stored already, so the sender must not count them as lost.
        let all = report.stored + report.repeated + report.replica;
        [all - report.histograms, report.histograms]
    });

    let refusal = stored.map(|report| report.refusal().map(PushRefusal::Rejected));
    let mut response = match refusal {
        Ok(None) => StatusCode::NO_CONTENT.into_response(),
        Ok(Some(refusal)) | Err(refusal) => refusal.into_response(),
    };

    // Senders of version 2.0 compare these counts with theirs, on errors too. Exemplars are not
    // kept.
    for (name, count) in WRITTEN.into_iter().zip([samples, histograms, 0]) {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, count.into());
    }

    let protocol = protocol.map_or("remote_write", |protocol| match protocol {
        Protocol::V1 => "remote_write_1",
        Protocol::V2 => "remote_write_2",
    });

    pushing
        .senders
        .metrics()
        .request(&name, protocol, response.status().as_u16());
    response
}

async fn store_written(
    pushing: &Pushing,
    name: &str,
    protocol: Option<Protocol>,
    headers: &HeaderMap,
    body: Body,
) -> Result<PushReport, PushRefusal> {
    let encoding = text(headers, header::CONTENT_ENCODING);
    // Senders of the first version may leave the header out.
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("snappy") {
        return Err(PushRefusal::ContentEncoding(encoding.to_owned(), "snappy"));
    }

    let protocol = protocol
        .ok_or_else(|| PushRefusal::ContentType(text(headers, header::CONTENT_TYPE).to_owned()))?;

    let admitted = pushing.admit(name, body).await?;
    let limit = pushing.max_message_bytes;

    blocking(move || {
        let mut memory = RequestMemory::new(admitted.memory);
        // The length stands in the first bytes of snappy, so the memory is taken before the message
        // is unpacked.
        memory.take(message_length(&admitted.body, limit)?)?;
        let message = decompress(&admitted.body, limit)?;

        let request =
            memory.granting(|grant| read_request(protocol, message, grant).map_err(Into::into))?;
        memory.take(request.sample_count() * STORED_SAMPLE_BYTES)?;
        Ok(admitted.sender.store(&request)?)
    })
    .await
}

/// Memory of a request that is read. Blocks where memory is short.
struct RequestMemory {
    held: HeldMemory,
    refusal: Option<MemoryRefusal>,
}

impl RequestMemory {
    fn new(held: HeldMemory) -> Self {
        Self {
            held,
            refusal: None,
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), PushRefusal> {
        self.held.grow(bytes as u64).map_err(PushRefusal::Memory)
    }

    /// Reads with memory that is taken when it is needed.
    fn granting<T>(
        &mut self,
        read: impl FnOnce(&mut MemoryGrant<'_>) -> Result<T, PushRefusal>,
    ) -> Result<T, PushRefusal> {
        let Self { held, refusal } = self;
        let mut ask = |bytes: usize| {
            *refusal = held.grow(bytes as u64).err();
            refusal.is_none()
        };

        let read = read(&mut MemoryGrant::new(&mut ask));
        // The reader's own error says less.
        match *refusal {
            Some(refusal) => Err(PushRefusal::Memory(refusal)),
            None => read,
        }
    }
}

/// OTLP metrics.
async fn otlp(
    State(pushing): State<Pushing>,
    By(viewer): By,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let name = viewer.sender_name().unwrap_or_default().to_owned();
    let encoding = Encoding::of_content_type(text(&headers, header::CONTENT_TYPE));
    let response = match store_points(&pushing, &name, encoding, &headers, body).await {
        Ok((encoding, report)) => {
            let partial_success = report.refusal().map(|error_message| PartialSuccess {
                rejected_data_points: report.rejected_points as i64,
                error_message,
            });
            let reply = encoding.reply(&ExportReply { partial_success });
            ([(header::CONTENT_TYPE, encoding.content_type())], reply).into_response()
        }
        // Senders of OTLP repeat their points after 429, too.
        Err(refusal @ PushRefusal::Busy) => {
            let mut response = refusal.into_response();
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response
        }
        Err(refusal) => refusal.into_response(),
    };

    pushing
        .senders
        .metrics()
        .request(&name, "otlp", response.status().as_u16());
    response
}

async fn store_points(
    pushing: &Pushing,
    name: &str,
    encoding: Option<Encoding>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Encoding, PushReport), PushRefusal> {
    let compression = text(headers, header::CONTENT_ENCODING).to_ascii_lowercase();
    let is_packed = compression == "gzip";
    if !is_packed && !["", "identity"].contains(&compression.as_str()) {
        return Err(PushRefusal::ContentEncoding(compression, "gzip or none"));
    }

    let encoding = encoding
        .ok_or_else(|| PushRefusal::ContentType(text(headers, header::CONTENT_TYPE).to_owned()))?;

    let admitted = pushing.admit(name, body).await?;
    let limit = pushing.max_message_bytes;
    blocking(move || {
        let mut memory = RequestMemory::new(admitted.memory);
        let unpacked;
        let message = if is_packed {
            unpacked = unpack(&admitted.body, limit, &mut memory)?;
            &unpacked[..]
        } else {
            &admitted.body[..]
        };

        let translation = admitted.sender.translation();
        let translated = memory.granting(|grant| {
            translation
                .read(encoding, message, grant)
                .map_err(|error| PushRefusal::Damaged(error_chain(&error)))
        })?;

        memory.take(translated.series.sample_count() * STORED_SAMPLE_BYTES)?;
        let report = admitted.sender.store_points(&translated)?;
        Ok((encoding, report))
    })
    .await
}

/// Decompresses gzip, up to `limit` bytes.
fn unpack(body: &[u8], limit: usize, memory: &mut RequestMemory) -> Result<Vec<u8>, PushRefusal> {
    /// Bytes of the first list; each further one is twice as long.
    const LEAST: usize = 64 << 10;
    let mut message = Vec::new();
    // One byte more than allowed shows that the message is too long. A gzip bomb ends there.
    let mut decoder = MultiGzDecoder::new(body).take(limit as u64 + 1);
    loop {
        let more = message.len().max(LEAST).min(limit + 1 - message.len());
        memory.take(more)?;
        // A list that doubles by itself would take memory that was not asked for.
        message.reserve_exact(more);
        let read = decoder.by_ref().take(more as u64).read_to_end(&mut message);

        let read = read.map_err(|error| {
            PushRefusal::Damaged(format!("the body is not valid gzip: {error}"))
        })?;

        if message.len() > limit {
            return Err(PushRefusal::MessageTooLong(limit));
        }
        if read < more {
            return Ok(message);
        }
    }
}
