//! The `[email]` table of `takt.toml`: mail server, login and sender.

use crate::compose::mailbox;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use takt_model::ConfigError;

/// Mail server, login and sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmailConfig {
    /// The mail server, `HOST` or `HOST:PORT`. Empty: no mail is sent.
    pub server: String,
    /// `starttls` (encryption required), `tls` (encrypted from the first byte) or `none` (for a
    /// relay without encryption). Default: `tls` on port 465, else `starttls`. The default port is
    /// 587 for `starttls`, 465 for `tls` and 25 for `none`.
    pub tls: Option<TlsMode>,
    /// The sender, `takt@lab.example` or `Takt <takt@lab.example>`.
    pub from: String,
    /// Address for replies; the sender's if left out.
    pub reply_to: Option<String>,
    /// User to log in as; without it Takt does not log in.
    pub username: Option<String>,
    /// File with that user's password (one line). Not in the data directory.
    pub password_file: Option<PathBuf>,
    /// PEM file with certificate authorities to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Time limit of one mail, in seconds. Relays that scan mail need most of a minute.
    pub timeout_seconds: u64,
}

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// Starts in clear text and must switch to TLS before anything else is sent.
    StartTls,
    /// Encrypted from the first byte.
    Tls,
    /// Never encrypted.
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
    /// Whether a mail server is configured.
    pub fn is_set(&self) -> bool {
        !self.server.is_empty()
    }

    /// Host name, port and encryption of the server.
    ///
    /// # Errors
    /// If `server` is neither `HOST` nor `HOST:PORT`.
    pub fn endpoint(&self) -> Result<(String, u16, TlsMode), ConfigError> {
        let wrong = || ConfigError::new("server", "HOST or HOST:PORT", &self.server);
        // `mail:` has an empty port, which no number matches.
        let (host, port) = match self.server.rsplit_once(':') {
            // An IPv6 address such as [::1] contains colons.
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| wrong())?))
            }
            _ => (self.server.as_str(), None),
        };

        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);

        // Two colons outside of brackets are an IPv6 address whose end would be taken for the port.
        let is_name = !host.is_empty()
            && (bare.is_some() || !host.contains(':'))
            && !host.contains(|c: char| c.is_whitespace() || "/@".contains(c));
        if !is_name || port == Some(0) {
            return Err(wrong());
        }

        // Only port 465 expects TLS from the first byte (RFC 8314). On any other, STARTTLS is the safe guess.
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

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Checks ranges and references between keys; opens no files.
    ///
    /// # Errors
    /// At the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong =
            |key: &str, expected: &str, found: &str| Err(ConfigError::new(key, expected, found));

        // Without an `[email]` table, no mail is sent, and the other keys are not needed.
        if *self == Self::default() {
            return Ok(());
        }
        if !self.is_set() {
            return wrong("server", "the mail server, HOST or HOST:PORT", "nothing");
        }
        self.endpoint()?;

        let is_address = |text: &str| mailbox(text).is_ok();
        if !is_address(&self.from) {
            let expected = "an address such as takt@lab.example";
            return wrong("from", expected, &format!("{:?}", self.from));
        }
        if let Some(address) = &self.reply_to
            && !is_address(address)
        {
            let expected = "an address such as ops@lab.example";
            return wrong("reply_to", expected, &format!("{address:?}"));
        }

        // One key without the other would log in with nothing, or read a file in vain.
        match (&self.username, &self.password_file) {
            (Some(_), None) => {
                let expected = "the file with the password of `username`";
                return wrong("password_file", expected, "nothing");
            }
            (None, Some(_)) => {
                let expected = "the user whose password `password_file` holds";
                return wrong("username", expected, "nothing");
            }
            _ => {}
        }

        if !(5..=600).contains(&self.timeout_seconds) {
            let found = self.timeout_seconds.to_string();
            return wrong("timeout_seconds", "5 to 600", &found);
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
            // A URL, and ports that are missing, doubled, zero or too large.
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
