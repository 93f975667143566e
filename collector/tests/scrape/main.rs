//! Scraping real HTTP targets into a real data directory.

mod failures;
mod full_disk;
mod kill;
mod pages;
mod support;
