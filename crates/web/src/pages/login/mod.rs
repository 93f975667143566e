//! `/login`: signs a browser in with the link of `takt login`.
//!
//! The code is in the fragment of the address, which browsers send to no server. The script reads it, shows whom it signs in,
//! and fills the form. Without a script, the code is pasted.

use crate::frame::{Content, Page, PageError, Visit};
use minijinja::context;
use takt_access::Need;

pub const PAGE: Page = Page::new("/login", include_str!("login.html"), show).needs(Need::Nothing);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let values = context! {
        user => visit.viewer.user(),
        role => visit.viewer.role_name(),
    };
    Ok(Content::new("Sign in", values))
}
