//! The forms of the alerts: acknowledge, silence, close, end a silence.

use crate::frame::{Form, FormReply, PageError, Visit};
use takt_questions::AlertOrder;

/// Carries out a form of the page.
pub fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let order = order(form, visit.viewer.user())?;
    visit
        .ask(&order)
        .map_err(|error| error.next("/alerts", "Active alerts"))?;
    Ok(FormReply::Redirect("/alerts".to_owned()))
}

/// Reads the order. The page asks only a program for a name: of a user, the name counts that the server knows.
fn order(form: &Form, user: Option<&str>) -> Result<AlertOrder, PageError> {
    let text = |name: &str| form.required(name).map(str::to_owned);
    let by = || user.map_or_else(|| text("by"), |user| Ok(user.to_owned()));
    match form.required("do")? {
        "acknowledge" => Ok(AlertOrder::Acknowledge {
            fingerprint: text("fingerprint")?,
            length: text("for")?,
            by: by()?,
            comment: text("comment")?,
        }),
        "silence" => Ok(AlertOrder::Silence {
            matchers: text("matchers")?,
            length: text("for")?,
            by: by()?,
            comment: text("comment")?,
        }),
        "close" => Ok(AlertOrder::Close {
            fingerprint: text("fingerprint")?,
            by: by()?,
            comment: text("comment")?,
        }),
        "expire" => Ok(AlertOrder::Expire { id: text("id")? }),
        other => Err(
            PageError::wrong(format!("The page has no action '{other}'."))
                .next("/alerts", "Active alerts"),
        ),
    }
}
