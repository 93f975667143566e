//! Why a question has no answer.

use std::error::Error;
use takt_alerts::run::EngineError;
use takt_model::error_chain;
use takt_store::{MemoryRefusal, StoreError, WorkError};

/// Why a question has no answer. HTTP turns it into a status, a command into an exit code.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The question itself is wrong: an unknown name, an impossible period. HTTP 400, exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Valid form, unusable content: a malformed file, an SQL error, a user without jobs. HTTP 422, exit code 1.
    #[error("{0}")]
    Input(String),
    /// The server cannot answer now: it has no memory for the answer, it computes too many others, or the alert engine is busy. HTTP 503, exit code 1.
    #[error("{0}")]
    Unavailable(String),
    /// The store failed. HTTP 500, exit code 1.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another part of Takt failed. HTTP 500, exit code 1.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl AnswerError {
    /// The error of a wrong question, with its causes in one line.
    pub fn usage(error: impl Error) -> Self {
        Self::Usage(error_chain(&error))
    }

    /// The error of unusable content, with its causes in one line.
    pub fn input(error: impl Error) -> Self {
        Self::Input(error_chain(&error))
    }

    /// The error of another part.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }

    /// Whether the question itself is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

impl From<EngineError> for AnswerError {
    fn from(error: EngineError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<WorkError> for AnswerError {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Busy => Self::Unavailable(error.to_string()),
            WorkError::Failed(error) => Self::failed(error),
        }
    }
}

impl From<MemoryRefusal> for AnswerError {
    fn from(refusal: MemoryRefusal) -> Self {
        if refusal.is_temporary() {
            Self::Unavailable(refusal.to_string())
        } else {
            Self::Input(refusal.to_string())
        }
    }
}
