//! Selecting series by `match[]`, with the limits of a query: one request must not keep a thread
//! busy for longer, nor all threads at once.

use super::Api;
use super::answer::ApiError;
use super::params::{Params, selector};
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_access::Viewer;
use takt_model::Matcher;
use takt_promql::Error;
use takt_store::{HeldMemory, Store, StoreError};
use tokio::time;

/// The selectors of one request.
#[derive(Debug)]
pub(super) struct Selection {
    /// Texts of the selectors.
    texts: Vec<String>,
    /// Selects all series where no selector is given.
    or_all: bool,
    /// Whether errors name the parameter, as Prometheus' do for some routes.
    names_parameter: bool,
    deadline: Instant,
}

impl Selection {
    /// The selectors of `match[]`, with the time limit of a query.
    pub fn new(params: &Params, timeout: Duration) -> Result<Self, ApiError> {
        Ok(Self {
            texts: params.selectors()?,
            or_all: false,
            names_parameter: false,
            deadline: Instant::now() + timeout,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The same selection, or all series if it is empty.
    pub fn or_all(self) -> Self {
        Self {
            or_all: true,
            ..self
        }
    }

    /// The same selection, with errors that name the parameter.
    pub fn naming_parameter(self) -> Self {
        Self {
            names_parameter: true,
            ..self
        }
    }

    /// Whether there is time left.
    pub fn is_in_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    fn check_time(&self) -> Result<(), ApiError> {
        if self.is_in_time() {
            Ok(())
        } else {
            Err(Error::Timeout.into())
        }
    }

    /// The conditions of each selector. They accept nothing after the deadline.
    fn selectors(&self) -> Result<Vec<Vec<Matcher>>, ApiError> {
        let mut selectors = Vec::new();
        for text in &self.texts {
            let matchers = selector(text).map_err(|error| match self.names_parameter {
                true => ApiError::parameter("match[]", error),
                false => ApiError::bad_data(error),
            })?;

            selectors.push(
                matchers
                    .into_iter()
                    .map(|matcher| matcher.until(Some(self.deadline)))
                    .collect(),
            );
            // Compiling regular expressions takes time, too.
            self.check_time()?;
        }

        if self.or_all && selectors.is_empty() {
            // Without conditions, all series are selected.
            selectors.push(Vec::new());
        }
        Ok(selectors)
    }

    /// Calls `ask` for each selector, when it is this request's turn among the queries.
    ///
    /// Before a selector is asked, `memory` grows by what it may find, `series_bytes` for each of its series: otherwise a
    /// `match[]` of everything would fill the memory first. The caller gets `memory` back, and drops it with what was found.
    pub async fn each<T>(
        self,
        api: &Api,
        viewer: &Viewer,
        (mut memory, series_bytes): (HeldMemory, u64),
        mut found: T,
        mut ask: impl FnMut(&Self, &Store, &[Matcher], &mut T) -> Result<(), StoreError>
        + Send
        + 'static,
    ) -> Result<(T, HeldMemory), ApiError>
    where
        T: Send + 'static,
    {
        let turn = Arc::clone(&api.queries).acquire_owned();
        let permit = time::timeout_at(self.deadline.into(), turn)
            .await
            .map_err(|_| Error::Timeout)?
            .map_err(|error| ApiError::internal(&error))?;

        api.blocking(viewer, move |app| {
            let _permit = permit;
            for matchers in self.selectors()? {
                memory.grow(app.store.count(&matchers) as u64 * series_bytes)?;

                // Late matchers accept nothing, so the time is checked before the result is used.
                let asked = ask(&self, &app.store, &matchers, &mut found);
                self.check_time()?;
                asked.map_err(|error| ApiError::internal(&error))?;
            }
            Ok((found, memory))
        })
        .await
    }
}
