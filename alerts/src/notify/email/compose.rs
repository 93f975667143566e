//! A row of the outbox as a mail.

use super::Mail;
use crate::message::{Message, Status};
use crate::notify::{Wording, subject, text};
use crate::outbox::Row;

/// A channel that is one address.
#[derive(Debug, Clone, PartialEq)]
pub struct Email {
    /// The address.
    pub to: String,
    /// The part of Message-IDs behind the `@`.
    pub domain: String,
    /// The words that its settings ask for: `subject`, `html`, `text`.
    pub wording: Wording,
}

impl Email {
    /// The name of a row's mail: the same each time it is sent, so that a second copy can be known for one.
    pub fn message_id(&self, row: &Row) -> String {
        let address: String = self.to.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("takt.{}.{}.{address}@{}", row.created_at.0, row.id, self.domain)
    }

    /// The mail for a row. `thread` names the first mail of the group's episode, unless this is it.
    pub fn mail(&self, row: &Row, thread: Option<String>) -> Mail {
        let message = &row.message;
        let fingerprints: Vec<_> = message.alerts.iter().take(20).map(|alert| alert.fingerprint.to_string()).collect();
        let mut headers = vec![
            ("List-Id", format!("Takt alerts <alerts.{}>", self.domain)),
            ("X-GPU-Alert-Fingerprint", fingerprints.join(" ")),
        ];
        if message.status == Status::Firing && is_page(message) {
            headers.push(("Importance", "high".to_owned()));
        }
        let say = |name| self.wording.say(name, row);
        let (own_text, own_html) = (say("text"), say("html"));
        // A text of one's own beside our page would be two different mails in one.
        let html = own_html.or_else(|| own_text.is_none().then(|| html(message)));
        Mail {
            to: self.to.clone(),
            subject: say("subject").map_or_else(|| subject(message), |text| one_line(&text)),
            text: own_text.unwrap_or_else(|| format!("{}\n\n{}\n", text(message), message.external_url)),
            html,
            message_id: Some(self.message_id(row)),
            thread,
            headers,
            attachments: Vec::new(),
        }
    }
}

/// A header is one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_page(message: &Message) -> bool {
    message.alerts.iter().any(|alert| alert.labels.get("severity") == Some("critical"))
}

/// The text as a page: mail programs know little of HTML, so it is one column of paragraphs.
fn html(message: &Message) -> String {
    let (colour, state) = match message.status {
        Status::Firing => ("#b3261e", "firing"),
        Status::Resolved => ("#1b7f3b", "resolved"),
    };
    let words = escaped(&text(message));
    let paragraphs: Vec<_> =
        words.split("\n\n").map(|part| format!("<p>{}</p>", part.replace('\n', "<br>\n"))).collect();
    let (title, link) = (escaped(&subject(message)), escaped(&message.external_url));
    format!(
        "<!doctype html><html><body style=\"font:15px/1.45 sans-serif;color:#1a1a1a\">\n\
         <h2 style=\"font-size:18px;border-left:6px solid {colour};padding-left:10px\" title=\"{state}\">{title}</h2>\n\
         {}\n<p><a href=\"{link}\">{link}</a></p>\n</body></html>\n",
        paragraphs.join("\n")
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
