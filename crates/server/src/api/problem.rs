//! What a request or a command is told when it gets no answer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use takt_model::error_chain;

/// Why there is no answer. Over HTTP it is `{"kind": …, "error": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
pub struct Problem {
    /// Whose fault it is.
    pub kind: ProblemKind,
    /// One line for a person.
    pub error: String,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The question makes no sense: HTTP 400, exit code 2.
    Usage,
    /// What was sent cannot be used: a file that is no sacct output, a wrong SQL statement. HTTP 422, exit code 1.
    Input,
    /// A token is needed: HTTP 401, exit code 1.
    Unauthorized,
    /// We failed: HTTP 500, exit code 1.
    Failed,
}

impl Problem {
    /// The question makes no sense.
    pub fn usage(error: impl std::error::Error) -> Self {
        Self {
            kind: ProblemKind::Usage,
            error: error_chain(&error),
        }
    }

    /// What was sent cannot be used.
    pub fn input(error: impl std::error::Error) -> Self {
        Self {
            kind: ProblemKind::Input,
            error: error_chain(&error),
        }
    }

    /// We failed.
    pub fn failed(error: impl std::error::Error) -> Self {
        Self {
            kind: ProblemKind::Failed,
            error: error_chain(&error),
        }
    }

    /// Whether the asker's words caused it.
    pub fn is_usage(&self) -> bool {
        self.kind == ProblemKind::Usage
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = match self.kind {
            ProblemKind::Usage => StatusCode::BAD_REQUEST,
            ProblemKind::Input => StatusCode::UNPROCESSABLE_ENTITY,
            ProblemKind::Unauthorized => StatusCode::UNAUTHORIZED,
            ProblemKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self)).into_response()
    }
}
