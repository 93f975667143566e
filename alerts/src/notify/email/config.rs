//! The `[email]` table of `takt.toml`: which server takes mail, and who it comes from.

use super::MailError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How mail is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmailConfig {
    /// The mail server, `HOST` or `HOST:PORT`. Nothing: no mail is sent.
    pub server: String,
    /// `starttls` (never without encryption), `tls` (encrypted from the first byte) or `none` (for a relay on this
    /// machine). Left out: `tls` on port 465, else `starttls`. The port left out: 587, 465 or 25, as this says.
    pub tls: Option<TlsMode>,
    /// The sender, `takt@lab.example` or `Takt <takt@lab.example>`.
    pub from: String,
    /// Where answers go to; to the sender if left out.
    pub reply_to: Option<String>,
    /// User to log in as; no login if left out.
    pub username: Option<String>,
    /// File with that user's password (one line). Not in the data directory.
    pub password_file: Option<PathBuf>,
    /// PEM file with certificates of authorities to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Seconds after which a server that does not answer is given up. Relays that scan mail need most of a minute.
    pub timeout_seconds: u64,
}

/// How a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// It begins in clear text, and must become encrypted.
    StartTls,
    /// From the first byte.
    Tls,
    /// Not at all.
    None,
}

impl Default for EmailConfig {
    fn default() -> Self {
        Self {
            server: String::new(),
            tls: None,
            from: String::new(),
            reply_to: None,
            username: None,
            password_file: None,
            ca_file: None,
            timeout_seconds: 90,
        }
    }
}

impl EmailConfig {
    /// Whether there is a server to send mail with.
    pub fn is_set(&self) -> bool {
        !self.server.is_empty()
    }

    /// The server's name, its port, and how the connection is encrypted.
    ///
    /// # Errors
    /// Where `server` is no `HOST` or `HOST:PORT`.
    pub fn endpoint(&self) -> Result<(String, u16, TlsMode), MailError> {
        let wrong = || MailError::Config {
            key: "server",
            expected: "HOST or HOST:PORT",
            found: self.server.clone(),
        };
        let (host, port) = match self.server.rsplit_once(':') {
            // An address such as [::1] has colons of its own.
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| wrong())?))
            }
            _ => (self.server.as_str(), None),
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_name = !host.is_empty()
            && (bare.is_some() || !host.contains(':'))
            && !host.contains(|c: char| c.is_whitespace() || "/@".contains(c));
        if !is_name || port == Some(0) {
            return Err(wrong());
        }
        let tls = self.tls.unwrap_or(if port == Some(465) {
            TlsMode::Tls
        } else {
            TlsMode::StartTls
        });
        let usual = match tls {
            TlsMode::StartTls => 587,
            TlsMode::Tls => 465,
            TlsMode::None => 25,
        };
        Ok((host.to_owned(), port.unwrap_or(usual), tls))
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Checks what no type can say; files are not opened.
    ///
    /// # Errors
    /// The first key whose value cannot be right.
    pub fn validate(&self) -> Result<(), MailError> {
        let wrong = |key, expected, found: &str| {
            Err(MailError::Config {
                key,
                expected,
                found: found.to_owned(),
            })
        };
        if !self.is_set() {
            return match *self == Self::default() {
                true => Ok(()),
                false => wrong("server", "the mail server, HOST or HOST:PORT", "nothing"),
            };
        }
        self.endpoint()?;
        if self.from.parse::<lettre::message::Mailbox>().is_err() {
            return wrong(
                "from",
                "an address such as takt@lab.example",
                &format!("{:?}", self.from),
            );
        }
        if let Some(address) = self
            .reply_to
            .as_ref()
            .filter(|text| text.parse::<lettre::message::Mailbox>().is_err())
        {
            return wrong(
                "reply_to",
                "an address such as ops@lab.example",
                &format!("{address:?}"),
            );
        }
        match (&self.username, &self.password_file) {
            (Some(_), None) => {
                return wrong(
                    "password_file",
                    "the file with the password of `username`",
                    "nothing",
                );
            }
            (None, Some(_)) => {
                return wrong(
                    "username",
                    "the user whose password `password_file` holds",
                    "nothing",
                );
            }
            _ => {}
        }
        if !(5..=600).contains(&self.timeout_seconds) {
            return wrong(
                "timeout_seconds",
                "5 to 600",
                &self.timeout_seconds.to_string(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_and_the_encryption_follow_from_each_other() {
        for (server, tls, expected) in [
            ("mail", None, Some(("mail", 587, TlsMode::StartTls))),
            ("mail:465", None, Some(("mail", 465, TlsMode::Tls))),
            ("mail:25", None, Some(("mail", 25, TlsMode::StartTls))),
            (
                "mail",
                Some(TlsMode::Tls),
                Some(("mail", 465, TlsMode::Tls)),
            ),
            (
                "localhost",
                Some(TlsMode::None),
                Some(("localhost", 25, TlsMode::None)),
            ),
            (
                "[::1]:2525",
                Some(TlsMode::None),
                Some(("::1", 2525, TlsMode::None)),
            ),
            ("[::1]", None, Some(("::1", 587, TlsMode::StartTls))),
            ("smtp://mail", None, None),
            ("mail:", None, None),
            ("mail:25:26", None, None),
            ("mail:0", None, None),
            ("mail:99999", None, None),
            ("a b", None, None),
        ] {
            let config = EmailConfig {
                server: server.to_owned(),
                tls,
                ..EmailConfig::default()
            };
            let found = config.endpoint().ok();
            let found = found
                .as_ref()
                .map(|(host, port, tls)| (host.as_str(), *port, *tls));
            assert_eq!(found, expected, "{server} {tls:?}");
        }
    }
}
