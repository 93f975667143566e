//! The list of pages. To add one, write its file and add its line here (CONTRIBUTING.md).

mod alerts;
mod overview;

use crate::frame::Page;

/// All pages. Those with a place in the navigation stand there in this order.
pub static PAGES: &[Page] = &[overview::PAGE, alerts::PAGE];
