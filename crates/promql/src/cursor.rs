//! Cursors that move forwards over the samples of one series.

use crate::column::Element;
use crate::source::{HistogramPoint, Point, SeriesData};
use std::sync::Arc;
use takt_model::Timestamp;

/// A cursor at the newest sample of one series.
pub(crate) struct Latest<'a> {
    series: &'a SeriesData,
    lookback_ms: i64,
    /// Samples and staleness markers up to the current instant.
    points: usize,
    histograms: usize,
    stale: usize,
}

/// The newest sample of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Newest<'a> {
    Float(&'a Point),
    Histogram(&'a HistogramPoint),
}

impl Newest<'_> {
    #[inline]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Float(point) => point.at,
            Self::Histogram(point) => point.at,
        }
    }

    #[inline]
    pub fn element(self) -> Element {
        match self {
            Self::Float(point) => Element::Float(point.value),
            Self::Histogram(point) => Element::Histogram(Arc::clone(&point.histogram)),
        }
    }
}

impl<'a> Latest<'a> {
    pub fn new(series: &'a SeriesData, lookback_ms: i64) -> Self {
        Self {
            series,
            lookback_ms,
            points: 0,
            histograms: 0,
            stale: 0,
        }
    }

    /// Instants may not go back.
    #[inline]
    pub fn at(&mut self, at: Timestamp) -> Option<Newest<'a>> {
        let SeriesData {
            points,
            histograms,
            stale,
            ..
        } = self.series;

        self.points = advance(points, self.points, |point| point.at <= at);
        self.histograms = advance(histograms, self.histograms, |point| point.at <= at);
        self.stale = advance(stale, self.stale, |stale| *stale <= at);

        let point = points[..self.points].last();
        let newest = match (point, histograms[..self.histograms].last()) {
            // At equal times the histogram wins, as in Prometheus' storage.
            (Some(point), Some(histogram)) if point.at > histogram.at => Newest::Float(point),
            (_, Some(histogram)) => Newest::Histogram(histogram),
            (point, None) => Newest::Float(point?),
        };

        let ended = stale[..self.stale]
            .last()
            .is_some_and(|stale| *stale > newest.at());
        // The look-back is open at its left end: a sample exactly as old is too old.
        (!ended && newest.at() > at.minus_ms(self.lookback_ms)).then_some(newest)
    }
}

/// A sample of any kind.
pub(crate) trait Dated {
    fn at(&self) -> Timestamp;
}

impl Dated for Point {
    #[inline]
    fn at(&self) -> Timestamp {
        self.at
    }
}

impl Dated for HistogramPoint {
    #[inline]
    fn at(&self) -> Timestamp {
        self.at
    }
}

/// The times of the first and the last sample.
pub(crate) fn span(points: &[impl Dated]) -> Option<(Timestamp, Timestamp)> {
    Some((points.first()?.at(), points.last()?.at()))
}

/// The ends of a window that moves forwards over one series.
#[derive(Default)]
pub(crate) struct Bounds {
    first: usize,
    end: usize,
}

impl Bounds {
    /// The samples after `start` up to `end`.
    #[inline]
    pub fn move_to<'a, T>(&mut self, points: &'a [T], start: Timestamp, end: Timestamp) -> &'a [T]
    where
        T: Dated,
    {
        self.end = advance(points, self.end, |point| point.at() <= end);
        // Both ends only move forwards, so a range query walks each series once.
        self.first = advance(points, self.first, |point| point.at() <= start);
        &points[self.first..self.end]
    }
}

/// The first place from `from` on that is not passed. Steps are mostly small, so it looks close by first.
#[inline]
fn advance<T>(items: &[T], from: usize, passed: impl Fn(&T) -> bool) -> usize {
    let mut width = 1;
    let mut from = from;
    while from + width <= items.len() && passed(&items[from + width - 1]) {
        from += width;
        width *= 2;
    }
    let end = (from + width).min(items.len());
    from + items[from..end].partition_point(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn advance_finds_what_a_search_finds(
            mut items: Vec<u8>,
            from: prop::sample::Index,
            limit: u8,
        ) {
            items.sort_unstable();
            let wanted = items.partition_point(|item| *item <= limit);
            let from = if wanted == 0 {
                0
            } else {
                from.index(wanted + 1)
            };
            prop_assert_eq!(advance(&items, from, |item| *item <= limit), wanted);
        }
    }

    #[test]
    fn a_stale_marker_ends_a_series_until_the_next_sample() {
        let samples = [(0, Some(1.0)), (10, None), (20, Some(2.0))];
        let samples = samples.map(|(at, value)| (Timestamp(at), value));
        let series = SeriesData::new(Default::default(), samples);
        let mut latest = Latest::new(&series, 15);
        // The marker at 10 ends the series at once, and the sample of 20 is gone at 35, when it is
        // 15 old.
        let seen = [0, 9, 10, 19, 20, 34, 35].map(|at| match latest.at(Timestamp(at)) {
            Some(Newest::Float(point)) => Some(point.value),
            _ => None,
        });
        assert_eq!(
            seen,
            [Some(1.0), Some(1.0), None, None, Some(2.0), Some(2.0), None]
        );
    }
}
