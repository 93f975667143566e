//! Composition: from a [`Mail`] to the bytes of a message.

use super::MailError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lettre::address::AddressError;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as FilePart, Body, Mailbox, MultiPart, SinglePart};

/// Longest text of a header, in bytes. Mail programs show far less.
const TEXT_MAX: usize = 2_000;

/// Longest word of a header that is written as it is, in bytes. Lines are folded between words, and
/// servers refuse lines of more than 998 bytes.
const WORD_MAX: usize = 70;

/// Bytes of text in an encoded word: with its frame and the longest header name, a line has at most
/// 78 characters.
const ENCODED_MAX: usize = 30;

/// Longest address with its name, in bytes.
const MAILBOX_MAX: usize = 500;

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

        // lettre encodes headers in its own way. These values contain texts of users, so they are folded and encoded
        // here.
        let own = mail
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let ours = [
            ("Subject", mail.subject.as_str()),
            ("Auto-Submitted", "auto-generated"),
        ];
        for (name, value) in ours.into_iter().chain(own) {
            let name = HeaderName::new_from_ascii(name.to_owned())
                .map_err(|error| failed(error.into()))?;
            builder = builder.raw_header(header(name, value));
        }

        let message = if mail.attachments.is_empty() {
            match &mail.html {
                Some(html) => builder.multipart(alternatives(mail, html)),
                None => builder.singlepart(SinglePart::plain(body(&mail.text))),
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
    MultiPart::alternative_plain_html(body(&mail.text), body(html))
}

fn with_attachments(mail: &Mail) -> Result<MultiPart, Box<dyn std::error::Error + Send + Sync>> {
    // A single part cannot stand beside attachments, so plain text gets a container of its own.
    let content = match &mail.html {
        Some(html) => alternatives(mail, html),
        None => MultiPart::mixed().singlepart(SinglePart::plain(body(&mail.text))),
    };

    let mut all = MultiPart::mixed().multipart(content);
    for file in &mail.attachments {
        let kind = ContentType::parse(&file.content_type)?;
        // Bytes are not changed, and a line feed alone must not reach a server: some take it for the
        // end of a line.
        let base64 = ContentTransferEncoding::Base64;
        let content =
            Body::new_with_encoding(file.content.clone(), base64).unwrap_or_else(Body::new);
        let part = FilePart::new(file.name.clone()).body(content, kind);
        all = all.singlepart(part);
    }

    Ok(all)
}

/// Returns whether mail can be sent to this address.
pub fn is_address(text: &str) -> bool {
    mailbox(text).is_ok()
}

/// The address in `text`.
///
/// # Errors
/// If the address is malformed or too long, or its name has control characters.
pub(crate) fn mailbox(text: &str) -> Result<Mailbox, MailError> {
    // A line break in a name would begin another header. The parser reads no text that is longer than any address.
    let is_plain = text.len() <= MAILBOX_MAX && !text.chars().any(char::is_control);
    let parsed = if is_plain {
        text.parse()
    } else {
        Err(AddressError::InvalidInput)
    };
    parsed.map_err(|source| MailError::Address {
        address: text.chars().take(MAILBOX_MAX).collect(),
        source,
    })
}

/// A header with this text, as mail programs show it: names of jobs and labels are in it.
fn header(name: HeaderName, text: &str) -> HeaderValue {
    let text = one_line(text);
    // A word that looks encoded would be shown decoded: as another text than ours.
    let is_plain = |word: &str| {
        word.len() <= WORD_MAX && !word.contains("=?") && word.bytes().all(|b| b.is_ascii_graphic())
    };
    if text.split(' ').all(is_plain) {
        return HeaderValue::new(name, text);
    }
    let encoded = encoded_words(&text);
    HeaderValue::dangerous_new_pre_encoded(name, text, encoded)
}

/// The text of a part, without control characters except line feeds and tabs: RFC 5321 forbids NUL,
/// and a carriage return alone.
fn body(text: &str) -> String {
    // CRLF first: otherwise each of them would become two line breaks.
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    let plain = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => ' ',
        c => c,
    };
    lines.chars().map(plain).collect()
}

/// The text as encoded words (RFC 2047), one a line.
fn encoded_words(text: &str) -> String {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        // A word holds whole characters (RFC 2047, section 5). Each round takes at least one, as a character has at
        // most 4 bytes.
        let (chunk, after) = rest.split_at(rest.floor_char_boundary(ENCODED_MAX));
        words.push(format!("=?utf-8?b?{}?=", BASE64_STANDARD.encode(chunk)));
        rest = after;
    }
    words.join("\r\n ")
}

/// The text in one line: a line break in a header would begin another header. Other control
/// characters and runs of spaces become a space too, and a long text is cut.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();

    let mut line = words.join(" ");
    if line.len() > TEXT_MAX {
        line.truncate(line.floor_char_boundary(TEXT_MAX));
        line.push('…');
    }
    line
}

/// A number for a Message-ID: unique, not secret.
fn random() -> u128 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let word = || u128::from(RandomState::new().build_hasher().finish());
    (word() << 64) | word()
}
