//! Memory of requests: of their bodies while they are answered, and of answers from the time when
//! they are made until the client has read them.
//!
//! Hyper keeps the pieces of a body until the system has taken their bytes. Each piece carries the
//! memory that it takes, so a client that does not read keeps its share of the budget in use.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use takt_access::Viewer;
use takt_identity::{ErrorBody, ErrorKind, GuardedRouter};
use takt_questions::IMPORT_PATH;
use takt_questions::query_memory::account_of;
use takt_store::{HeldMemory, MemoryAccount, MemoryBudget, MemoryRefusal, MemoryUse};

/// Bytes of a piece of an answer.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Smallest answer that counts, in bytes: smaller ones are bounded by the number of connections.
const LEAST_BYTES: u64 = 16 << 10;

/// Bytes with the memory that they take.
struct HeldBytes<T> {
    bytes: T,
    _memory: HeldMemory,
}

impl<T> AsRef<[u8]> for HeldBytes<T>
where
    T: AsRef<[u8]>,
{
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

fn held<T>(bytes: T, memory: HeldMemory) -> Bytes
where
    T: AsRef<[u8]> + Send + 'static,
{
    Bytes::from_owner(HeldBytes {
        bytes,
        _memory: memory,
    })
}

/// Collects an answer in pieces, each with the memory that it takes. Blocks where memory is short.
#[derive(Debug)]
pub(super) struct AnswerWriter {
    memory: HeldMemory,
    pieces: VecDeque<Bytes>,
    piece: Vec<u8>,
    refusal: Option<MemoryRefusal>,
}

impl AnswerWriter {
    pub fn new(account: &MemoryAccount) -> Self {
        Self {
            memory: account.holder(MemoryUse::Answer),
            pieces: VecDeque::new(),
            piece: Vec::new(),
            refusal: None,
        }
    }

    /// The piece that is being written. After some kilobytes, call [`settle`](Self::settle).
    pub fn piece(&mut self) -> &mut Vec<u8> {
        &mut self.piece
    }

    /// Ends a piece that is full.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn settle(&mut self) -> Result<(), MemoryRefusal> {
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        self.end_piece()?;
        // A writer looks at the length only after some kilobytes, so a piece becomes somewhat
        // longer.
        self.piece.reserve(PIECE_BYTES + PIECE_BYTES / 8);
        Ok(())
    }

    fn end_piece(&mut self) -> Result<(), MemoryRefusal> {
        // The capacity is the memory in use, not the length.
        let bytes = self.piece.capacity() as u64;
        self.memory.grow(bytes)?;
        let piece = mem::take(&mut self.piece);
        self.pieces.push_back(held(piece, self.memory.split(bytes)));
        Ok(())
    }

    /// Returns the body.
    ///
    /// # Errors
    /// If there was no memory for it.
    pub fn finish(mut self) -> Result<HeldAnswer, MemoryRefusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        self.end_piece()?;
        Ok(HeldAnswer {
            pieces: self.pieces,
        })
    }
}

