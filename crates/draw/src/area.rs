//! Area rows: one value over time, filled below the line.

use std::fmt::Write as _;

/// Width of the view box of an area row.
pub const WIDTH: u32 = 500;
/// Height of the view box of an area row.
pub const HEIGHT: u32 = 100;

/// The elements of an area row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Width of the view box.
    pub width: u32,
    /// Height of the view box.
    pub height: u32,
    /// The filled path; empty without a value. A gap in the values is a gap in the area.
    pub d: String,
}

/// Draws `values`, evenly spread over the width, as a share of `most`. Coordinates are integers with
/// relative steps: about 2 kB for 500 values.
pub fn area(values: &[Option<f64>], most: f64) -> Area {
    let mut d = String::new();
    let steps = values.len().max(1) as f64;

    // A step fills the width up to the next one, so there are as many steps as values.
    let x = |at: usize| (at as f64 / steps * f64::from(WIDTH)).round() as i64;
    let y = |value: f64| {
        let share = if most > 0.0 {
            // A value above the full height, such as power above its limit, stays inside.
            (value / most).clamp(0.0, 1.0)
        } else {
            0.0
        };
        i64::from(HEIGHT) - (share * f64::from(HEIGHT)).round() as i64
    };

    let mut at = 0;

    while at < values.len() {
        let known = values[at..]
            .iter()
            .take_while(|value| value.is_some())
            .count();

        // A gap ends the path; the next value begins another one.
        if known == 0 {
            at += 1;
            continue;
        }

        let mut last = (x(at), i64::from(HEIGHT));
        // Writing to a string cannot fail.
        let _ = write!(d, "M{} {}", last.0, last.1);
        for (offset, value) in values[at..at + known].iter().enumerate() {
            let next_x = x(at + offset + 1);
            let next_y = y(value.unwrap_or(0.0));
            // Relative steps, and none where the value stays: most values repeat.
            if next_y != last.1 {
                let _ = write!(d, "v{}", next_y - last.1);
            }
            let _ = write!(d, "h{}", next_x - last.0);
            last = (next_x, next_y);
        }

        let _ = write!(d, "V{HEIGHT}z");
        at += known;
    }

    Area {
        width: WIDTH,
        height: HEIGHT,
        d,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_the_values_is_a_gap_in_the_area() {
        // Four steps of 125: full, half, nothing drawn, and a value of 0, which is drawn flat.
        let drawn = area(&[Some(1.0), Some(0.5), None, Some(0.0)], 1.0);
        assert_eq!(drawn.d, "M0 100v-100h125v50h125V100zM375 100h125V100z");
        assert_eq!(area(&[None, None], 1.0).d, "");
        assert_eq!(area(&[], 1.0).d, "");
    }

    #[test]
    fn values_stay_inside() {
        assert_eq!(area(&[Some(9.0)], 1.0).d, "M0 100v-100h500V100z");
        // A scale of 0 divides by nothing.
        assert_eq!(area(&[Some(-1.0)], 0.0).d, "M0 100h500V100z");
    }
}
