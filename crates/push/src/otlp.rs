//! Requests of OTLP metrics over HTTP: protobuf or JSON, turned into series as Prometheus does.

mod messages;
mod names;
mod translate;

pub use messages::{ExportReply, PartialSuccess};
pub use translate::{PointError, Translated, Translation};

use messages::ExportRequest;
use prost::Message;

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
    /// If the message cannot be decoded.
    pub fn read(&self, encoding: Encoding, message: &[u8]) -> Result<Translated, OtlpError> {
        let request = match encoding {
            Encoding::Protobuf => ExportRequest::decode(message)?,
            Encoding::Json => serde_json::from_slice(message)?,
        };
        Ok(self.translate(&request))
    }
}

#[cfg(test)]
mod tests;
