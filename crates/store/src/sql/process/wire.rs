//! Messages between the server, the query process and its statement processes.
//!
//! The query process has one control socket. Each request is one byte and a file descriptor: the
//! socket over which the request's text and its answer travel. A text is a length and JSON; the
//! rows of an answer follow in Arrow's IPC format. Meanwhile a statement's process may ask for unsealed
//! samples.

use super::super::SqlError;
use crate::Sample;
use crate::unsealed::Arguments;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use takt_model::Timestamp;

/// Maximum length of a message, in bytes. A statement is limited by its protocol.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// Bytes of a sample on the way.
const SAMPLE_BYTES: usize = 20;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// [`Follow`].
    Follow = b'f',
    /// [`Statement`].
    Statement = b's',
}

/// Attaches new copies of the databases. The answer is an [`Outcome`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Follow {
    /// Catalog and path of each new copy.
    pub databases: Vec<(String, PathBuf)>,
    /// SQL of the views over the blocks; `None` if they are unchanged.
    pub views: Option<String>,
}

/// One statement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Statement {
    /// User of PostgreSQL's protocol.
    pub user: Option<String>,
    /// Whether the rows of the audit log are visible.
    pub is_admin: bool,
    /// Text of the statement.
    pub sql: String,
    /// Whether only the types of its parameters are asked for.
    pub only_parameters: bool,
    /// Time limit.
    pub timeout: Duration,
    /// Maximum number of rows.
    pub max_rows: usize,
    /// Memory limit, in bytes.
    pub memory_bytes: u64,
    /// Threads of the statement.
    pub threads: u32,
    /// The data directory: the only place that DuckDB may read.
    pub data: PathBuf,
    /// Directory for temporary files of this statement.
    pub temporary: PathBuf,
}

/// Message of a statement's process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Asks for the first unsealed samples of a scan. `scan` is a number of the process's own.
    Scan { scan: u32, arguments: Arguments },
    /// Asks for the next ones.
    More { scan: u32 },
    /// The answer to the statement; the last message.
    Outcome(Outcome),
}

/// Answer to a request. The rows of a successful statement follow it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// The copies are attached.
    Following {
        /// Number of metrics that lists of tables do not show.
        left_out: usize,
    },
    /// Rows follow.
    Rows {
        /// Whether rows were omitted.
        truncated: bool,
    },
    /// Types of parameters, by number.
    Parameters(HashMap<usize, String>),
    /// The request failed.
    Failed(Failure),
}

/// A [`SqlError`] on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Refused(String),
    Statement(String),
    Timeout,
    Memory,
    TooLarge,
    Other(String),
}

impl Failure {
    pub fn of(error: &SqlError) -> Self {
        match error {
            SqlError::Refused(text) => Self::Refused(text.clone()),
            // DuckDB catches a failed allocation beyond the process's limit.
            SqlError::Statement(text) if text.contains("bad_alloc") => Self::Memory,
            SqlError::Statement(text) => Self::Statement(text.clone()),
            SqlError::Timeout(_) => Self::Timeout,
            SqlError::Memory => Self::Memory,
            SqlError::TooLarge => Self::TooLarge,
            other => Self::Other(takt_model::error_chain(other)),
        }
    }

    pub fn into_error(self, timeout: Duration) -> SqlError {
        match self {
            Self::Refused(text) => SqlError::Refused(text),
            Self::Statement(text) => SqlError::Statement(text),
            Self::Timeout => SqlError::Timeout(timeout),
            Self::Memory => SqlError::Memory,
            Self::TooLarge => SqlError::TooLarge,
            Self::Other(text) => SqlError::Unavailable(text),
        }
    }
}

/// Writes samples: their number, then series, time and value of each. `None` is a failure.
pub(super) fn write_samples(mut to: impl Write, rows: Option<&[(u32, Sample)]>) -> io::Result<()> {
    let Some(rows) = rows else {
        return to.write_all(&u32::MAX.to_le_bytes());
    };
    let mut bytes = Vec::with_capacity(4 + rows.len() * SAMPLE_BYTES);
    let count = u32::try_from(rows.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    bytes.extend_from_slice(&count.to_le_bytes());
    for (series, sample) in rows {
        bytes.extend_from_slice(&series.to_le_bytes());
        bytes.extend_from_slice(&sample.at.0.to_le_bytes());
        bytes.extend_from_slice(&sample.value.to_bits().to_le_bytes());
    }
    to.write_all(&bytes)
}

/// Reads samples that [`write_samples`] wrote. Fails if it wrote a failure.
pub(super) fn read_samples(mut from: impl Read) -> io::Result<Vec<(u32, Sample)>> {
    let mut count = [0; 4];
    from.read_exact(&mut count)?;
    let count = u32::from_le_bytes(count);
    if count == u32::MAX {
        return Err(io::Error::other("cannot read unsealed samples"));
    }

    let mut bytes = vec![0; count as usize * SAMPLE_BYTES];
    from.read_exact(&mut bytes)?;

    let rows = bytes
        .chunks_exact(SAMPLE_BYTES)
        .map(|row| {
            let (series, rest) = row.split_at(4);
            let (at, value) = rest.split_at(8);
            let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            let sample = Sample {
                at: Timestamp(number(at)),
                value: f64::from_bits(number(value).cast_unsigned()),
            };
            (
                u32::from_le_bytes(series.try_into().expect("4 bytes")),
                sample,
            )
        })
        .collect();
    Ok(rows)
}

/// Sends a request's kind and socket.
pub(super) fn send(control: &UnixStream, kind: Kind, socket: &UnixStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [kind as u8];
    let parts = [IoSlice::new(&byte)];
    sendmsg(control, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a request's kind and socket; `None` if the other end is closed.
pub(super) fn receive(control: &UnixStream) -> io::Result<Option<(Kind, UnixStream)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;

    if received.bytes == 0 {
        return Ok(None);
    }

    let socket: Option<OwnedFd> = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });

    let kind = match byte[0] {
        b'f' => Kind::Follow,
        b's' => Kind::Statement,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };

    let socket = socket.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((kind, UnixStream::from(socket))))
}

/// Writes a message.
pub(super) fn write<T>(mut to: impl Write, message: &T) -> io::Result<()>
where
    T: Serialize,
{
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&text)
}

/// Reads a message.
pub(super) fn read<T>(mut from: impl Read) -> io::Result<T>
where
    T: DeserializeOwned,
{
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
