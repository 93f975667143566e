//! Scraping real HTTP targets into a real data directory.

mod failures;
mod kill;
mod pages;
mod support;
