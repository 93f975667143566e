//! The list of pages. To add one, write its file and add its line here (CONTRIBUTING.md).

mod acknowledge;
mod alerts;
mod capacity;
mod cards;
mod compare;
mod energy;
mod events;
mod fairshare;
mod gpu;
mod health;
mod job;
mod jobs;
mod login;
mod me;
mod node;
mod nodes;
mod overview;
mod people;
mod queue;
mod reports;
mod search;
mod servers;
mod sql;
mod status;
mod waste;
mod whatif;
mod work;

use crate::frame::Page;

/// All pages. Those with a place in the navigation stand there in this order.
pub static PAGES: &[Page] = &[
    overview::PAGE,
    servers::PAGE,
    nodes::PAGE,
    node::PAGE,
    gpu::PAGE,
    acknowledge::PAGE,
    alerts::PAGE,
    alerts::rules::PAGE,
    alerts::history::PAGE,
    queue::PAGE,
    jobs::PAGE,
    job::PAGE,
    compare::PAGE,
    people::PAGE,
    people::USER,
    people::ACCOUNT,
    waste::PAGE,
    fairshare::PAGE,
    capacity::PAGE,
    whatif::PAGE,
    energy::PAGE,
    reports::PAGE,
    reports::SHEET,
    events::PAGE,
    cards::PAGE,
    health::PAGE,
    sql::PAGE,
    status::PAGE,
    search::PAGE,
    me::PAGE,
    login::PAGE,
];
