//! Selecting series by `match[]`, with the limits of a query: one request must not keep a thread
//! busy for longer, nor all threads at once.

use super::Api;
use super::answer::ApiError;
use super::params::Params;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_access::Viewer;
use takt_model::Matcher;
use takt_promql::Error;
use takt_store::{Store, StoreError};

/// The selectors of one request. The matchers accept nothing after the deadline.
#[derive(Debug)]
pub(super) struct Selection {
    selectors: Vec<Vec<Matcher>>,
    deadline: Instant,
}

impl Selection {
    /// The selectors of `match[]`, with the time limit of a query.
    pub fn new(params: &Params, timeout: Duration) -> Result<Self, ApiError> {
        let deadline = Instant::now() + timeout;
        let limited = |matchers: Vec<Matcher>| {
            let all = matchers.into_iter();
            all.map(|matcher| matcher.until(Some(deadline))).collect()
        };
        Ok(Self {
            selectors: params.selectors()?.into_iter().map(limited).collect(),
            deadline,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty()
    }

    /// The same selection, or all series if it is empty.
    pub fn or_all(mut self) -> Self {
        if self.selectors.is_empty() {
            self.selectors.push(Vec::new());
        }
        self
    }

    /// Whether there is time left.
    pub fn is_in_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// Calls `ask` for each selector, when it is this request's turn among the queries.
    pub async fn each<T: Send + 'static>(
        self,
        api: &Api,
        viewer: &Viewer,
        mut found: T,
        mut ask: impl FnMut(&Self, &Store, &[Matcher], &mut T) -> Result<(), StoreError>
        + Send
        + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&api.queries).acquire_owned();
        let permit = tokio::time::timeout_at(self.deadline.into(), turn).await;
        let permit = permit
            .map_err(|_| Error::Timeout)?
            .map_err(|error| ApiError::internal(&error))?;
        api.blocking(viewer, move |app| {
            let _permit = permit;
            for matchers in &self.selectors {
                let asked = ask(&self, &app.store, matchers, &mut found);
                if !self.is_in_time() {
                    return Err(Error::Timeout.into());
                }
                asked.map_err(|error| ApiError::internal(&error))?;
            }
            Ok(found)
        })
        .await
    }
}
