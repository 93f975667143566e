//! `/login`: signs a browser in, with the provider of OpenID Connect, with a name and a password,
//! or with the link of `takt login`.
//!
//! The code is in the fragment of the address, which browsers send to no server. The script reads
//! it, shows the user that it signs in, and fills the form. Without a script, the code is pasted.

use crate::frame::{Content, Page, PageError, Visit};
use minijinja::context;
use takt_access::Need;
use takt_access::session::next_path;

pub const PAGE: Page = Page::new("/login", include_str!("login.html"), show)
    .filters(&["next", "failed"])
    .needs(Need::Nothing);

/// Reasons why a sign-in failed, by their word in the address, with what to do.
const FAILURES: [(&str, &str); 10] = [
    ("password", "The name or the password is wrong."),
    (
        "wait",
        "Too many attempts. Wait 15 minutes, or sign in with takt login.",
    ),
    (
        "minute",
        "Too many attempts from this machine. Wait a minute.",
    ),
    (
        "link",
        "The link is unknown, used or older than two minutes. Run takt login again.",
    ),
    (
        "busy",
        "Too many people sign in at this moment. Try again in some seconds.",
    ),
    (
        "service",
        "The sign-in service does not answer. Try again, or ask an administrator.",
    ),
    (
        "provider",
        "The sign-in did not succeed, or took too long. Try again.",
    ),
    (
        "unknown",
        "The cluster has no user of this name. Ask an administrator for an account.",
    ),
    (
        "group",
        "No group of this user may sign in here. Ask an administrator.",
    ),
    ("", "The sign-in did not succeed. Try again."),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    // An unknown word has the last text: the address may be of another version.
    let failed = visit.get("failed").map(|reason| {
        FAILURES
            .iter()
            .find(|(word, _)| *word == reason)
            .or(FAILURES.last())
            .map_or("", |(_, text)| *text)
    });
    // Only a path of this server, or the page would lead a signed-in user elsewhere.
    let next = next_path(visit.get("next").unwrap_or_default());
    let mut query = form_urlencoded::Serializer::new(String::new());
    let ways = &visit.site.config.sign_in;
    let values = context! {
        failed,
        next,
        has_passwords => ways.passwords,
        oidc => ways.oidc,
        oidc_address => format!(
            "/login/oidc?{}",
            query.append_pair("next", next).finish()
        ),
        user => visit.viewer.user(),
        role => visit.viewer.role_name(),
    };
    Ok(Content::new("Sign in", values))
}
