//! A ribbon: one bar whose parts add up to a whole, such as all GPUs of a cluster by state.

use crate::marks::linked;
use crate::picture::Picture;
use std::fmt::Write as _;

/// A part of a ribbon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// How much of the whole the part is, in whole things such as GPUs.
    pub count: u64,
    /// CSS class.
    pub class: &'static str,
    /// Texture over the colour, so that the parts can be told apart without it.
    pub texture: Texture,
    /// Figures in words, shown on hover.
    pub title: String,
    /// Address of the page behind the part.
    pub href: Option<String>,
}

/// Texture of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Texture {
    /// Nothing.
    #[default]
    Plain,
    /// Diagonal lines.
    Hatch,
    /// A cross in the middle.
    Cross,
}

/// Width and height of the view box, and the space between two parts.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 28;
const GAP: u32 = 2;

/// Least width of a part: one lost GPU among thousands is still seen.
const LEAST: u32 = 8;

/// Draws parts beside each other, together as wide as the picture. Parts of nothing are left out.
pub fn ribbon(shares: &[Share], label: String) -> Picture {
    let shown: Vec<&Share> = shares.iter().filter(|share| share.count > 0).collect();
    let all: u64 = shown.iter().map(|share| share.count).sum();

    let mut body = String::from(
        "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\">\
         <path class=\"hatch\" d=\"M0 7L7 0\"/></pattern></defs>",
    );
    let mut before = 0;
    for (at, share) in shown.iter().enumerate() {
        let from = place(at, shown.len(), before, all);
        before += share.count;
        let to = place(at + 1, shown.len(), before, all);
        linked(
            &mut body,
            share.href.as_deref(),
            &share.title,
            &marks(share, from, to),
        );
    }

    Picture {
        width: WIDTH,
        height: HEIGHT,
        label,
        body,
    }
}

/// Place of the border after `at` of `parts` parts, which hold `before` of `all`.
fn place(at: usize, parts: usize, before: u64, all: u64) -> u32 {
    let least = LEAST.min(WIDTH / parts.max(1) as u32);
    // The parts share what is left after each has its least width.
    let spare = WIDTH - least * parts as u32;
    let share = before as f64 / all.max(1) as f64;
    least * at as u32 + (f64::from(spare) * share).round() as u32
}

fn marks(share: &Share, from: u32, to: u32) -> String {
    let width = to.saturating_sub(from + GAP).max(1);
    let rectangle = |attributes: &str| {
        format!("<rect {attributes} x=\"{from}\" width=\"{width}\" height=\"{HEIGHT}\"/>")
    };
    let mut marks = rectangle(&format!("class=\"{}\"", share.class));

    // Writing to a string cannot fail.
    let _ = match share.texture {
        Texture::Plain => Ok(()),
        Texture::Hatch => write!(marks, "{}", rectangle("fill=\"url(#hatch)\"")),
        Texture::Cross => {
            let middle = from + width / 2;
            let left = middle.saturating_sub(3);
            write!(
                marks,
                "<path class=\"cross-out\" d=\"M{left} 8l6 12m0-12l-6 12\"/>"
            )
        }
    };
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(count: u64) -> Share {
        Share {
            count,
            class: "s-busy",
            title: format!("{count} busy"),
            href: Some("/nodes".to_owned()),
            ..Share::default()
        }
    }

    #[test]
    fn a_part_is_a_link_with_its_figures() {
        let picture = ribbon(&[share(3), share(0), share(1)], "all".to_owned());
        assert_eq!(picture.body.matches("<a ").count(), 2);
        assert!(picture.body.contains("<title>3 busy</title>"));
        assert!(picture.inline("ribbon").contains("role=\"group\""));
    }

    #[test]
    fn a_texture_is_drawn_over_the_colour() {
        let of = |texture| {
            let share = Share {
                texture,
                ..share(1)
            };
            ribbon(&[share], String::new()).body
        };
        assert!(!of(Texture::Plain).contains("url(#hatch)"));
        assert!(of(Texture::Hatch).contains("fill=\"url(#hatch)\""));
        assert!(of(Texture::Cross).contains("class=\"cross-out\""));
    }

    proptest! {
        /// The borders go from one end to the other; each part keeps the width that makes it seen, and a larger part is
        /// never narrower than a smaller one by more than rounding.
        #[test]
        fn parts_fill_the_width(counts in prop::collection::vec(1_u64..100_000, 1..8)) {
            let all: u64 = counts.iter().sum();
            let mut before = 0;
            let mut borders = vec![place(0, counts.len(), 0, all)];
            for (at, count) in counts.iter().enumerate() {
                before += count;
                borders.push(place(at + 1, counts.len(), before, all));
            }
            prop_assert_eq!(borders[0], 0);
            prop_assert_eq!(borders.last(), Some(&WIDTH));

            let widths: Vec<u32> = borders.windows(2).map(|pair| pair[1] - pair[0]).collect();
            for (width, count) in widths.iter().zip(&counts) {
                prop_assert!(*width >= LEAST);
                for (other, fewer) in widths.iter().zip(&counts) {
                    prop_assert!(count < fewer || width + 1 >= *other);
                }
            }
        }
    }
}
