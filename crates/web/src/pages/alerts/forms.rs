//! The forms of the alerts: acknowledge, silence, close, end a silence.

use crate::frame::{Form, FormReply, PageError, Visit};
use takt_alerts::api::new_silence_id;
use takt_alerts::duration;
use takt_alerts::routing::matcher::{MatchOp, Matcher, Matchers, parse_matchers};
use takt_alerts::routing::silence::Silence;
use takt_alerts::state::Closing;
use takt_alerts::{Batch, Engine};
use takt_model::Timestamp;

/// Carries out a form of the page.
pub fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    match form.required("do")? {
        "acknowledge" => silence(visit, form, of_alert(visit, form)?)?,
        "silence" => {
            let text = form.required("matchers")?;
            let matchers =
                parse_matchers(text).map_err(|error| wrong(format!("matchers: {error}")))?;
            silence(visit, form, Matchers(matchers))?;
        }
        "close" => close(visit, form)?,
        "expire" => expire(visit, form.required("id")?)?,
        other => return Err(wrong(format!("The page has no action '{other}'."))),
    }
    Ok(FormReply::Redirect("/alerts".to_owned()))
}

fn wrong(text: String) -> PageError {
    PageError::wrong(text).next("/alerts", "Active alerts")
}

/// Matchers that accept exactly the labels of the form's alert.
fn of_alert(visit: &Visit, form: &Form) -> Result<Matchers, PageError> {
    let fingerprint = form.required("fingerprint")?.to_owned();
    let labels = visit
        .alerts(move |engine, now| {
            engine
                .router()
                .alerts()
                .iter()
                .find(|(known, alert)| known.to_string() == fingerprint && !alert.is_resolved(now))
                .map(|(_, alert)| alert.labels.clone())
        })?
        .ok_or_else(|| wrong("This alert is not active any more.".to_owned()))?;
    let matchers = labels
        .iter()
        .map(|(name, value)| Matcher::new(name, MatchOp::Equal, value))
        .collect::<Result<_, _>>()
        .map_err(|error| PageError::failed(&error))?;
    Ok(Matchers(matchers))
}

fn silence(visit: &Visit, form: &Form, matchers: Matchers) -> Result<(), PageError> {
    let length = form.required("for")?;
    let length = duration::parse(length)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| {
            wrong(format!(
                "'{length}' is not a duration such as 30m, 4h or 3d."
            ))
        })?;
    let by = form.required("by")?.to_owned();
    let comment = form.required("comment")?.to_owned();
    visit
        .change_alerts(move |engine: &mut Engine, now: Timestamp| {
            let wanted = Silence {
                id: String::new(),
                matchers: vec![matchers],
                starts_at: now,
                ends_at: now.plus(length),
                updated_at: now,
                created_by: by,
                comment,
                annotations: Default::default(),
            };
            match engine.silence(wanted, &new_silence_id(), now) {
                Ok((_, batch)) => (Ok(()), batch),
                Err(error) => (Err(error), Batch::default()),
            }
        })?
        .map_err(|error| wrong(error.to_string()))
}

fn close(visit: &Visit, form: &Form) -> Result<(), PageError> {
    let matchers = of_alert(visit, form)?;
    let closing = Closing {
        by: form.required("by")?.to_owned(),
        comment: form.required("comment")?.to_owned(),
    };
    let closed = visit
        .change_alerts(move |engine: &mut Engine, now| engine.close(&matchers, &closing, now))?;
    if closed.is_empty() {
        return Err(wrong("This alert is not active any more.".to_owned()));
    }
    Ok(())
}

fn expire(visit: &Visit, id: &str) -> Result<(), PageError> {
    let id = id.to_owned();
    visit
        .change_alerts(
            move |engine: &mut Engine, now| match engine.expire_silence(&id, now) {
                Ok(batch) => (Ok(()), batch),
                Err(error) => (Err(error), Batch::default()),
            },
        )?
        .map_err(|error| wrong(error.to_string()))
}
