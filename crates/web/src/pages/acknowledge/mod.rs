//! `/acknowledge`: the page behind the link in a message. Opening it changes nothing; its button acknowledges the
//! alerts of the message.

use crate::frame::{Content, Form, FormReply, Page, PageError, Visit};
use minijinja::{Value, context};
use takt_questions::{AcknowledgeByLink, LinkState, LinkedAlertsQuestion};

pub const PAGE: Page = Page::new("/acknowledge", include_str!("acknowledge.html"), show)
    .filters(&["link"])
    .open()
    .submit(submit);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let link = visit.get("link").unwrap_or_default();
    content(visit, link, None)
}

fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let text = |name: &str| form.get(name).unwrap_or_default().to_owned();
    let order = AcknowledgeByLink {
        link: text("link"),
        length: text("for"),
        name: text("by"),
        comment: text("comment"),
    };
    let acknowledged = visit
        .ask(&order)
        .map_err(|error| error.next("/alerts", "Active alerts"))?;

    let done = context! { acknowledged, length => order.length };
    let content = content(visit, &order.link, Some(done))?;
    Ok(FormReply::Page(Box::new(content)))
}

/// The page, before and after the button was pressed.
fn content(visit: &Visit, link: &str, done: Option<Value>) -> Result<Content, PageError> {
    let question = LinkedAlertsQuestion {
        link: link.to_owned(),
    };
    let known = visit
        .ask(&question)
        .map_err(|error| error.next("/alerts", "Active alerts"))?;
    // After its own use the link is used, which the page need not say.
    let refusal = match known.state {
        _ if done.is_some() => None,
        LinkState::Open => None,
        LinkState::Used => Some("This link was used already: it works once."),
        LinkState::Expired => Some("This link is too old: it works for a day."),
        LinkState::Over => Some("None of these alerts is active any more: there is nothing to do."),
    };
    let values = context! {
        link,
        done,
        refusal,
        place => known.place,
        until => known.until,
        alerts => known.alerts,
    };
    Ok(Content::new("Acknowledge alerts", values))
}
