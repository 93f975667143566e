//! Heat maps: rows over time, a colour for each cell. A strip is a heat map of one row.

use crate::Picture;
use std::fmt::Write as _;

/// One cell of a heat map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// Not measured; drawn as a gap.
    Unknown,
    /// Not allocated to a job and not used by a process.
    Free,
    /// Held and below the idle threshold.
    Idle,
    /// At work: utilization, 0 to 1.
    Busy(f64),
}

/// CSS classes of the cells that are drawn, in the order of the paths.
const CLASSES: [&str; 8] = ["f", "w", "u1", "u2", "u3", "u4", "u5", "u6"];

/// Number of colours for work.
const SHADES: f64 = 6.0;

impl Cell {
    /// Index into [`CLASSES`]; `None` for a gap.
    fn class(self) -> Option<usize> {
        match self {
            Self::Unknown => None,
            Self::Free => Some(0),
            Self::Idle => Some(1),
            Self::Busy(ratio) => {
                // Even a ratio of 0 is work: the GPU was busy by the caller's rule.
                Some(2 + ((ratio.clamp(0.0, 1.0) * SHADES).ceil().max(1.0) as usize - 1))
            }
        }
    }
}

/// Draws `rows` of cells, each `pitch` high of which `bar`, an even number, is filled. A cell is one
/// unit wide.
///
/// One path for each colour, runs of equal cells as strokes: a map of 2,400 rows stays small.
pub fn heat(rows: &[Vec<Cell>], pitch: u32, bar: u32, label: String) -> Picture {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0) as u32;

    let mut paths: [Path; CLASSES.len()] = Default::default();
    for (at, row) in rows.iter().enumerate() {
        // A stroke is drawn around its middle.
        let y = at as u32 * pitch + bar / 2;
        let mut x = 0;
        // Nearly equal ratios have one colour, so they share a stroke.
        for run in row.chunk_by(|a, b| a.class() == b.class()) {
            if let Some(class) = run[0].class() {
                paths[class].stroke(x, y, run.len() as i64);
            }
            x += run.len() as i64;
        }
    }

    let mut body = String::new();
    for (class, path) in CLASSES.iter().zip(&paths) {
        if !path.d.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(
                body,
                "<path class=\"{class}\" stroke-width=\"{bar}\" d=\"{}\"/>",
                path.d
            );
        }
    }

    Picture {
        width,
        height: rows.len() as u32 * pitch,
        label,
        body,
    }
}

/// A path of horizontal strokes with relative moves.
#[derive(Default)]
struct Path {
    d: String,
    x: i64,
    y: i64,
}

impl Path {
    fn stroke(&mut self, x: i64, y: u32, length: i64) {
        let y = i64::from(y);
        let dx = x - self.x;
        let dy = y - self.y;
        // Writing to a string cannot fail.
        // The minus sign separates the numbers, which saves a blank.
        let _ = if dy < 0 {
            write!(self.d, "m{dx}{dy}h{length}")
        } else {
            write!(self.d, "m{dx} {dy}h{length}")
        };
        self.x = x + length;
        self.y = y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_cells_become_one_stroke() {
        let row = vec![
            Cell::Idle,
            Cell::Idle,
            Cell::Unknown,
            Cell::Busy(0.99),
            Cell::Busy(1.0),
        ];
        let picture = heat(&[row], 5, 4, "one".to_owned());
        assert_eq!(picture.width, 5);
        assert_eq!(picture.height, 5);
        assert!(picture.body.contains("class=\"w\""), "{}", picture.body);
        assert!(picture.body.contains("d=\"m0 2h2\""), "{}", picture.body);
        assert!(picture.body.contains("d=\"m3 2h2\""), "{}", picture.body);
        // The gap has no path.
        assert_eq!(picture.body.matches("<path").count(), 2);
    }

    #[test]
    fn little_work_has_the_first_colour_and_all_work_the_last() {
        let class = |ratio| Cell::Busy(ratio).class().map(|class| CLASSES[class]);
        assert_eq!(
            [0.0, 0.01, 0.17, 0.5, 1.0, 7.0].map(class),
            ["u1", "u1", "u2", "u3", "u6", "u6"].map(Some)
        );
    }

    /// The strokes of all paths cover exactly the cells that are known.
    fn covered(picture: &Picture) -> usize {
        picture
            .body
            .split("h")
            .skip(1)
            .filter_map(|rest| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<usize>().ok()
            })
            .sum()
    }

    proptest! {
        #[test]
        fn every_known_cell_is_drawn_once(
            cells in prop::collection::vec(
            prop::collection::vec(prop_oneof![
                Just(Cell::Unknown), Just(Cell::Free), Just(Cell::Idle),
                (0.0..1.0_f64).prop_map(Cell::Busy),
            ], 1..40), 1..6),
        ) {
            let known = cells
                .iter()
                .flatten()
                .filter(|cell| **cell != Cell::Unknown)
                .count();
            // "height" and "path" have an h, which no number follows.
            prop_assert_eq!(covered(&heat(&cells, 3, 2, String::new())), known);
        }
    }
}
