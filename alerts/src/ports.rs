//! What the alert engine needs of the rest of Takt, as traits: the caller brings the database.

use crate::Batch;
use crate::Snapshot;
use takt_model::{Labels, Timestamp};

/// Why an expression gave no result.
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

    /// What a message about an alert says besides its rule's words, as annotations: whose jobs were there when it began,
    /// and what `expr`, if it has a rule, has measured within the last hour.
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
    /// When.
    pub at: Timestamp,
    /// The value; nothing where the series ends here (a staleness mark).
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

/// Tells whether the exporter behind series with these labels was down.
pub type IsDown = Box<dyn Fn(&Labels) -> bool>;

/// Why the store refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Keeps what must outlive a crash.
pub trait AlertStore {
    /// All that was committed.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn load(&self) -> Result<Snapshot, StoreError>;

    /// Commits a batch in one transaction: transitions, instances, notification log, silences and outbox together, or
    /// nothing. What it returns `Ok` for survives the loss of the process. It is noted as well that Takt was running
    /// at `at`.
    ///
    /// # Errors
    /// Where nothing was committed; the caller offers the same batch again before any other.
    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError>;
}
