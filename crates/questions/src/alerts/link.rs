//! Acknowledging the alerts of a message by the link in it, without signing in.
//!
//! Reading the page of a link changes nothing: programs that scan mail and chat open links. The form of the page
//! acts, once. A link reaches the alerts of its message only, for a day, and no longer silence than a day.

use super::order::{labels_of, silence};
use crate::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;
use takt_access::{MessageLink, Need, Viewer, Way};
use takt_alerts::alert::alert_name;
use takt_alerts::duration;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::message::{MessageAlert, Status};
use takt_alerts::outbox::Row;
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Longest silence that a link makes.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Most characters of the name and the comment that the form may give.
const GIVEN_MAX: usize = 200;

/// Asks what a link stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAlertsQuestion {
    /// The link's secret part.
    pub link: String,
}

/// What became of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It can be used.
    Open,
    /// It was used.
    Used,
    /// It is too old.
    Expired,
    /// None of its alerts is active any more.
    Over,
}

/// The alerts of a link's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAlerts {
    /// What became of the link.
    pub state: LinkState,
    /// Where the message was sent: `Slack link sent to #ops`.
    pub place: String,
    /// First instant at which the link is invalid.
    pub until: UnixTime,
    /// The alerts that fired, as the message named them.
    pub alerts: Vec<LinkedAlert>,
}

/// One alert of a link's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAlert {
    /// Name of the alert.
    pub name: String,
    /// Summary in the message.
    pub summary: String,
    /// Time since which its condition holds.
    pub since: UnixTime,
    /// Whether it is active.
    pub is_active: bool,
}

impl Question for LinkedAlertsQuestion {
    const PATH: &'static str = "/acknowledge";
    const NEED: Need = Need::Nothing;
    type Answer = LinkedAlerts;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<LinkedAlerts, AnswerError> {
        let known = KnownLink::of(&self.link, database, config)?;
        let alerts = known.alerts.iter().map(|alert| LinkedAlert {
            name: alert_name(&alert.labels).into_owned(),
            summary: alert
                .annotations
                .get("summary")
                .cloned()
                .unwrap_or_default(),
            since: alert.since().whole_seconds(),
            is_active: known.active.contains(&alert.fingerprint),
        });
        Ok(LinkedAlerts {
            state: known.state,
            place: known.link.place.clone(),
            until: UnixTime(known.link.until),
            alerts: alerts.collect(),
        })
    }
}

/// Acknowledges the alerts of a link's message that are active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeByLink {
    /// The link's secret part.
    pub link: String,
    /// Duration, such as `4h`; at most a day.
    pub length: String,
    /// Name that the person gives; empty if none.
    pub name: String,
    /// Reason; empty if none is given.
    pub comment: String,
}

impl Question for AcknowledgeByLink {
    const PATH: &'static str = "/acknowledge";
    const NEED: Need = Need::Signed;
    /// Number of alerts that were acknowledged.
    type Answer = usize;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<usize, AnswerError> {
        let known = KnownLink::of(&self.link, database, config)?;
        match known.state {
            LinkState::Open => {}
            LinkState::Used => return Err(refused("This link was used already.")),
            LinkState::Expired => return Err(refused("This link is too old.")),
            LinkState::Over => return Err(refused("None of these alerts is active any more.")),
        }

        let is_allowed = |length: &Duration| !length.is_zero() && *length <= LONGEST;
        if duration::parse(&self.length).filter(is_allowed).is_none() {
            return Err(refused(
                "A link acknowledges for at most a day, such as 4h.",
            ));
        }

        // First the link, then the silences: of two requests at once, one acts.
        let now = jiff::Timestamp::now().into();
        let until = UnixTime(known.link.until);
        if !Records::of(database).use_link(known.link.message, until, now)? {
            return Err(refused("This link was used already."));
        }

        let by = person(viewer, &known.link, &self.name);
        let comment = match shortened(&self.comment) {
            comment if comment.is_empty() => "acknowledged".to_owned(),
            comment => comment,
        };
        let mut acknowledged = 0;
        for fingerprint in &known.active {
            // One that has just ended needs no silence.
            let Ok(matchers) = labels_of(config, &fingerprint.to_string()) else {
                continue;
            };
            silence(config, matchers, &self.length, &by, &comment)?;
            acknowledged += 1;
        }

        let names: BTreeSet<Cow<'_, str>> = known.names().collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        viewer.note_act(format!("acknowledge {} as {by}", names.join(", ")));
        tracing::info!(by, acknowledged, "alerts acknowledged by a link");
        Ok(acknowledged)
    }
}

