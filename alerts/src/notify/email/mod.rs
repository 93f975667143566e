//! E-mail over SMTP.
//!
//! [`Mailer`] sends one prepared [`Mail`]; [`Email`] makes one of a row of the outbox. Reports use the mailer too.

mod compose;
mod config;
mod mailer;

pub use compose::Email;
pub use config::{EmailConfig, TlsMode};
pub use mailer::{Attachment, Mail, MailError, Mailer};
