//! E-mail to fixed addresses. [`takt_mail`] composes and sends; this module reads the settings.

mod alert_mail;
mod settings;

pub use alert_mail::Email;
pub(super) use settings::{WORDING_KEYS, check_port, check_tls};

use super::channels::ChannelContext;
use super::{ChannelPlace, Notifier, NotifierKind};
use crate::outbox::{Outcome, Row};
use crate::yaml::{Mistake, Node};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use takt_mail::Mailer;

/// `email_configs`.
pub(super) const KIND: NotifierKind = NotifierKind {
    name: "email",
    config_key: "email_configs",
    sends_resolved: false,
    example: "{to: ops@lab.example, from: takt@lab.example, smarthost: '{server}', \
              require_tls: false}",
    split,
    build,
};

/// One address and the server that takes mail for it.
#[derive(Debug)]
struct EmailNotifier {
    email: Email,
    mailer: Arc<Mailer>,
}

impl Notifier for EmailNotifier {
    fn send<'a>(&'a self, row: &'a Row, thread: Option<&'a str>) -> BoxFuture<'a, Outcome> {
        Box::pin(send(&self.email, &self.mailer, row, thread))
    }

    fn place(&self, _row: &Row) -> Option<ChannelPlace> {
        Some(ChannelPlace {
            service: "mail",
            name: Some(self.email.to.to_string()),
        })
    }
}

/// Sends a row as mail. The first mail of a thread returns its Message-ID as the thread's name.
pub(super) async fn send(
    email: &Email,
    mailer: &Mailer,
    row: &Row,
    thread: Option<&str>,
) -> Outcome {
    match mailer.send(&email.mail(row, thread)).await {
        // The first mail names the thread, so that later ones refer to it.
        Ok(()) if thread.is_none() => Outcome::Sent(Some(email.message_id(row))),
        Ok(()) => Outcome::Sent(None),
        Err(error) if error.is_permanent() => Outcome::GiveUp {
            error: error.in_full(),
        },
        Err(error) => Outcome::TryAgain {
            after: None,
            error: error.in_full(),
        },
    }
}

/// A list of addresses becomes one channel for each address: one refused address must not keep the
/// mail from the others.
fn split(settings: &Node) -> Vec<Node> {
    match settings.get("to").map(Node::text) {
        Some(Ok(to)) => to
            .split(',')
            .map(|one| settings.with_text("to", one.trim()))
            .collect(),
        _ => vec![settings.clone()],
    }
}

fn build(settings: &Node, context: &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake> {
    let (email, mailer) = settings::read(settings, context)?;
    Ok(Box::new(EmailNotifier { email, mailer }))
}