impl Write for AnswerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        self.settle().map_err(|refusal| {
            // serde_json wraps the error of a writer; the refusal is kept for `finish`.
            self.refusal = Some(refusal);
            io::Error::other(refusal)
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer whose memory is held.
#[derive(Debug)]
pub(super) struct HeldAnswer {
    pieces: VecDeque<Bytes>,
}

impl HeldAnswer {
    /// The whole answer, without its memory.
    pub fn into_bytes(self) -> Vec<u8> {
        Vec::from(self.pieces).concat()
    }

    /// The response with this content type.
    pub fn respond(self, content_type: &'static str) -> Response {
        let body = Body::new(self);
        let mut response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
        response.extensions_mut().insert(IsHeld);
        response
    }
}

impl HttpBody for HeldAnswer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(Frame::data).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Marks a response whose memory is held.
#[derive(Debug, Clone, Copy)]
struct IsHeld;

/// Whether the response is in memory, which it holds until it is read.
pub(super) fn is_held(response: &Response) -> bool {
    response.extensions().get::<IsHeld>().is_some()
}

/// Holds memory for all answers of the routes that are in memory as a whole.
pub fn with_held_answers<S>(router: GuardedRouter<S>, memory: MemoryBudget) -> GuardedRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    router.map(|router| router.layer(middleware::from_fn_with_state(memory, hold)))
}

async fn hold(State(memory): State<MemoryBudget>, request: Request, next: Next) -> Response {
    let viewer = request.extensions().get::<Viewer>();
    // A route without a viewer belongs to no account; its answers are small.
    let Some(account) = viewer.map(|viewer| account_of(&memory, viewer)) else {
        return next.run(request).await;
    };
    // An import is read as a stream.
    if request.uri().path() == IMPORT_PATH {
        return next.run(request).await;
    }

    let arrived = ArrivedBytes::new(&account);
    let counted = Arc::clone(&arrived);
    let request = request.map(|body| {
        let arrived = counted;
        Body::new(CountedBody { body, arrived })
    });
    let response = next.run(request).await;
    // A handler reports a damaged body; the lack of memory is the true reason.
    let refusal = arrived.lock().refusal;
    drop(arrived);
    if let Some(refusal) = refusal {
        return refused(refusal);
    }

    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if bytes < LEAST_BYTES || is_held(&response) {
        return response;
    }
    // The answer exists already: waiting here holds back its reader, and so the next request.
    let mut memory = account.holder(MemoryUse::Answer);
    match memory.grow_soon(bytes).await {
        Ok(()) => {
            let mut response = response.map(|body| Body::new(HeldBody { body, memory }));
            response.extensions_mut().insert(IsHeld);
            response
        }
        Err(refusal) => refused(refusal),
    }
}

/// Memory of a request's body, held until the answer is made.
struct ArrivedBytes(Mutex<Arrived>);

struct Arrived {
    memory: HeldMemory,
    /// Why the rest of the body is not read.
    refusal: Option<MemoryRefusal>,
}

impl ArrivedBytes {
    fn new(account: &MemoryAccount) -> Arc<Self> {
        let memory = account.holder(MemoryUse::Statement);
        let refusal = None;
        Arc::new(Self(Mutex::new(Arrived { memory, refusal })))
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: usize) -> Result<(), MemoryRefusal> {
        let mut arrived = self.lock();
        let taken = arrived.memory.try_grow(bytes as u64);
        arrived.refusal = taken.err();
        taken
    }
}

/// A request's body whose bytes take memory as they arrive.
struct CountedBody {
    body: Body,
    arrived: Arc<ArrivedBytes>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.arrived.add(bytes).map_err(axum::Error::new)?;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The response to a request for whose answer there is no memory.
pub(super) fn refused(refusal: MemoryRefusal) -> Response {
    let kind = if refusal.is_temporary() {
        // Worth another try once other requests have given their memory back; the other kind never
        // fits.
        ErrorKind::Unavailable
    } else {
        ErrorKind::Input
    };
    let error = refusal.to_string();
    ErrorBody { kind, error }.into_response()
}

/// A body whose pieces carry the memory that they take.
struct HeldBody {
    body: Body,
    memory: HeldMemory,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let memory = &mut this.memory;
        Pin::new(&mut this.body)
            .poll_frame(context)
            .map_ok(|frame| {
                frame.map_data(|bytes| {
                    let memory = memory.split(bytes.len() as u64);
                    held(bytes, memory)
                })
            })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Extension, Router};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use takt_access::Privacy;

    #[tokio::test]
    async fn a_body_takes_memory_as_it_arrives_and_its_viewer_has_a_share() {
        let budget = MemoryBudget::of_bytes(100_000);
        let inside = budget.clone();
        let sizes =
            move |body: String| async move { format!("{} {}", body.len(), inside.held_bytes()) };
        let viewer = Viewer::anonymous(Privacy::Open).with_caller("10.0.0.1");
        let router = Router::new()
            .route("/", post(sizes))
            .layer(middleware::from_fn_with_state(budget.clone(), hold))
            .layer(Extension(viewer));
        let router = TowerToHyperService::new(router);
        let ask = async |bytes: usize| {
            let request = Request::post("/").body(Body::from("x".repeat(bytes)));
            let response = router.call(request.unwrap()).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };

        let answered = (StatusCode::OK, "40000 40000".to_owned());
        // One account may hold half of the budget: 40,000 of 100,000 bytes fit, 60,000 do not.
        assert_eq!(ask(40_000).await, answered);
        let (status, said) = ask(60_000).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{said}");
        assert!(said.contains("memory_budget_mib"), "{said}");
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn an_answer_holds_memory_until_its_pieces_are_read() {
        let budget = MemoryBudget::of_bytes(4 << 20);
        let account = budget.account("alice");
        let mut writer = AnswerWriter::new(&account);
        let line = [b'x'; 1000];
        for _ in 0..1000 {
            writer.write_all(&line).unwrap();
        }
        let answer = writer.finish().unwrap();
        assert!((1_000_000..1_300_000).contains(&budget.held_bytes()));
        assert_eq!(answer.size_hint().exact(), Some(1_000_000));
        let all = to_bytes(Body::new(answer), usize::MAX).await.unwrap();
        assert_eq!(all.len(), 1_000_000);
        assert_eq!(budget.held_bytes(), 0);

        let mut writer = AnswerWriter::new(&account);
        // 3 MB are more than one account may have of 4 MiB.
        let written = (0..3000).try_for_each(|_| writer.write_all(&line));
        assert!(written.is_err());
        assert!(matches!(
            writer.finish(),
            Err(MemoryRefusal::TooLarge { .. })
        ));
        assert_eq!(budget.held_bytes(), 0);
    }
}
