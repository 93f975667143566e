//! E-mail for alerts and reports: composes messages and hands them to an SMTP server.
//!
//! [`Mailer`] sends one prepared [`Mail`] to one address. Callers decide on recipients, content and
//! retries.

mod compose;
mod config;
mod error;
mod examine;
mod limit;
mod smtp;

pub use compose::{Attachment, Mail, is_address};
pub use config::{EmailConfig, TlsMode};
pub use error::MailError;
pub use examine::defect;
pub use smtp::{Mailer, MinTlsVersion, SmtpLogin, SmtpOptions};
