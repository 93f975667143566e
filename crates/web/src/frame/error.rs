//! Pages about errors: what is wrong, and where to go next.

use axum::http::StatusCode;
use serde::Serialize;
use takt_access::Refusal;
use takt_model::error_chain;
use takt_questions::AnswerError;
use takt_store::StoreError;

/// Why a page cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PageError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    /// The error in a few words.
    pub(super) title: String,
    /// The reason, and what can be done.
    pub(super) text: String,
    /// Links to pages that help: address and name.
    pub(super) next: Vec<(String, String)>,
}

impl PageError {
    fn new(status: StatusCode, title: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            status,
            title: title.into(),
            text: text.into(),
            next: Vec::new(),
        }
    }

    /// 404: no object of this kind has this name. An object that the reader may not see gives the
    /// same error.
    pub fn unknown(kind: &str, name: &str) -> Self {
        let title = format!("No {kind} {name}");
        let text = format!(
            "Takt has no {kind} of this name, or you may not see it. \
             Check the spelling, or search for it."
        );
        Self::new(StatusCode::NOT_FOUND, title, text).next(
            &format!("/search?q={}", super::templates::query(name)),
            &format!("Search for {name}"),
        )
    }

    /// 400: the address has a wrong value.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "This address is wrong", text)
    }

    /// 404: nothing was measured or recorded in the range.
    pub fn empty_range(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "No data in this time range", text)
    }

    /// 403: the reader's role is too low.
    pub(super) fn refused(reason: &str) -> Self {
        let text = format!("{reason}.");
        Self::new(StatusCode::FORBIDDEN, "You may not see this", text).next("/me", "Who you are")
    }

    /// 404: no page has this address.
    pub(super) fn no_page(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "No such page",
            format!("Takt has no page {path}."),
        )
    }

    /// 404 instead of 422: the object of the address is unknown. Other errors stay as they are.
    pub fn of_unknown(self, kind: &str, name: &str) -> Self {
        if self.status == StatusCode::UNPROCESSABLE_ENTITY {
            Self {
                status: StatusCode::NOT_FOUND,
                title: format!("No {kind} {name}"),
                ..self
            }
        } else {
            self
        }
    }

    /// The reason, and what can be done.
    pub fn reason(&self) -> &str {
        &self.text
    }

    /// Adds a link to a page that helps.
    pub fn next(mut self, address: &str, name: &str) -> Self {
        self.next.push((address.to_owned(), name.to_owned()));
        self
    }

    /// 500: a part of the server failed.
    pub fn failed(error: &dyn std::error::Error) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The server could not answer",
            error_chain(error),
        )
        .next("/health", "Health of the server")
    }
}

impl From<Refusal> for PageError {
    fn from(refusal: Refusal) -> Self {
        Self::refused(&refusal.to_string())
    }
}

impl From<AnswerError> for PageError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Usage(text) => Self::wrong(text),
            AnswerError::Input(text) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "This cannot be answered",
                text,
            ),
            AnswerError::Unavailable(text) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "The server is busy", text)
            }
            error => Self::failed(&error),
        }
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        Self::failed(&error)
    }
}

impl From<minijinja::Error> for PageError {
    fn from(error: minijinja::Error) -> Self {
        Self::failed(&error)
    }
}
