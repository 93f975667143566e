//! The traits by which the alert engine reaches the rest of Takt: the caller supplies the database.

use crate::Batch;
use crate::Snapshot;
use takt_model::{Labels, Timestamp};

/// Why the evaluation of an expression failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub String);

/// Evaluates PromQL at an instant.
pub trait Query {
    /// The value of `expr` at `at`: one element a series, a scalar as one element without labels.
    ///
    /// # Errors
    /// Where the expression cannot be evaluated; the state of the rule then stays as it is.
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError>;

    /// Whether `expr` can be evaluated at all, asked once when a rule file is loaded.
    ///
    /// # Errors
    /// Where it cannot be, with the place in the expression.
    fn check(&self, expr: &str) -> Result<(), QueryError>;

    /// Further annotations for a message about an alert: the GPU, the jobs there when it began, and
    /// the values of `expr`, the rule's expression if there is one, within the last hour.
    fn context(
        &self,
        _expr: Option<&str>,
        _labels: &Labels,
        _since: Timestamp,
        _at: Timestamp,
    ) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// One sample that a rule writes: of `ALERTS`, of `ALERTS_FOR_STATE` or of a recording rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The series, its name among the labels.
    pub labels: Labels,
    /// The sample's time.
    pub at: Timestamp,
    /// The value; `None` ends the series (a staleness mark).
    pub value: Option<f64>,
}

/// Takes the samples that rules write, so that later expressions see them.
pub trait SampleSink {
    /// Stores the samples of one group's evaluation.
    ///
    /// # Errors
    /// Where they cannot be stored; the evaluation counts nevertheless.
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError>;
}

/// Whether the exporter behind series with these labels was down.
pub type IsDown = Box<dyn Fn(&Labels) -> bool>;

/// Why the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Stores the state that must survive a crash.
pub trait AlertStore {
    /// The stored state.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn load(&self) -> Result<Snapshot, StoreError>;

    /// Commits a batch in one transaction: transitions, instances, notification log, silences and
    /// outbox together, or nothing. A batch for which it returned `Ok` survives the loss of the
    /// process. It also stores that Takt was running at `at`.
    ///
    /// # Errors
    /// Where nothing was committed; the caller offers the same batch again before any other.
    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError>;
}
