//! Pictures as SVG: strips and heat maps of GPUs over time, area rows, and the scale of an axis.
//!
//! Pages, reports and mails draw with these functions. Geometry is in SVG attributes and colours are
//! in CSS classes, so a page needs no inline style and follows light, dark and print. Numbers come
//! from the caller; nothing here reads data.

mod area;
mod chart;
mod heat;
mod marks;
mod picture;
mod ribbon;
mod scale;

pub use area::{Area, area};
pub use chart::{Chart, sheet};
pub use heat::{Cell, heat};
pub use marks::{Bar, Dot, Span, bars, dots, lanes};
pub use picture::{Picture, escaped};
pub use ribbon::{Share, Texture, ribbon};
pub use scale::{beside_axis, scale};
