//! `/me`: who the reader is, the own password and tokens, and signing out.

use crate::frame::{Content, Form, FormReply, Page, PageError, Visit};
use minijinja::context;
use takt_access::{Need, Role, Way};
use takt_questions::{TokenAnswer, TokenOrder, TokensQuestion, WhoamiQuestion};

pub const PAGE: Page = Page::new("/me", include_str!("me.html"), show)
    .filters(&["password"])
    .submit_by(Role::User)
    .submit(submit);

/// Days for which a token of the form may be valid.
const TOKEN_DAYS: [i64; 4] = [7, 30, 90, 365];

/// Results of a change of the password, by their word in the address.
const RESULTS: [(&str, &str); 8] = [
    (
        "set",
        "The password is set. Other browsers that signed in with the old one are signed out.",
    ),
    (
        "wrong",
        "The old password is wrong. Without one, set the first with takt passwd on the server's machine.",
    ),
    ("again", "The new passwords differ."),
    (
        "weak",
        "A password has at least 10 characters and does not contain your name.",
    ),
    ("wait", "Too many wrong passwords. Wait 15 minutes."),
    (
        "busy",
        "Too many people sign in at this moment. Try again in some seconds.",
    ),
    (
        "elsewhere",
        "This password is the directory's. Change it there.",
    ),
    ("session", "Sign in first."),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    content(visit, None)
}

/// Creates or revokes a token.
fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let wrong = |text: String| PageError::wrong(text).next("/me", "Me");
    match form.required("do")? {
        "create" => {
            // Only the days that the form offers.
            let days: i64 = form.required("days")?.parse().unwrap_or_default();
            if !TOKEN_DAYS.contains(&days) {
                return Err(wrong(
                    "A token is valid for 7, 30, 90 or 365 days.".to_owned(),
                ));
            }
            let created = visit.ask(&TokenOrder {
                name: Some(form.required("name")?.to_owned()),
                seconds: Some(days * 86_400),
                ..TokenOrder::default()
            })?;
            // The token is shown once, in the reply to the form.
            Ok(FormReply::Page(Box::new(content(visit, Some(&created))?)))
        }
        "revoke" => {
            let id = form.required("id")?;
            let id = id
                .parse()
                .map_err(|_| wrong(format!("'{id}' is not the number of a token.")))?;
            visit.ask(&TokenOrder {
                revoke: Some(id),
                ..TokenOrder::default()
            })?;
            // A redirect, so that loading the page again sends no form.
            Ok(FormReply::Redirect("/me".to_owned()))
        }
        other => Err(wrong(format!("The page has no action '{other}'."))),
    }
}

fn content(visit: &Visit, created: Option<&TokenAnswer>) -> Result<Content, PageError> {
    let tokens = visit.ask(&TokensQuestion {})?;
    // The result comes back from another address, which sets the password.
    let result = visit
        .get("password")
        .and_then(|word| RESULTS.iter().find(|(known, _)| *known == word));
    let has_session = visit.viewer.way() == Way::Session;
    let values = context! {
        known => visit.ask(&WhoamiQuestion {})?,
        has_session,
        has_password => has_session && visit.site.config.sign_in.passwords,
        is_set => result.is_some_and(|(word, _)| *word == "set"),
        result => result.map(|(_, text)| text),
        tokens => tokens,
        created => created.map(|created| {
            context! {
                name => created.record.name,
                token => created.token,
            }
        }),
        // A program has no user whose token it could be.
        may_create => visit.viewer.user().is_some()
            && visit.viewer.check(Need::Change(Role::User)).is_ok(),
        days => TOKEN_DAYS,
    };
    Ok(Content::new("Me", values))
}
