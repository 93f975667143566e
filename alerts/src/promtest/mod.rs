//! promtool's tests of rules: series given in a short notation, and which alerts must fire and what
//! expressions must give at which time.
//!
//! The rules run in our engine's own state machine; a [`Storage`] evaluates the expressions.

mod read;
mod run;

pub use run::{Failure, run};

use crate::ports::{Query, QueryError, SampleSink, StoreError};
use std::sync::Arc;
use std::time::Duration;
use takt_model::native::NativeHistogram;
use takt_model::notation::NotedValue;
use takt_model::{Labels, Timestamp};

/// A database for one test: takes samples and evaluates PromQL over them.
pub trait Storage: Query + SampleSink {
    /// Writes native histograms of one series.
    ///
    /// # Errors
    /// If the database has none.
    fn write_histograms(
        &self,
        labels: &Labels,
        samples: Vec<(Timestamp, NativeHistogram)>,
    ) -> Result<(), StoreError>;

    /// The value of `expr` at `at`, native histograms among it.
    ///
    /// # Errors
    /// If the expression cannot be evaluated.
    fn result(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, Outcome)>, QueryError>;
}

/// The value of one series at one time.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<NativeHistogram>),
}

/// A test file.
#[derive(Debug, Clone, PartialEq)]
pub struct TestFile {
    /// The file's name.
    pub name: String,
    /// The rule files it tests, relative to it; they may hold `*`.
    pub rule_files: Vec<String>,
    /// Time from one evaluation of the rules to the next.
    pub evaluation_interval: Duration,
    /// Groups in the order in which they are evaluated; the others go first.
    pub group_eval_order: Vec<String>,
    /// Whether values that differ in the last bit only are the same.
    pub fuzzy_compare: bool,
    /// The tests.
    pub tests: Vec<Test>,
}

/// One test: its own database. Times are counted from its beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// Its name, or nothing.
    pub name: String,
    /// The series with their values.
    pub series: Vec<(Labels, Vec<NotedValue>)>,
    /// When the test begins: the instant of the first value.
    pub start: Timestamp,
    /// Time from one value to the next.
    pub interval: Duration,
    /// Expected alerts.
    pub alerts: Vec<AlertTest>,
    /// Expected results of expressions.
    pub expressions: Vec<ExpressionTest>,
    /// The server's labels, for templates.
    pub external_labels: Labels,
    /// The server's address, for templates.
    pub external_url: String,
}

/// The alerts of one name that must fire at one time, and no others of that name.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertTest {
    /// The time, counted from the beginning.
    pub at: Duration,
    /// The name.
    pub alert: String,
    /// All labels, `alertname` included, and all annotations of each.
    pub expected: Vec<(Labels, Vec<(String, String)>)>,
}

/// The expected result of an expression at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpressionTest {
    /// The time, counted from the beginning.
    pub at: Duration,
    /// The expression.
    pub expr: String,
    /// The series and their values, in any order.
    pub expected: Vec<(Labels, Outcome)>,
}
