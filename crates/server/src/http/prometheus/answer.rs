//! The envelope of answers and errors.

use crate::answers::AnswerError;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt;
use takt_model::error_chain;
use takt_promql::{Annotations, Error, ErrorKind};

/// `{"status":"success","data":…}`.
#[derive(Debug)]
pub(super) struct Answer {
    /// The data, as JSON.
    data: Vec<u8>,
    warnings: Vec<String>,
    infos: Vec<String>,
}

/// `{"status":"error","errorType":…,"error":…}`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    kind: ErrorKind,
    error: String,
}

impl Answer {
    /// An answer that serde writes.
    pub fn of<T>(data: &T) -> Result<Self, ApiError>
    where
        T: Serialize + ?Sized,
    {
        serde_json::to_vec(data)
            .map(Self::json)
            .map_err(|error| ApiError::internal(&error))
    }

    /// An answer that is JSON.
    pub fn json(data: Vec<u8>) -> Self {
        Self {
            data,
            warnings: Vec::new(),
            infos: Vec::new(),
        }
    }

    /// Adds the annotations of an evaluation.
    pub fn annotated(mut self, annotations: Annotations) -> Self {
        let [warnings, infos] = annotations.messages();
        self.warnings.extend(warnings);
        self.infos.extend(infos);
        self
    }

    /// Adds a warning if the answer was truncated.
    pub fn truncated(mut self, truncated: bool) -> Self {
        self.warnings
            .extend(truncated.then(|| "results truncated due to limit".to_owned()));
        self
    }

    /// The body of the response.
    pub fn into_body(self) -> Vec<u8> {
        let mut body = br#"{"status":"success","data":"#.to_vec();
        body.extend(self.data);
        for (key, remarks) in [("warnings", self.warnings), ("infos", self.infos)] {
            if !remarks.is_empty() {
                body.extend(format!(",{key:?}:{}", serde_json::Value::from(remarks)).into_bytes());
            }
        }
        body.push(b'}');
        body
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (
            [(header::CONTENT_TYPE, "application/json")],
            self.into_body(),
        )
            .into_response()
    }
}

impl ApiError {
    /// An invalid parameter, in Prometheus' words.
    pub fn parameter(name: &str, error: impl fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {error}"))
    }

    /// An invalid request.
    pub fn bad_data(error: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::BadData,
            error: error.into(),
        }
    }

    /// A failure of the server.
    pub fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            kind: ErrorKind::Internal,
            error: error_chain(error),
        }
    }

    /// The error as a command reports it.
    pub fn into_answer_error(self) -> AnswerError {
        match self.kind {
            ErrorKind::BadData => AnswerError::Usage(self.error),
            ErrorKind::Execution => AnswerError::Input(self.error),
            ErrorKind::Timeout | ErrorKind::Canceled | ErrorKind::Internal => {
                AnswerError::failed(self.error)
            }
        }
    }
}

impl From<Error> for ApiError {
    /// An error that a query caused.
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::BadData => Self::parameter("query", error),
            kind => Self {
                kind,
                error: error_chain(&error),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.kind {
            ErrorKind::BadData => StatusCode::BAD_REQUEST,
            ErrorKind::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Timeout | ErrorKind::Canceled => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let body = serde_json::json!({
            "status": "error",
            "errorType": self.kind.as_str(),
            "error": self.error,
        });
        (status, axum::Json(body)).into_response()
    }
}
