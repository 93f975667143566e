//! Orders of operators: acknowledge, silence and close alerts, end a silence.

use crate::{AnswerConfig, AnswerError, Question, RequestForm};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_alerts::api::new_silence_id;
use takt_alerts::routing::matcher::{MatchOp, Matcher, Matchers, parse_matchers};
use takt_alerts::routing::silence::{Silence, SilenceError};
use takt_alerts::state::Closing;
use takt_alerts::{Batch, duration};
use takt_store::Database;

/// Changes alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum AlertOrder {
    /// Silences one active alert.
    Acknowledge {
        /// Fingerprint of the alert.
        fingerprint: String,
        /// Duration, such as `4h`.
        length: String,
        /// Person who acknowledges it, if the viewer is a program; of a user, the name counts that the server knows.
        by: String,
        /// Reason.
        comment: String,
    },
    /// Silences all alerts that match.
    Silence {
        /// Matchers, such as `node=g01, alertname=~"Gpu.*"`.
        matchers: String,
        /// Duration, such as `4h`.
        length: String,
        /// Person who makes it, if the viewer is a program; of a user, the name counts that the server knows.
        by: String,
        /// Reason.
        comment: String,
    },
    /// Ends one active alert.
    Close {
        /// Fingerprint of the alert.
        fingerprint: String,
        /// Person who closes it, if the viewer is a program; of a user, the name counts that the server knows.
        by: String,
        /// Reason.
        comment: String,
    },
    /// Ends a silence.
    Expire {
        /// Number of the silence.
        id: String,
    },
}

impl Question for AlertOrder {
    const PATH: &'static str = "/api/takt/v1/alerts";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Support);
    type Answer = ();
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        _database: &Database,
        config: &AnswerConfig,
    ) -> Result<(), AnswerError> {
        match self {
            Self::Acknowledge {
                fingerprint,
                length,
                by,
                comment,
            } => {
                let matchers = labels_of(config, fingerprint)?;
                // The matchers are noted, not the fingerprint: the audit log is read when the alert is long gone.
                viewer.note_act(format!("acknowledge {matchers} for {length}"));
                silence(config, matchers, length, person(viewer, by), comment)
            }
            Self::Silence {
                matchers,
                length,
                by,
                comment,
            } => {
                let matchers = parse_matchers(matchers)
                    .map_err(|error| AnswerError::Usage(format!("matchers: {error}")))?;
                let matchers = Matchers(matchers);
                viewer.note_act(format!("silence {matchers} for {length}"));
                silence(config, matchers, length, person(viewer, by), comment)
            }
            Self::Close {
                fingerprint,
                by,
                comment,
            } => {
                let matchers = labels_of(config, fingerprint)?;
                viewer.note_act(format!("close {matchers}"));
                close(config, matchers, person(viewer, by), comment)
            }
            Self::Expire { id } => {
                let silence = words_of(config, id)?;
                viewer.note_act(format!("expire silence of {silence}"));
                expire(config, id)
            }
        }
    }
}

/// Returns the person who gives the order: the viewer, or for programs the name that they give.
fn person<'a>(viewer: &'a Viewer, given: &'a str) -> &'a str {
    viewer.user().unwrap_or(given)
}

fn over() -> AnswerError {
    AnswerError::Usage("This alert is not active any more.".to_owned())
}

/// Returns matchers that accept exactly the labels of an active alert.
pub(super) fn labels_of(config: &AnswerConfig, fingerprint: &str) -> Result<Matchers, AnswerError> {
    let fingerprint = fingerprint.to_owned();
    let labels = config
        .alerts
        .read(move |engine, now| {
            engine
                .router()
                .alerts()
                .iter()
                // Fingerprints are compared as text, which is what the page has.
                .find(|(known, alert)| known.to_string() == fingerprint && !alert.is_resolved(now))
                .map(|(_, alert)| alert.labels.clone())
        })?
        .ok_or_else(over)?;
    // Every label is matched exactly, so that no other alert is silenced with this one.
    let matchers = labels
        .iter()
        .map(|(name, value)| Matcher::new(name, MatchOp::Equal, value))
        .collect::<Result<_, _>>()
        .map_err(AnswerError::failed)?;
    Ok(Matchers(matchers))
}

pub(super) fn silence(
    config: &AnswerConfig,
    matchers: Matchers,
    length: &str,
    by: &str,
    comment: &str,
) -> Result<(), AnswerError> {
    let length = duration::parse(length)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| {
            AnswerError::Usage(format!(
                "'{length}' is not a duration such as 30m, 4h or 3d."
            ))
        })?;
    let (created_by, comment) = (by.to_owned(), comment.to_owned());
    let silenced = config.alerts.change(move |engine, now| {
        // An empty id asks the engine for a new silence.
        let wanted = Silence {
            id: String::new(),
            matchers: vec![matchers],
            starts_at: now,
            ends_at: now.plus(length),
            updated_at: now,
            created_by,
            comment,
            annotations: Default::default(),
        };
        let made = engine.silence(wanted, &new_silence_id(), now);
        split(made.map(|(_, batch)| batch))
    })?;
    silenced.map_err(AnswerError::usage)
}

fn close(
    config: &AnswerConfig,
    matchers: Matchers,
    by: &str,
    comment: &str,
) -> Result<(), AnswerError> {
    let closing = Closing {
        by: by.to_owned(),
        comment: comment.to_owned(),
    };
    let closed = config
        .alerts
        .change(move |engine, now| engine.close(&matchers, &closing, now))?;
    // Nothing was closed: the alert was resolved between the page and the click.
    if closed.is_empty() {
        return Err(over());
    }
    Ok(())
}

/// Returns the matchers of a silence; empty if there is none.
fn words_of(config: &AnswerConfig, id: &str) -> Result<String, AnswerError> {
    let id = id.to_owned();
    config.alerts.read(move |engine, _| {
        let known = engine.router().silences.get(&id);
        known.map_or_else(String::new, Silence::words)
    })
}

fn expire(config: &AnswerConfig, id: &str) -> Result<(), AnswerError> {
    let id = id.to_owned();
    let expired = config
        .alerts
        .change(move |engine, now| split(engine.expire_silence(&id, now)))?;
    expired.map_err(AnswerError::usage)
}

/// A refused change has nothing to store.
fn split(changed: Result<Batch, SilenceError>) -> (Result<(), SilenceError>, Batch) {
    match changed {
        Ok(batch) => (Ok(()), batch),
        Err(error) => (Err(error), Batch::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Privacy, Way};

    #[test]
    fn nobody_acts_in_anothers_name() {
        // A token is a program's, which names the person.
        let token = Viewer::new(Role::Admin, Way::Token, Privacy::Open);
        assert_eq!(person(&token, "alice"), "alice");
        let mallory = Viewer::new(Role::Support, Way::Session, Privacy::Open).with_user("mallory");
        assert_eq!(person(&mallory, "alice"), "mallory");
    }
}
