//! Traits of the services that the alert engine needs; the server implements them over its store.

use crate::Batch;
use crate::Snapshot;
use std::time::Instant;
use takt_model::{Labels, Timestamp};

/// An expression cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub String);

/// The values that a rule compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComparedValues<'r> {
    /// The rule's expression, in PromQL.
    pub expr: &'r str,
    /// Whether the rule's texts show the value as a percentage.
    pub are_percentages: bool,
}

/// Evaluates PromQL at an instant.
pub trait Query {
    /// The value of `expr` at `at`: one element for each series; a scalar is one element without
    /// labels.
    ///
    /// # Errors
    /// If the expression cannot be evaluated; the rule then keeps its state.
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError>;

    /// As [`Query::instant`], but fails if there is no answer at `until`.
    ///
    /// # Errors
    /// As [`Query::instant`].
    fn instant_until(
        &self,
        expr: &str,
        at: Timestamp,
        _until: Instant,
    ) -> Result<Vec<(Labels, f64)>, QueryError> {
        self.instant(expr, at)
    }

    /// Checks that `expr` can be evaluated; called once when a rule file is loaded.
    ///
    /// # Errors
    /// If it cannot, with the position in the expression.
    fn check(&self, expr: &str) -> Result<(), QueryError>;

    /// Further annotations for a message about an alert: the GPU, the jobs there when it began, and
    /// the values that its rule compared, if there is one, within the last hour.
    fn context(
        &self,
        _compared: Option<ComparedValues<'_>>,
        _labels: &Labels,
        _since: Timestamp,
        _at: Timestamp,
    ) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Index of the GPU that the labels `node`, and `uuid` or `pci_bus_id`, name: as `nvidia-smi`
    /// prints it. `None` if it is unknown.
    fn gpu_index(&self, _labels: &Labels, _at: Timestamp) -> Option<String> {
        None
    }
}

/// Asks with a time limit for all queries together.
pub struct UntilQuery<'q> {
    /// Answers the queries.
    pub query: &'q dyn Query,
    /// When the last query has to be answered.
    pub until: Instant,
}

impl Query for UntilQuery<'_> {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        self.query.instant_until(expr, at, self.until)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        self.query.check(expr)
    }

    fn gpu_index(&self, labels: &Labels, at: Timestamp) -> Option<String> {
        self.query.gpu_index(labels, at)
    }
}

/// A sample written by a rule: of `ALERTS`, `ALERTS_FOR_STATE` or a recording rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels of the series, including its name.
    pub labels: Labels,
    /// Time of the sample.
    pub at: Timestamp,
    /// The value; `None` is a staleness mark, the end of the series.
    pub value: Option<f64>,
}

/// Stores the samples of rules, so that later expressions can use them.
pub trait SampleSink {
    /// Stores the samples of one group's evaluation.
    ///
    /// # Errors
    /// If they cannot be stored; the evaluation counts nevertheless.
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError>;
}

/// What is known of an exporter, or of the server as the source of its own series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExporterState {
    /// It answers.
    Answers,
    /// It does not answer, or nothing is known of it.
    Down,
    /// It was not read since a gap: its samples are from before. They may be older than what rules have seen, because the
    /// store may have lost later ones.
    Awaited,
}

/// Returns the state of the exporter behind series with these labels.
pub type ExporterStates = Box<dyn Fn(&Labels) -> ExporterState + Send>;

/// What the evaluation of rules asks, on several threads at once.
pub trait RuleQueries: Query + Send + Sync {
    /// A function that says whether the exporter behind series with these labels answered at `at`, or
    /// was not scraped yet: Takt sees its targets without a gap since `watched_since`. Called once for
    /// each evaluation of a group.
    fn exporter_states(&self, at: Timestamp, watched_since: Timestamp) -> ExporterStates;
}

/// The store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Stores the state that must survive a crash.
pub trait AlertStore {
    /// Reads the committed state.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> Result<Snapshot, StoreError>;

    /// Commits a batch in one transaction: transitions, instances, notification log, silences and
    /// outbox together, or nothing. A committed batch survives the loss of the process. The commit
    /// also notes that Takt was running at `at`.
    ///
    /// # Errors
    /// If nothing was committed. The caller sends the batch's messages nevertheless, and offers the
    /// same content again with the next batch.
    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError>;
}
