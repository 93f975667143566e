//! `/me`: who the reader is, the own tokens, and signing out.

use crate::frame::{Content, Page, PageError, Visit};
use minijinja::context;
use takt_access::Way;
use takt_server::answers::{TokensQuestion, WhoamiQuestion};

pub const PAGE: Page = Page::new("/me", include_str!("me.html"), show);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let tokens = visit.ask(&TokensQuestion {})?;
    let values = context! {
        known => visit.ask(&WhoamiQuestion {})?,
        has_session => visit.viewer.way() == Way::Session,
        tokens => tokens,
    };
    Ok(Content::new("Me", values))
}
