//! Windows over series with native histograms.

use crate::annotations::NativeRemark;
use crate::column::{Column, Element, Histograms};
use crate::cursor::Bounds;
use crate::error::Error;
use crate::eval::Grid;
use crate::functions::{Slice, of_extended_window, of_window};
use crate::select::{Walk, Windowful};
use crate::source::HistogramPoint;
use crate::syntax::tree::Extension;
use std::collections::BTreeSet;
use std::sync::Arc;
use takt_model::native::ResetHint;

/// Remarks about native histograms, with the names of their metrics.
pub(crate) type NativeRemarks = BTreeSet<(NativeRemark, String)>;

/// The histograms of a subquery. A reset hint is about the sample before, which a subquery may pass over.
pub(crate) fn subquery_histograms(grid: &Grid, histograms: Histograms) -> Vec<HistogramPoint> {
    grid.times()
        .zip(histograms)
        .filter_map(|(at, histogram)| {
            let mut histogram = histogram?;
            if histogram.hint == ResetHint::Reset {
                Arc::make_mut(&mut histogram).hint = ResetHint::Unknown;
            }
            Some(HistogramPoint { at, histogram })
        })
        .collect()
}

pub(crate) fn extended_histograms(extension: Extension) -> Error {
    let name = extension.name();
    Error::Unsupported(format!("modifier {name} of native histograms"))
}

impl Walk<'_> {
    /// As [`run`](Self::run), for a series with native histograms.
    pub fn run_native(
        &self,
        series: Windowful,
        looked_at: &mut [u64],
        remarks: &mut NativeRemarks,
    ) -> Result<Option<Column>, Error> {
        let shift = self.window.shift();
        let mut bounds = Bounds::default();
        let mut histogram_bounds = Bounds::default();
        let mut found = Vec::new();
        let mut elements = Vec::with_capacity(self.grid.steps);
        for (step, count) in looked_at.iter_mut().enumerate() {
            // At each step, as histograms cost far more than floats.
            self.budget.check()?;
            let now = self.grid.time(step);
            let end = shift.apply(now);
            let start = end.minus_ms(self.window.range_ms);
            let from = start.minus_ms(self.reach.before_ms);
            let to = end.plus_ms(self.reach.after_ms);
            let histograms = histogram_bounds.move_to(&series.histograms, from, to);
            let slice = Slice {
                points: bounds.move_to(&series.points, from, to),
                start,
                end,
                now,
                scalars: self.scalars.get(step).map_or(&[][..], Vec::as_slice),
            };
            *count += (slice.points.len() + histograms.len()) as u64;
            let element = match self.window.extension() {
                // A float that follows the histograms, or comes before them, is a window of floats.
                _ if histograms.is_empty() && slice.points.is_empty() => None,
                _ if histograms.is_empty() => (self.body)(&slice).map(Element::Float),
                Some(extension) => {
                    of_extended_window(self.function, extension, &slice, histograms, &mut found)
                }
                None => of_window(self.function, &slice, histograms, self.body, &mut found),
            };

            // A histogram may have thousands of buckets, so it is charged by its size, not as one
            // sample.
            if let Some(Element::Histogram(histogram)) = &element {
                self.budget.hold(histogram.bucket_count())?;
            }
            elements.push(element);
        }
        let metric = series.labels.metric();
        remarks.extend(found.into_iter().map(|remark| (remark, metric.to_owned())));
        let column = Column::default().with_elements(elements.into_iter());
        Ok(Column {
            labels: series.labels,
            nameless: series.nameless,
            ..column
        }
        .unless_empty())
    }
}
