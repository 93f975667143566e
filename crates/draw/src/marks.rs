//! Marks that are links: stacked bars, dots, and bars in lanes over time.

use crate::picture::{Picture, escaped};
use std::fmt::Write as _;

/// A bar of a bar chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Values from the bottom to the top, with their CSS classes.
    pub parts: Vec<(f64, &'static str)>,
    /// Figures in words, shown on hover.
    pub title: String,
    /// Address of the page behind the bar.
    pub href: Option<String>,
}

/// Width of a bar with its gap, and without.
const BAR: (u32, u32) = (10, 9);

/// Height of a bar chart and of a scatter chart, and width of the latter.
const HEIGHT: u32 = 200;
const WIDTH: u32 = 1000;

/// Draws bars beside each other; `most` is the value of the full height.
pub fn bars(bars: &[Bar], most: f64, label: String) -> Picture {
    let mut body = String::new();
    for (at, bar) in bars.iter().enumerate() {
        let x = at as u32 * BAR.0;

        let mut marks = String::new();
        let mut below = 0.0;
        for (value, class) in &bar.parts {
            // Heights are rounded at the borders, not for each part: rounding must not leave gaps.
            let from = height(below, most);
            let to = height(below + value, most);
            below += value;
            if to > from {
                // Writing to a string cannot fail.
                let _ = write!(
                    marks,
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                    HEIGHT - to,
                    BAR.1,
                    to - from
                );
            }
        }

        // A transparent mark over the whole height, so that small bars can be pointed at.
        let _ = write!(
            marks,
            "<rect class=\"hit\" x=\"{x}\" width=\"{}\" height=\"{HEIGHT}\"/>",
            BAR.0
        );
        linked(&mut body, bar.href.as_deref(), &bar.title, &marks);
    }

    Picture {
        width: bars.len().max(1) as u32 * BAR.0,
        height: HEIGHT,
        label,
        body,
    }
}

fn height(value: f64, most: f64) -> u32 {
    if most > 0.0 {
        ((value / most).clamp(0.0, 1.0) * f64::from(HEIGHT)).round() as u32
    } else {
        0
    }
}

/// A dot of a scatter chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dot {
    /// Place from the left, 0 to 1.
    pub x: f64,
    /// Place from the bottom, 0 to 1.
    pub y: f64,
    /// CSS class.
    pub class: &'static str,
    /// Figures in words, shown on hover.
    pub title: String,
    /// Address of the page behind the dot.
    pub href: Option<String>,
}

/// Draws dots. A dot is a stroke without length, which stays round when the picture is stretched.
pub fn dots(dots: &[Dot], label: String) -> Picture {
    let mut body = String::new();
    for quarter in 1..4 {
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<path class=\"grid\" d=\"M0 {}h{WIDTH}\"/>",
            HEIGHT * quarter / 4
        );
    }

    for dot in dots {
        let x = (dot.x.clamp(0.0, 1.0) * f64::from(WIDTH)).round();
        let y = f64::from(HEIGHT) - (dot.y.clamp(0.0, 1.0) * f64::from(HEIGHT)).round();
        let mark = format!("<path class=\"dot {}\" d=\"M{x} {y}h0\"/>", dot.class);
        linked(&mut body, dot.href.as_deref(), &dot.title, &mark);
    }

    Picture {
        width: WIDTH,
        height: HEIGHT,
        label,
        body,
    }
}

/// A bar in a lane.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// Start, 0 to 1 of the width.
    pub from: f64,
    /// End, 0 to 1 of the width.
    pub to: f64,
    /// CSS class.
    pub class: &'static str,
    /// Figures in words, shown on hover.
    pub title: String,
    /// Address of the page behind the bar.
    pub href: Option<String>,
}

/// Draws lanes below each other, each `pitch` high.
pub fn lanes(rows: &[Vec<Span>], pitch: u32, label: String) -> Picture {
    let mut body = String::new();
    for (row, spans) in rows.iter().enumerate() {
        let y = row as u32 * pitch;
        for span in spans {
            let x = |share: f64| (share.clamp(0.0, 1.0) * f64::from(WIDTH)).round() as u32;
            let from = x(span.from);
            let to = x(span.to);

            let mark = format!(
                "<rect class=\"{}\" x=\"{from}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>",
                span.class,
                // A job of seconds in a chart of days is one unit wide, and can still be pointed at.
                to.saturating_sub(from).max(1),
                pitch.saturating_sub(2).max(1)
            );
            linked(&mut body, span.href.as_deref(), &span.title, &mark);
        }
    }

    Picture {
        width: WIDTH,
        height: rows.len().max(1) as u32 * pitch,
        label,
        body,
    }
}

/// Writes marks with their title and link.
pub(super) fn linked(body: &mut String, href: Option<&str>, title: &str, marks: &str) {
    let title = escaped(title);
    // Writing to a string cannot fail.
    let _ = match href {
        Some(href) => write!(
            body,
            "<a href=\"{}\" aria-label=\"{title}\"><title>{title}</title>{marks}</a>",
            escaped(href)
        ),
        None => write!(body, "<g><title>{title}</title>{marks}</g>"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_stacked_to_scale() {
        let bar = Bar {
            parts: vec![(50.0, "used"), (25.0, "wasted"), (0.0, "lost")],
            title: "50 & 25".into(),
            href: Some("/jobs?a=1&b=2".into()),
        };
        // The second bar is empty, and still has a place.
        let picture = bars(&[bar, Bar::default()], 100.0, "two bars".into());
        assert_eq!(picture.width, 20);
        assert_eq!(picture.height, 200);
        let body = picture.body;
        assert!(
            body.contains("class=\"used\" x=\"0\" y=\"100\" width=\"9\" height=\"100\""),
            "{body}"
        );
        assert!(
            body.contains("class=\"wasted\" x=\"0\" y=\"50\" width=\"9\" height=\"50\""),
            "{body}"
        );
        // A part of 0 is not drawn.
        assert!(!body.contains("lost"), "{body}");
        assert!(
            body.contains("href=\"/jobs?a=1&amp;b=2\" aria-label=\"50 &amp; 25\""),
            "{body}"
        );
    }

    #[test]
    fn dots_and_lanes_stay_inside() {
        let dot = Dot {
            x: 2.0,
            y: 0.25,
            class: "used",
            ..Dot::default()
        };

        assert!(
            dots(&[dot], String::new())
                .body
                .contains("d=\"M1000 150h0\"")
        );
        let span = Span {
            from: 0.5,
            to: 0.5,
            class: "used",
            ..Span::default()
        };
        // An empty lane keeps its place, and a span without length has the least width.
        let picture = lanes(&[vec![], vec![span]], 12, String::new());
        assert_eq!(picture.height, 24);
        assert!(
            picture
                .body
                .contains("x=\"500\" y=\"12\" width=\"1\" height=\"10\""),
            "{}",
            picture.body
        );
    }
}
