//! The list of pages. To add one, write its file and add its line here (CONTRIBUTING.md).

mod alerts;
mod events;
mod gpu;
mod health;
mod node;
mod nodes;
mod overview;
mod reports;
mod sql;
mod status;

use crate::frame::Page;

/// All pages. Those with a place in the navigation stand there in this order.
pub static PAGES: &[Page] = &[
    overview::PAGE,
    nodes::PAGE,
    node::PAGE,
    gpu::PAGE,
    alerts::PAGE,
    alerts::rules::PAGE,
    alerts::history::PAGE,
    reports::PAGE,
    reports::SHEET,
    events::PAGE,
    health::PAGE,
    sql::PAGE,
    status::PAGE,
];
