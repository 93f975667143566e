//! Counters as functions of time: piecewise linear, so that any instant can be read in any order.

use takt_model::UnixTime;

/// A quantity that grows at a rate that changes at known times.
#[derive(Debug, Default)]
pub struct Curve {
    /// Begin of each piece, value at this time, growth in a second.
    pieces: Vec<(UnixTime, f64, f64)>,
}

impl Curve {
    /// Sums up rates that hold from `from` to `to`, beginning with 0 at `begin`. `base` is the rate
    /// at all times.
    pub fn new(
        begin: UnixTime,
        base: f64,
        parts: impl IntoIterator<Item = (UnixTime, UnixTime, f64)>,
    ) -> Self {
        // Each part is a change of the rate at its begin, and the opposite change at its end.
        let mut changes: Vec<(UnixTime, f64)> = Vec::new();
        for (from, to, rate) in parts {
            let from = from.max(begin);
            if from < to && rate != 0.0 {
                changes.push((from, rate));
                changes.push((to, -rate));
            }
        }

        changes.sort_by_key(|(at, _)| *at);

        let mut pieces = vec![(begin, 0.0, base)];
        for (at, change) in changes {
            let (from, value, rate) = pieces[pieces.len() - 1];
            let piece = (at, value + rate * (at - from) as f64, rate + change);

            // Changes at one time make one piece: an empty one would only take memory.
            if at == from {
                pieces.pop();
            }
            pieces.push(piece);
        }
        Self { pieces }
    }

    /// Returns the value at a time in seconds; 0 before the begin.
    pub fn at(&self, seconds: f64) -> f64 {
        self.pieces
            .partition_point(|(from, ..)| from.0 as f64 <= seconds)
            .checked_sub(1)
            .map_or(0.0, |index| {
                let (from, value, rate) = self.pieces[index];
                value + rate * (seconds - from.0 as f64)
            })
    }

    /// Returns the growth in a second at a time.
    pub fn rate(&self, seconds: f64) -> f64 {
        self.pieces
            .partition_point(|(from, ..)| from.0 as f64 <= seconds)
            .checked_sub(1)
            // Sums of rates leave rounding errors, which must not look like a counter that falls.
            .map_or(0.0, |index| self.pieces[index].2.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_rates_add_up_and_nothing_is_lost_at_the_edges() {
        // Two parts that overlap, and one that has begun before the curve.
        let parts = [(110, 120, 2.0), (115, 130, 3.0), (90, 105, 4.0)];
        let parts = parts.map(|(from, to, rate)| (UnixTime(from), UnixTime(to), rate));

        let curve = Curve::new(UnixTime(100), 1.0, parts);
        assert_eq!(curve.at(99.0), 0.0);
        assert_eq!(curve.at(105.0), 5.0 * 5.0);
        assert_eq!(curve.at(130.0), 30.0 + 4.0 * 5.0 + 2.0 * 10.0 + 3.0 * 15.0);
        assert_eq!(curve.at(140.0) - curve.at(130.0), 10.0);
        assert_eq!(curve.rate(117.0), 6.0);
        assert_eq!(curve.rate(200.0), 1.0);
    }
}
