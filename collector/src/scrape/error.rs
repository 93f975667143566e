//! Errors of scrapes.

use super::http::HttpError;
use serde::{Serialize, Serializer};
use std::error::Error;
use std::io;
use std::time::Duration;
use takt_model::TlsRemedies;
use takt_model::exposition::ReadError;
use takt_push::exposition::PageError;
use takt_store::ClockWentBack;

/// The reason for a failed scrape.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document them")]
pub enum ScrapeError {
    #[error("cannot reach the target")]
    Unreachable {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("no complete answer within {} s", limit.as_secs_f64())]
    Timeout { limit: Duration },
    #[error("the target answered {status}")]
    Status { status: reqwest::StatusCode },
    #[error("the answer has no content type; expected text/plain or application/openmetrics-text")]
    NoContentType,
    #[error(
        "the answer's content type is {found:?}; expected text/plain or application/openmetrics-text"
    )]
    ContentType { found: String },
    #[error("the answer's content encoding is {found:?}, which Takt did not request")]
    ContentEncoding { found: String },
    #[error("the answer's content encoding is gzip, but its body is not")]
    Inflate { source: io::Error },
    #[error("cannot read the credentials")]
    Credentials { source: HttpError },
    #[error("the answer broke off after {received} bytes")]
    Interrupted {
        received: usize,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("the answer is larger than body_size_limit_bytes = {limit}")]
    TooLarge { limit: u64 },
    #[error("cannot understand the page")]
    Malformed { source: ReadError },
    #[error("cannot understand the page")]
    MalformedProtobuf { source: PageError },
    #[error("line {line}: the page has more samples than sample_limit = {limit}")]
    TooManySamples { line: usize, limit: usize },
    #[error(
        "line {line}: the target has more series than series_limit = {limit}, recently ended series included"
    )]
    TooManySeries { line: usize, limit: usize },
    #[error("the job has more targets than target_limit = {limit}")]
    TooManyTargets { limit: usize },
    #[error("no open file is free for the connection: raise LimitNOFILE= of takt.service")]
    NoFile,
    #[error("line {line}: metric_relabel_configs left the series without a name")]
    Nameless { line: usize },
    #[error("line {line}: relabelling left a label without a name")]
    NamelessLabel { line: usize },
    #[error("line {line}: the series has {found} labels, more than label_limit = {limit}")]
    TooManyLabels {
        line: usize,
        found: usize,
        limit: usize,
    },
    #[error(
        "line {line}: a label's name has {found} bytes, more than label_name_length_limit = {limit}"
    )]
    LabelNameTooLong {
        line: usize,
        found: usize,
        limit: usize,
    },
    #[error(
        "line {line}: a label's value has {found} bytes, more than label_value_length_limit = {limit}"
    )]
    LabelValueTooLong {
        line: usize,
        found: usize,
        limit: usize,
    },
    #[error(transparent)]
    Clock(#[from] ClockWentBack),
}

/// Kinds of failures, as counted in Takt's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names document them")]
pub enum FailureReason {
    /// The target's machine answers, and no process listens at the port.
    Refused,
    /// The name of the target's machine is unknown.
    UnknownHost,
    /// The target and the scrape do not agree on TLS, or the certificate is not trusted.
    Tls,
    Unreachable,
    Timeout,
    Status,
    ContentType,
    ContentEncoding,
    Interrupted,
    TooLarge,
    Malformed,
    Limit,
    Relabelling,
    Credentials,
    Clock,
}

impl FailureReason {
    /// Returns the value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::UnknownHost => "unknown_host",
            Self::Tls => "tls",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::ContentType => "content_type",
            Self::ContentEncoding => "content_encoding",
            Self::Interrupted => "interrupted",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Limit => "limit",
            Self::Relabelling => "relabelling",
            Self::Credentials => "credentials",
            Self::Clock => "clock",
        }
    }
}

impl Serialize for FailureReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl ScrapeError {
    /// Returns whether the target's machine refused the connection: it runs, but no process listens
    /// at the port.
    pub fn is_refusal(&self) -> bool {
        self.reason() == FailureReason::Refused
    }

    /// Returns whether the target sent a response, usable or not.
    pub fn has_answer(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::TooManyTargets { .. }
                | Self::NoFile
                | Self::Credentials { .. }
                | Self::Clock(_)
        )
    }

    /// Returns the kind of the failure.
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Unreachable { source } => unreachable(&**source),
            Self::Timeout { .. } => FailureReason::Timeout,
            Self::Status { .. } => FailureReason::Status,
            Self::NoContentType | Self::ContentType { .. } => FailureReason::ContentType,
            Self::ContentEncoding { .. } | Self::Inflate { .. } => FailureReason::ContentEncoding,
            Self::Credentials { .. } => FailureReason::Credentials,
            Self::Nameless { .. } | Self::NamelessLabel { .. } => FailureReason::Relabelling,
            Self::Interrupted { .. } => FailureReason::Interrupted,
            Self::TooLarge { .. } => FailureReason::TooLarge,
            Self::Malformed { .. } | Self::MalformedProtobuf { .. } => FailureReason::Malformed,
            Self::TooManyTargets { .. }
            | Self::NoFile
            | Self::TooManySamples { .. }
            | Self::TooManySeries { .. }
            | Self::TooManyLabels { .. }
            | Self::LabelNameTooLong { .. }
            | Self::LabelValueTooLong { .. } => FailureReason::Limit,
            Self::Clock(_) => FailureReason::Clock,
        }
    }

    /// Returns the error and its causes in one line, with what a person would do about it.
    pub fn in_full(&self) -> String {
        REMEDIES.explained(self)
    }
}

const REMEDIES: TlsRemedies = TlsRemedies {
    plain_server: "the URL begins with http://",
    unknown_authority: "tls_config.ca_file names one",
    other_name: "tls_config.server_name gives it",
};

/// Returns the reason of a failed connection.
fn unreachable(source: &(dyn Error + 'static)) -> FailureReason {
    let mut cause = Some(source);
    while let Some(error) = cause {
        let of_io = error.downcast_ref::<io::Error>();
        if of_io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return FailureReason::Refused;
        }
        if error.is::<rustls::Error>() {
            return FailureReason::Tls;
        }

        // The standard library has no kind for it.
        if error.to_string().starts_with("failed to lookup address") {
            return FailureReason::UnknownHost;
        }

        // An error inside of an `io::Error` is not its source.
        cause = match of_io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    FailureReason::Unreachable
}

impl From<ReadError> for ScrapeError {
    fn from(source: ReadError) -> Self {
        Self::Malformed { source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_connection_has_its_reason() {
        let lookup = "failed to lookup address information: Name or service not known";
        let untrusted = rustls::CertificateError::UnknownIssuer;
        for (source, reason) in [
            (
                io::Error::from(io::ErrorKind::ConnectionRefused),
                FailureReason::Refused,
            ),
            (io::Error::other(lookup), FailureReason::UnknownHost),
            (
                io::Error::other(rustls::Error::from(untrusted)),
                FailureReason::Tls,
            ),
            (
                io::Error::from(io::ErrorKind::HostUnreachable),
                FailureReason::Unreachable,
            ),
        ] {
            let source = Box::new(source);
            assert_eq!(ScrapeError::Unreachable { source }.reason(), reason);
        }
    }
}
