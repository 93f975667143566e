//! The samples of a target's page by column.

use super::error::ScrapeError;
use takt_model::exposition::{self, Exemplar, Metadata};
use takt_store::{Column, STALE, Sample, is_stale};

/// Settings for reading a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadRules {
    /// Maximum number of samples of a page, without those that relabelling dropped.
    pub sample_limit: usize,
    /// Whether to use timestamps on the page.
    pub honor_timestamps: bool,
}

/// The samples of a page.
#[derive(Debug, Default)]
pub(super) struct PageRow {
    /// Values by column; [`STALE`] where the page has no sample.
    pub values: Vec<f64>,
    /// Samples with their own timestamps.
    pub own_time: Vec<(Column, Sample)>,
    /// Exemplars of the samples.
    pub exemplars: Vec<(Column, Exemplar)>,
    /// Number of all samples, repeated ones included.
    pub samples: usize,
    /// Number of samples after relabelling.
    pub kept: usize,
    /// Number of series that the previous page did not have; 0 for a page that was refused.
    pub added: usize,
    /// Number of samples whose series the page already had.
    pub duplicates: usize,
}

impl PageRow {
    /// Sets the value of a column. Returns whether the column was unset.
    #[inline]
    pub fn set(&mut self, column: Column, value: f64) -> bool {
        let index = column.index();
        if self.values.len() <= index {
            self.values.resize(index + 1, STALE);
        }

        let is_free = is_stale(self.values[index]);
        if is_free {
            self.values[index] = value;
        }
        is_free
    }

    /// Counts a sample that relabelling kept. Returns whether the page is within the limit.
    pub fn keep(&mut self, rules: ReadRules) -> bool {
        self.kept += 1;
        self.kept <= rules.sample_limit
    }
}

/// The destination of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesPlace {
    /// This column.
    Column(Column),
    /// Dropped by relabelling, in all scrapes.
    Dropped,
    /// Not written now: another target writes the series.
    Elsewhere,
}

/// Decides about series that the cache does not have.
pub(super) trait NewSeries {
    /// Checks a new series against all limits, without registering it. Returns whether relabelling keeps it. All new
    /// series of a page are checked before the first of them gets its place.
    fn check(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError>;
    /// Returns the destination of a new series.
    fn place(&mut self, sample: &exposition::Sample<'_>) -> Result<SeriesPlace, ScrapeError>;
    /// Returns whether relabelling keeps a series that gets no column.
    fn is_kept(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError>;
    /// Receives the metadata of the metric to which the next requested series belongs.
    fn describe(&mut self, metadata: &Metadata<'_>);
}
