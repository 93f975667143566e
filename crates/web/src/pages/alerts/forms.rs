//! The forms of the alerts: acknowledge, silence, close, end a silence.

use crate::frame::{Form, FormReply, PageError, Visit};
use takt_questions::AlertOrder;

/// Carries out a form of the page. A form about an incident names all its alerts: some may have ended meanwhile.
pub fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let mut refused = None;
    let mut is_done = false;
    // One refused order does not stop the others: the alert may have ended meanwhile.
    for order in orders(form, visit.viewer.user())? {
        match visit.ask(&order) {
            Ok(()) => is_done = true,
            Err(error) => refused = Some(error),
        }
    }
    // An incident whose other alerts were acknowledged is done.
    match refused {
        Some(error) if !is_done => Err(error.next("/alerts", "Active alerts")),
        _ => Ok(FormReply::Redirect("/alerts".to_owned())),
    }
}

/// Reads the orders. The page asks only a program for a name: of a user, the name counts that the server knows.
fn orders(form: &Form, user: Option<&str>) -> Result<Vec<AlertOrder>, PageError> {
    let text = |name: &str| form.required(name).map(str::to_owned);

    let by = || user.map_or_else(|| text("by"), |user| Ok(user.to_owned()));
    let fingerprints = || -> Result<Vec<String>, PageError> {
        // Without this field, no order would be sent, and the form would seem to work.
        form.required("fingerprint")?;
        Ok(form.all("fingerprint").map(str::to_owned).collect())
    };

    match form.required("do")? {
        "acknowledge" => {
            let (length, by, comment) = (text("for")?, by()?, text("comment")?);
            let order = |fingerprint| AlertOrder::Acknowledge {
                fingerprint,
                length: length.clone(),
                by: by.clone(),
                comment: comment.clone(),
            };
            Ok(fingerprints()?.into_iter().map(order).collect())
        }
        "silence" => Ok(vec![AlertOrder::Silence {
            matchers: text("matchers")?,
            length: text("for")?,
            by: by()?,
            comment: text("comment")?,
        }]),
        "close" => {
            let (by, comment) = (by()?, text("comment")?);
            let order = |fingerprint| AlertOrder::Close {
                fingerprint,
                by: by.clone(),
                comment: comment.clone(),
            };
            Ok(fingerprints()?.into_iter().map(order).collect())
        }
        "expire" => Ok(vec![AlertOrder::Expire { id: text("id")? }]),
        other => Err(
            PageError::wrong(format!("The page has no action '{other}'."))
                .next("/alerts", "Active alerts"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> Form {
        let fields = fields.iter();

        Form::of(fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn an_incident_is_acknowledged_as_a_whole_by_the_known_user() {
        let fields = [
            ("return", ""),
            ("fingerprint", "a1"),
            ("fingerprint", "b2"),
            ("by", "mallory"),
            ("comment", "on my way"),
            ("for", "4h"),
            ("do", "acknowledge"),
        ];
        // The name of the form is not believed where a user is known.
        let read = orders(&form(&fields), Some("alice")).unwrap();
        let order = |fingerprint: &str| AlertOrder::Acknowledge {
            fingerprint: fingerprint.to_owned(),
            length: "4h".to_owned(),
            by: "alice".to_owned(),
            comment: "on my way".to_owned(),
        };
        assert_eq!(read, [order("a1"), order("b2")]);
    }

    #[test]
    fn a_form_without_an_alert_does_nothing() {
        let fields = [("by", "bob"), ("comment", "why"), ("do", "close")];
        assert!(orders(&form(&fields), None).is_err());
        assert!(orders(&form(&[("do", "reboot")]), None).is_err());
    }
}
