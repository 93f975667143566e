//! A picture: its size, its text, and its elements.

use std::fmt::Write as _;
use takt_model::shown::is_unseen;

/// A picture in units of its own view box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Width of the view box.
    pub width: u32,
    /// Height of the view box.
    pub height: u32,
    /// Text for people who do not see the picture: its figures in one sentence.
    pub label: String,
    /// Elements as SVG, escaped.
    pub body: String,
}

/// Colours of a picture that stands alone, light and dark. The pages' style file has the same classes.
const STYLE: &str = "\
    svg{background:#fff}path{fill:none}text{font:11px system-ui,sans-serif;fill:#5b6167}\
    .f{stroke:#e6e8ea}.w{stroke:#e07b00}.u1{stroke:#c9dcf7}.u2{stroke:#9dc0f0}.u3{stroke:#6ea2e6}\
    .u4{stroke:#3f82d8}.u5{stroke:#1f63bb}.u6{stroke:#0e4690}\
    .used{fill:#3f82d8}.wasted{fill:#e07b00}.lost{fill:#d92d20}.none{fill:#d5d9dd}.hit{fill:none;pointer-events:all}\
    .dot{stroke-width:7;stroke-linecap:round;vector-effect:non-scaling-stroke;opacity:.75}\
    .dot.used{stroke:#3f82d8}.dot.wasted{stroke:#e07b00}\
    .area{fill:#3f82d8;stroke:none}.idle{fill:#fbe3c8}.grid{stroke:#dfe2e5;stroke-width:1}\
    @media(prefers-color-scheme:dark){svg{background:#15181b}text{fill:#9aa3ab}.f{stroke:#2a2f34}\
    .w{stroke:#f59b2d}.u1{stroke:#17304f}.u2{stroke:#1d4477}.u3{stroke:#275fa8}.u4{stroke:#3f82d8}\
    .u5{stroke:#6fa8f0}.u6{stroke:#b0d2ff}.idle{fill:#4a3312}.grid{stroke:#33393f}}";

impl Picture {
    /// The picture as an element of a page. `class` is its CSS class.
    pub fn inline(&self, class: &str) -> String {
        self.element(&format!("class=\"{}\"", escaped(class)), "")
    }

    /// The picture as a file, with its own colours.
    pub fn file(&self) -> String {
        let size = format!(
            "xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\"",
            self.width, self.height
        );
        self.element(&size, &format!("<style>{STYLE}</style>"))
    }

    fn element(&self, attributes: &str, before: &str) -> String {
        let mut out = String::with_capacity(self.body.len() + 200);
        let label = escaped(&self.label);
        // The parts of an image are hidden from screen readers, so a picture with links is a group.
        let role = if self.body.contains("<a ") {
            "group"
        } else {
            "img"
        };

        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<svg {attributes} viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"{role}\" \
             aria-label=\"{label}\">{before}{}</svg>",
            self.width, self.height, self.body
        );
        out
    }
}

/// Text with the special characters of HTML and XML escaped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            // Characters that turn the direction of a text, or have no width, can make two texts look alike.
            c if is_unseen(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_a_picture_can_be_reached() {
        let picture = |body: &str| Picture {
            width: 10,
            height: 5,
            label: String::new(),
            body: body.to_owned(),
        };
        let role = |body: &str| picture(body).inline("x").contains("role=\"group\"");
        assert!(role("<a href=\"/jobs/1\"><rect/></a>"));
        assert!(!role("<path class=\"area\"/>"));
    }

    #[test]
    fn a_hostile_label_stays_text() {
        let picture = Picture {
            width: 10,
            height: 5,
            label: "a\"><script>\u{1b}'&".to_owned(),
            body: String::new(),
        };
        for text in [picture.inline("x\" onload=\"y"), picture.file()] {
            assert!(
                !text.contains("<script") && !text.contains("\" onload"),
                "{text}"
            );
            assert!(
                text.contains("a&quot;&gt;&lt;script&gt; &#39;&amp;"),
                "{text}"
            );
        }
    }
}
