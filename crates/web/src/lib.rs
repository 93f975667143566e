//! The pages of the server.
//!
//! `frame/` has what all pages share, `pages/` one file or folder for each page, `static/` the style
//! file and the script. A page computes no number of its own: it asks the questions of
//! `takt_questions`, like the commands and the HTTP API.

mod frame;
mod history;
mod pages;
mod pictures;

pub use frame::routes;
