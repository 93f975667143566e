//! Scrapes of real HTTP targets into a real data directory.

#![expect(clippy::unwrap_used, reason = "what tests share is a test too")]

mod failures;
mod full_disk;
mod jobs;
mod kill;
mod pages;
mod support;
