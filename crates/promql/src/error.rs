//! Errors of queries, in the classes of Prometheus' HTTP API.

use crate::source::SourceError;
use crate::syntax::{Fault, Place};

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not PromQL, or its types do not fit.
    #[error("{}parse error: {text}", place.map_or("unknown position: ".to_owned(), |place| format!("{place}: ")))]
    Parse {
        /// The place of the fault; `None` for faults of the text as a whole.
        place: Option<Place>,
        /// The fault, in Prometheus' words.
        text: String,
    },
    /// Valid PromQL that Takt does not evaluate; the message names the feature.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The query is well formed but not for this kind of evaluation.
    #[error("{0}")]
    Invalid(String),
    /// The data do not fit the query (duplicate series, many-to-many matching, …).
    #[error("{0}")]
    Execution(String),
    /// More samples or points would be held in memory than [`Limits`](crate::Limits) allow.
    #[error("query processing would load too many samples into memory in query execution")]
    TooManySamples,
    /// More series were selected than [`Limits`](crate::Limits) allow.
    #[error("query would select more than {0} series")]
    TooManySeries(usize),
    /// The server has no memory for the query; the text says why.
    #[error("{0}")]
    Unavailable(String),
    /// The deadline passed.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The client has gone away.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// The store could not answer.
    #[error("expanding series")]
    Source(#[from] SourceError),
}

/// `errorType` of Prometheus' HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// 400
    BadData,
    /// 422
    Execution,
    /// 503
    Timeout,
    /// 503
    Canceled,
    /// 503
    Unavailable,
    /// 500
    Internal,
}

impl Error {
    /// A fault of grammar or of types.
    pub(crate) fn fault(query: &str, Fault { at, text }: Fault) -> Self {
        Error::Parse {
            // As in Prometheus, an empty text has no places.
            place: (!query.is_empty()).then(|| Place::of(query, at)),
            text,
        }
    }

    /// The class that the HTTP API reports.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Parse { .. } | Error::Unsupported(_) | Error::Invalid(_) => ErrorKind::BadData,
            Error::Execution(_) | Error::TooManySamples | Error::TooManySeries(_) => {
                ErrorKind::Execution
            }
            Error::Timeout => ErrorKind::Timeout,
            Error::Canceled => ErrorKind::Canceled,
            Error::Unavailable(_) => ErrorKind::Unavailable,
            Error::Source(_) => ErrorKind::Internal,
        }
    }
}

impl ErrorKind {
    /// The word in the API's `errorType`.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::BadData => "bad_data",
            ErrorKind::Execution => "execution",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Canceled => "canceled",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Two elements of one vector would carry the same labels (`promql/engine.go`, `rangeEval`).
pub(crate) fn same_labelset() -> Error {
    Error::Execution("vector cannot contain metrics with the same labelset".to_owned())
}
