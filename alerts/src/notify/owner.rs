//! E-mail to the owner of the job that an alert is about.

use super::channels::ChannelContext;
use super::email::{self, Email, WORDING_KEYS};
use super::{Notifier, NotifierKind, Wording, no_split};
use crate::outbox::{Outcome, Row};
use crate::yaml::{Mistake, Node};
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use takt_mail::Mailer;

/// The annotation with what the owner should do, where `action` is for operators.
pub const OWNER_ACTION: &str = "owner_action";

/// The label with the name of the job's owner.
const USER_LABEL: &str = "user";

const KEYS: &[&str] = &["send_resolved", "html", "text"];

/// `owner_configs`.
pub(super) const KIND: NotifierKind = NotifierKind {
    name: "owner",
    config_key: "owner_configs",
    sends_resolved: false,
    example: "{}",
    split: no_split,
    build,
};

fn build(settings: &Node, context: &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake> {
    settings.fields(KEYS)?;
    let mailer = context.mailer(settings)?;
    Ok(Box::new(OwnerNotifier {
        addresses: context.owners.clone(),
        domain: mailer.domain().to_owned(),
        wording: Wording::read(&context.templates, settings, WORDING_KEYS),
        mailer,
    }))
}

/// Returns the e-mail address of a user.
type AddressOf = dyn Fn(&str) -> Option<String> + Send + Sync;

/// E-mail addresses of users.
#[derive(Clone)]
pub struct Addresses(Arc<AddressOf>);

impl Addresses {
    /// Addresses from this function.
    pub fn new(address_of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(address_of))
    }

    /// No user has an address.
    pub fn none() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Addresses")
    }
}

#[derive(Debug)]
struct OwnerNotifier {
    addresses: Addresses,
    domain: String,
    wording: Wording,
    mailer: Arc<Mailer>,
}

impl OwnerNotifier {
    /// The mail settings for the user that all alerts of a row name.
    ///
    /// # Errors
    /// If the alerts name no user, several users, or one without an address.
    fn email(&self, row: &Row) -> Result<Email, String> {
        // A mail about alerts of several users would show each the jobs of the others.
        let user = row
            .message
            .common_labels
            .get(USER_LABEL)
            .ok_or("the alerts name no one user")?;

        let to = (self.addresses.0)(user)
            .ok_or_else(|| format!("no address is known for the user {user}"))?;
        Ok(Email {
            to,
            domain: self.domain.clone(),
            wording: self.wording.clone(),
            is_threaded: true,
        })
    }

    async fn send_to_owner(&self, row: &Row, thread: Option<&str>) -> Outcome {
        let email = match self.email(row) {
            Ok(email) => email,
            Err(error) => return Outcome::NoRecipient { error },
        };

        let row = &for_owner(row);
        match email::send(&email, &self.mailer, row, thread).await {
            // A user's broken address is no reason to notify operators instead.
            Outcome::GiveUp { error } => Outcome::NoRecipient { error },
            outcome => outcome,
        }
    }
}

/// The row with the owner's instructions in place of the operators'.
fn for_owner(row: &Row) -> Row {
    let mut row = row.clone();
    for alert in &mut row.message.alerts {
        if let Some(action) = alert.annotations.remove(OWNER_ACTION) {
            alert.annotations.insert("action".to_owned(), action);
        }
    }

    row.message = row.message.arranged();
    row
}

impl Notifier for OwnerNotifier {
    fn send<'a>(&'a self, row: &'a Row, thread: Option<&'a str>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_to_owner(row, thread))
    }

    /// Owners get messages about their own jobs only.
    fn is_fallback(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[test]
    fn owners_get_instructions_of_their_own() {
        let mut row = suite::row(2, "memory error");
        for alert in &mut row.message.alerts {
            let text = "check the results".to_owned();
            alert.annotations.insert(OWNER_ACTION.to_owned(), text);
        }

        let message = for_owner(&row).message;
        assert_eq!(message.common_annotations["action"], "check the results");
        assert!(!message.common_annotations.contains_key(OWNER_ACTION));
        assert_eq!(row.message.alerts[0].annotations["action"], "drain");
    }
}
