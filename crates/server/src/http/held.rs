//! Memory of answers: held from the time when they are made until the client has read them.
//!
//! Hyper keeps the pieces of a body until the system has taken their bytes. Each piece carries the
//! memory that it takes, so a client that does not read keeps its share of the budget in use.

use super::{ErrorBody, ErrorKind, GuardedRouter};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use takt_access::Viewer;
use takt_store::{HeldMemory, MemoryAccount, MemoryBudget, MemoryRefusal, MemoryUse};

/// Bytes of a piece of an answer.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Smallest answer that counts, in bytes: smaller ones are bounded by the number of connections.
const LEAST_BYTES: u64 = 16 << 10;

/// Time after which a refused client may try again, in seconds.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// Returns a viewer's account. All who are known by the same name share one; so do the holders of a
/// token without a name.
pub fn account_of(memory: &MemoryBudget, viewer: &Viewer) -> MemoryAccount {
    match viewer.user().or(viewer.sender_name()) {
        Some(name) => memory.account(name),
        None => memory.account(format!(
            "{} by {}",
            viewer.role().name(),
            viewer.way().name()
        )),
    }
}

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
        self.piece.reserve(PIECE_BYTES + PIECE_BYTES / 8);
        Ok(())
    }

    fn end_piece(&mut self) -> Result<(), MemoryRefusal> {
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

/// Holds memory for all answers of the routes that are in memory as a whole.
pub(crate) fn with_held_answers<S>(
    router: GuardedRouter<S>,
    memory: MemoryBudget,
) -> GuardedRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    router.map(|router| router.layer(middleware::from_fn_with_state(memory, hold)))
}

async fn hold(State(memory): State<MemoryBudget>, request: Request, next: Next) -> Response {
    let viewer = request.extensions().get::<Viewer>();
    let account = viewer.map(|viewer| account_of(&memory, viewer));
    let response = next.run(request).await;

    let is_held = response.extensions().get::<IsHeld>().is_some();
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    let Some(account) = account.filter(|_| bytes >= LEAST_BYTES && !is_held) else {
        return response;
    };

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

/// The response to a request for whose answer there is no memory.
pub(super) fn refused(refusal: MemoryRefusal) -> Response {
    let kind = if refusal.is_temporary() {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Input
    };
    let error = refusal.to_string();
    ErrorBody { kind, error }.into_response()
}

/// Adds the time to try again to a response of 503.
pub(super) fn with_retry(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
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
        let written = (0..3000).try_for_each(|_| writer.write_all(&line));
        assert!(written.is_err());
        assert!(matches!(
            writer.finish(),
            Err(MemoryRefusal::TooLarge { .. })
        ));
        assert_eq!(budget.held_bytes(), 0);
    }
}
