//! The list of pages. To add one, write its file and add its line here (CONTRIBUTING.md).

mod alerts;
mod capacity;
mod compare;
mod energy;
mod fairshare;
mod job;
mod jobs;
mod login;
mod me;
mod overview;
mod people;
mod queue;
mod search;
mod waste;
mod work;

use crate::frame::Page;

/// All pages. Those with a place in the navigation stand there in this order.
pub static PAGES: &[Page] = &[
    overview::PAGE,
    alerts::PAGE,
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
    energy::PAGE,
    search::PAGE,
    me::PAGE,
    login::PAGE,
];
