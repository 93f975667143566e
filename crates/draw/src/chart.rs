//! Charts: area rows that the pages' script can read, and area rows below each other as a file.

use crate::area::{self, area};
use crate::picture::{Picture, escaped};
use std::fmt::Write as _;

/// One value over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart<'c> {
    /// Values, evenly spread over the time; `None` is a gap.
    pub values: &'c [Option<f64>],
    /// Value of the full height.
    pub most: f64,
    /// Begin and end of the time, in UTC seconds.
    pub time: (i64, i64),
    /// Ranges of steps that are marked behind the area: `[from, to)`.
    pub marked: &'c [(usize, usize)],
    /// Figures in one sentence.
    pub label: String,
    /// Factor from a value to the number that people read, and its unit.
    pub shown: (f64, &'static str),
}

impl Chart<'_> {
    /// The chart as an element of a page. The script reads times, scale and unit from it.
    pub fn inline(&self) -> String {
        let picture = Picture {
            width: area::WIDTH,
            height: area::HEIGHT,
            label: self.label.clone(),
            body: self.body(),
        };

        let (factor, unit) = self.shown;
        format!(
            "<div class=\"chartbox\" data-from=\"{}\" data-to=\"{}\" data-most=\"{}\" data-unit=\"{}\">{}</div>",
            self.time.0,
            self.time.1,
            self.most * factor,
            escaped(unit),
            picture.inline("curve")
        )
    }

    fn body(&self) -> String {
        let drawn = area(self.values, self.most);
        let steps = self.values.len().max(1) as f64;
        let x = |step: usize| (step as f64 / steps * f64::from(drawn.width)).round() as u32;

        let mut body = String::new();
        for (from, to) in self.marked {
            // Writing to a string cannot fail.
            let _ = write!(
                body,
                "<rect class=\"idle\" x=\"{}\" width=\"{}\" height=\"{}\"/>",
                x(*from),
                x(*to).saturating_sub(x(*from)),
                drawn.height
            );
        }

        let _ = write!(body, "<path class=\"area\" d=\"{}\"/>", drawn.d);
        body
    }
}

/// Height of a row, of the title, and of the axis in a file; width of the names.
const ROW: u32 = 62;
const TITLE: u32 = 26;
const AXIS: u32 = 22;
const NAMES: u32 = 190;
const CHART: u32 = 700;

/// Draws charts below each other with their names, figures and time axis: a picture that stands
/// alone. `ticks` are shares of the width with their texts.
pub fn sheet(
    title: &str,
    rows: &[(String, String, Chart<'_>)],
    ticks: &[(f64, String)],
) -> Picture {
    // The texts come from users, such as the names of nodes and jobs.
    let mut body = format!("<text x=\"8\" y=\"17\">{}</text>", escaped(title));
    let scale = f64::from(CHART) / f64::from(area::WIDTH);

    for (at, (name, figures, chart)) in rows.iter().enumerate() {
        let y = TITLE + at as u32 * ROW;
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<text x=\"8\" y=\"{}\">{}</text><text x=\"8\" y=\"{}\">{}</text>\
             <g transform=\"translate({NAMES} {y}) scale({scale} .54)\">{}</g>\
             <path class=\"grid\" d=\"M{NAMES} {}h{CHART}\"/>",
            y + 24,
            escaped(name),
            y + 40,
            escaped(figures),
            chart.body(),
            y + 54,
        );
    }

    let bottom = TITLE + rows.len() as u32 * ROW;
    for (share, text) in ticks {
        let x = f64::from(NAMES) + share * f64::from(CHART);
        let _ = write!(
            body,
            "<text x=\"{x:.0}\" y=\"{}\">{}</text>",
            bottom + 12,
            escaped(text)
        );
    }

    Picture {
        width: NAMES + CHART + 20,
        height: bottom + AXIS,
        label: title.to_owned(),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[Option<f64>]) -> Chart<'_> {
        Chart {
            values,
            most: 2.0,
            time: (100, 200),
            marked: &[(1, 2)],
            // A label with a character that HTML escapes.
            label: "a & b".into(),
            shown: (50.0, " %"),
        }
    }

    #[test]
    fn the_script_finds_time_scale_and_unit() {
        let text = chart(&[Some(1.0), None]).inline();
        assert!(
            text.contains("data-from=\"100\" data-to=\"200\" data-most=\"100\" data-unit=\" %\""),
            "{text}"
        );
        assert!(
            text.contains("class=\"idle\" x=\"250\" width=\"250\""),
            "{text}"
        );
        assert!(text.contains("aria-label=\"a &amp; b\""), "{text}");
    }

    #[test]
    fn a_sheet_names_its_rows_and_times() {
        let values = [Some(1.0)];
        let rows = [("g1 <0>".to_owned(), "mean 50 %".to_owned(), chart(&values))];
        let picture = sheet("job 7", &rows, &[(0.5, "12:00".to_owned())]);
        let text = picture.file();
        // The middle of the chart: 190 for the names, and half of 700.
        for part in ["job 7", "g1 &lt;0&gt;", "mean 50 %", "x=\"540\"", ">12:00<"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert_eq!(picture.height, TITLE + ROW + AXIS);
    }
}
