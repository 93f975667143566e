//! Composition: from a [`Mail`] to the bytes of a message.

use super::MailError;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as FilePart, Mailbox, MultiPart, SinglePart};

/// A mail to one address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mail {
    /// Recipient: `ann@lab.example` or `Ann <ann@lab.example>`.
    pub to: String,
    /// The subject. Line breaks become spaces.
    pub subject: String,
    /// The plain text.
    pub text: String,
    /// The same content as HTML.
    pub html: Option<String>,
    /// Message-ID without angle brackets; generated if left out. A second attempt keeps the
    /// Message-ID of the first, so that mail programs can drop the duplicate.
    pub message_id: Option<String>,
    /// Message-ID of the first mail of the thread.
    pub thread: Option<String>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// Attached files.
    pub attachments: Vec<Attachment>,
}

/// A file attached to a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The file's name.
    pub name: String,
    /// Media type, such as `text/csv; charset=utf-8`.
    pub content_type: String,
    /// The file's bytes.
    pub content: Vec<u8>,
}

/// Sender addresses that all mails of one [`super::Mailer`] share.
#[derive(Debug)]
pub(crate) struct SenderAddresses {
    /// `From`.
    pub from: Mailbox,
    /// `Reply-To`.
    pub reply_to: Option<Mailbox>,
}

impl SenderAddresses {
    /// The bytes of a mail. Bodies that are not ASCII become quoted-printable or base64, since
    /// servers need not support 8BITMIME.
    ///
    /// # Errors
    /// If a header name or a media type is invalid.
    pub fn compose(&self, mail: &Mail, to: Mailbox) -> Result<Vec<u8>, MailError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| MailError::Compose {
            to: mail.to.clone(),
            source,
        };
        let id = mail
            .message_id
            .clone()
            .unwrap_or_else(|| format!("takt.{:x}@{}", random(), self.from.email.domain()));
        let mut builder = lettre::Message::builder()
            .from(self.from.clone())
            .to(to)
            .subject(one_line(&mail.subject))
            .date_now()
            .message_id(Some(format!("<{id}>")));
        if let Some(address) = &self.reply_to {
            builder = builder.reply_to(address.clone());
        }
        if let Some(thread) = &mail.thread {
            builder = builder
                .in_reply_to(format!("<{thread}>"))
                .references(format!("<{thread}>"));
        }
        let own = mail
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        for (name, value) in [("Auto-Submitted", "auto-generated")]
            .into_iter()
            .chain(own)
        {
            let name = HeaderName::new_from_ascii(name.to_owned())
                .map_err(|error| failed(error.into()))?;
            builder = builder.raw_header(HeaderValue::new(name, one_line(value)));
        }
        let message = if mail.attachments.is_empty() {
            match &mail.html {
                Some(html) => builder.multipart(alternatives(mail, html)),
                None => builder.singlepart(SinglePart::plain(mail.text.clone())),
            }
        } else {
            builder.multipart(with_attachments(mail).map_err(failed)?)
        };
        message
            .map(|message| message.formatted())
            .map_err(|error| failed(error.into()))
    }
}

fn alternatives(mail: &Mail, html: &str) -> MultiPart {
    MultiPart::alternative_plain_html(mail.text.clone(), html.to_owned())
}

fn with_attachments(mail: &Mail) -> Result<MultiPart, Box<dyn std::error::Error + Send + Sync>> {
    let content = match &mail.html {
        Some(html) => alternatives(mail, html),
        None => MultiPart::mixed().singlepart(SinglePart::plain(mail.text.clone())),
    };
    let mut all = MultiPart::mixed().multipart(content);
    for file in &mail.attachments {
        let kind = ContentType::parse(&file.content_type)?;
        let part = FilePart::new(file.name.clone()).body(file.content.clone(), kind);
        all = all.singlepart(part);
    }
    Ok(all)
}

/// The address in `text`.
///
/// # Errors
/// If the address is malformed.
pub(crate) fn mailbox(text: &str) -> Result<Mailbox, MailError> {
    text.parse().map_err(|source| MailError::Address {
        address: text.to_owned(),
        source,
    })
}

/// The text without line breaks: a line break in a header would begin another header.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A number for a Message-ID: unique, not secret.
fn random() -> u128 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let word = || u128::from(RandomState::new().build_hasher().finish());
    (word() << 64) | word()
}
