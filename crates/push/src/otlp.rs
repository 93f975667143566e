//! Requests of OTLP metrics over HTTP: protobuf or JSON, turned into series as Prometheus does.

mod messages;
mod names;
mod size;
mod translate;

pub use messages::{ExportReply, PartialSuccess};
pub use translate::{PointError, Translated, Translation};

use crate::memory::{MemoryDenied, MemoryGrant};
use messages::{ExportRequest, from_json};
use prost::Message;
use size::decoded_bytes;

/// Most bytes in memory of one byte of JSON. A usual data point takes 5, an empty one 50.
const JSON_GROWTH: usize = 16;

/// Encoding of requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Protobuf.
    Protobuf,
    /// JSON with 64-bit integers as texts.
    Json,
}

/// A request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The message is not the expected protobuf.
    #[error("the protobuf message is damaged")]
    Protobuf(#[from] prost::DecodeError),
    /// The message is not the expected JSON.
    #[error("the message is not OTLP in JSON")]
    Json(#[from] serde_json::Error),
    /// The message needs more memory than it may take.
    #[error(transparent)]
    Memory(#[from] MemoryDenied),
}

impl Encoding {
    /// Returns the encoding that a content type names.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("application/x-protobuf") {
            Some(Self::Protobuf)
        } else if media.eq_ignore_ascii_case("application/json") {
            Some(Self::Json)
        } else {
            None
        }
    }

    /// Value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// Encodes a reply.
    pub fn reply(self, reply: &ExportReply) -> Vec<u8> {
        match self {
            Self::Protobuf => reply.encode_to_vec(),
            // Numbers and texts can always be written.
            Self::Json => serde_json::to_vec(reply).unwrap_or_default(),
        }
    }
}

impl Translation {
    /// Reads a message and turns its data points into series.
    ///
    /// # Errors
    /// If the message cannot be decoded, or needs more than the granted memory.
    pub fn read(
        &self,
        encoding: Encoding,
        message: &[u8],
        memory: &mut MemoryGrant<'_>,
    ) -> Result<Translated, OtlpError> {
        let request = match encoding {
            Encoding::Protobuf => {
                // Before the message is decoded: afterwards the memory is in use.
                memory.take(decoded_bytes(message))?;
                ExportRequest::decode(message)?
            }
            Encoding::Json => {
                let most = message.len().saturating_mul(JSON_GROWTH);
                memory.take(most)?;
                // Empty items grow more than granted, so the reader counts them and stops.
                from_json(message, most)?
            }
        };
        Ok(self.translate(&request, memory)?)
    }
}

#[cfg(test)]
mod tests;