/// Who acknowledged: the signed-in user, or the name that was given, and always the link, because it proves nothing
/// about a person.
fn person(viewer: &Viewer, link: &MessageLink, given: &str) -> String {
    let place = &link.place;
    let signed_in = viewer.user().filter(|_| viewer.way() == Way::Session);
    // A token is a program's, so only a session proves a person.
    match (signed_in, shortened(given)) {
        (Some(user), _) => format!("{user}, by a {place}"),
        (None, given) if given.is_empty() => place.clone(),
        (None, given) => format!("{place}, who gave the name {given:?}"),
    }
}

fn shortened(text: &str) -> String {
    // The text goes into the log and into the comment of a silence.
    text.trim().chars().take(GIVEN_MAX).collect()
}

fn refused(text: &str) -> AnswerError {
    AnswerError::Usage(text.to_owned())
}

/// A link that Takt has signed, and what is known of its message.
struct KnownLink {
    link: MessageLink,
    state: LinkState,
    /// The alerts that fired in the message.
    alerts: Vec<MessageAlert>,
    /// Those of them that are active now.
    active: Vec<Fingerprint>,
}

impl KnownLink {
    /// Names of the alerts that are active.
    fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let active = |alert: &&MessageAlert| self.active.contains(&alert.fingerprint);
        let alerts = self.alerts.iter().filter(active);
        alerts.map(|alert| alert_name(&alert.labels))
    }

    fn of(text: &str, database: &Database, config: &AnswerConfig) -> Result<Self, AnswerError> {
        // The switch comes first: a link that is off says nothing about its message.
        if !config.alerts.accepts_links() {
            return Err(refused(
                "Links in messages are switched off (alerts.acknowledge_links).",
            ));
        }
        let link = (config.alerts.link(text))
            .ok_or_else(|| refused("This link is incomplete, or not of this server."))?;

        let records = Records::of(database);
        let row = records
            .stored_message(link.message)?
            .and_then(|body| serde_json::from_str::<Row>(&body).ok());
        // Resolved alerts of the message need no acknowledgement.
        let mut alerts = row.map_or_else(Vec::new, |row| row.message.alerts);
        alerts.retain(|alert| alert.status == Status::Firing);
        let wanted: Vec<Fingerprint> = alerts.iter().map(|alert| alert.fingerprint).collect();

        let active = config.alerts.read(move |engine, now| {
            let book = engine.router().alerts();
            let is_active = |print: &Fingerprint| {
                book.get(*print)
                    .is_some_and(|alert| !alert.is_resolved(now))
            };
            wanted.into_iter().filter(is_active).collect::<Vec<_>>()
        })?;

        let state = if UnixTime::from(jiff::Timestamp::now()).0 >= link.until {
            LinkState::Expired
        } else if records.is_link_used(link.message)? {
            LinkState::Used
        } else if active.is_empty() {
            LinkState::Over
        } else {
            LinkState::Open
        };
        Ok(Self {
            link,
            state,
            alerts,
            active,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Privacy, Role};

    #[test]
    fn a_given_name_never_looks_like_a_known_one() {
        let link = MessageLink {
            message: 1,
            until: 2,
            place: "Slack link sent to #ops".to_owned(),
        };
        let stranger = Viewer::new(Role::Anonymous, Way::Unknown, Privacy::Open);
        // A stranger's name of blanks is no name.
        assert_eq!(person(&stranger, &link, " "), "Slack link sent to #ops");
        assert_eq!(
            person(&stranger, &link, "alice"),
            "Slack link sent to #ops, who gave the name \"alice\""
        );

        let alice = Viewer::new(Role::User, Way::Session, Privacy::Open).with_user("alice");
        assert_eq!(
            person(&alice, &link, "bob"),
            "alice, by a Slack link sent to #ops"
        );
    }
}
