//! The envelope of answers and errors.

use crate::held::AnswerWriter;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt;
use takt_identity::with_retry;
use takt_model::error_chain;
use takt_promql::{Annotations, Error, ErrorKind};
use takt_questions::AnswerError;
use takt_questions::query_memory::memory_error;
use takt_store::MemoryRefusal;

/// `{"status":"success","data":…}`.
#[derive(Debug)]
pub(super) struct Answer {
    /// The data, as JSON.
    data: AnswerData,
    warnings: Vec<String>,
    infos: Vec<String>,
}

#[derive(Debug)]
enum AnswerData {
    /// As a whole; the middleware holds its memory.
    Whole(Vec<u8>),
    /// An answer that begins with [`BEGIN`], and whose memory is held.
    Held(AnswerWriter),
}

/// The begin of an answer.
pub(super) const BEGIN: &[u8] = br#"{"status":"success","data":"#;

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
        Self::new(AnswerData::Whole(data))
    }

    /// An answer that was written with its [`BEGIN`].
    pub fn held(answer: AnswerWriter) -> Self {
        Self::new(AnswerData::Held(answer))
    }

    fn new(data: AnswerData) -> Self {
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
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn into_body(self) -> Result<Vec<u8>, ApiError> {
        let end = self.end();
        match self.data {
            AnswerData::Whole(data) => Ok([BEGIN, &data, &end].concat()),
            AnswerData::Held(mut writer) => {
                writer.piece().extend(end);
                Ok(writer.finish()?.into_bytes())
            }
        }
    }

    /// What follows the data.
    fn end(&self) -> Vec<u8> {
        let mut end = Vec::new();
        for (key, remarks) in [("warnings", &self.warnings), ("infos", &self.infos)] {
            if !remarks.is_empty() {
                // `Display` of a value is JSON, and cannot fail.
                let remarks = serde_json::Value::from(remarks.clone());
                end.extend(format!(",{key:?}:{remarks}").into_bytes());
            }
        }
        end.push(b'}');
        end
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        const JSON: &str = "application/json";
        let end = self.end();
        match self.data {
            AnswerData::Whole(data) => {
                let body = [BEGIN, &data, &end].concat();
                ([(header::CONTENT_TYPE, JSON)], body).into_response()
            }
            AnswerData::Held(mut writer) => {
                writer.piece().extend(end);
                match writer.finish() {
                    Ok(answer) => answer.respond(JSON),
                    Err(refusal) => ApiError::from(refusal).into_response(),
                }
            }
        }
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
            ErrorKind::Unavailable => AnswerError::Unavailable(self.error),
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

impl From<MemoryRefusal> for ApiError {
    fn from(refusal: MemoryRefusal) -> Self {
        memory_error(refusal).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.kind {
            ErrorKind::BadData => StatusCode::BAD_REQUEST,
            ErrorKind::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Timeout | ErrorKind::Canceled | ErrorKind::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };

        let body = serde_json::json!({
            "status": "error",
            "errorType": self.kind.as_str(),
            "error": self.error,
        });
        let response = (status, axum::Json(body)).into_response();

        if self.kind == ErrorKind::Unavailable {
            with_retry(response)
        } else {
            response
        }
    }
}
