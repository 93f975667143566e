//! Errors as HTTP responses: a status, and `{"kind": …, "error": …}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::error::Error;
use takt_model::error_chain;
use takt_questions::AnswerError;

/// Time after which a refused client may try again, in seconds.
pub const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// Body of an error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// Kind of the error; the status follows from it.
    pub kind: ErrorKind,
    /// Message with its causes, on one line.
    pub error: String,
}

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The question itself is wrong: HTTP 400.
    Usage,
    /// The content of the request is unusable: HTTP 422.
    Input,
    /// The request needs a token: HTTP 401.
    Unauthorized,
    /// The viewer's role is too low: HTTP 403.
    Forbidden,
    /// The server cannot answer now: HTTP 503.
    Unavailable,
    /// The server failed: HTTP 500.
    Failed,
}

impl ErrorKind {
    fn status(self) -> StatusCode {
        match self {
            Self::Usage => StatusCode::BAD_REQUEST,
            Self::Input => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for ErrorBody {
    fn into_response(self) -> Response {
        with_retry((self.kind.status(), Json(self)).into_response())
    }
}

impl From<AnswerError> for ErrorBody {
    fn from(error: AnswerError) -> Self {
        let kind = match error {
            AnswerError::Usage(_) => ErrorKind::Usage,
            AnswerError::Input(_) => ErrorKind::Input,
            AnswerError::Unavailable(_) => ErrorKind::Unavailable,
            AnswerError::Store(_) | AnswerError::Failed(_) => ErrorKind::Failed,
        };
        let error = error_chain(&error);
        Self { kind, error }
    }
}

impl ErrorBody {
    /// The body of an error that is the server's.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        AnswerError::failed(error).into()
    }
}

/// Adds the time to try again to a response of 503.
pub fn with_retry(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_alerts::run::EngineError;

    #[test]
    fn a_busy_alert_engine_is_asked_again() {
        let response = ErrorBody::from(AnswerError::from(EngineError::Busy)).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key("retry-after"));
    }
}
