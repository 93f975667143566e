//! Address, sign-in and certificates of another system's HTTP API, as sections of `takt.toml` have
//! them.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use takt_alerts::notify::http::HttpOptions;
use takt_model::ConfigError;
use takt_model::shown::refuse_user;

/// The keys of a section.
#[derive(Debug, Clone, Copy)]
pub struct HttpAccess<'a> {
    /// File with a bearer token.
    pub bearer_token_file: Option<&'a Path>,
    /// User for basic authentication.
    pub username: Option<&'a str>,
    /// File with the user's password.
    pub password_file: Option<&'a Path>,
    /// File with certificate authorities.
    pub ca_file: Option<&'a Path>,
    /// Further headers.
    pub headers: Option<&'a BTreeMap<String, String>>,
    /// Time limit for a request.
    pub timeout: Duration,
}

/// Checks an address. `example` is one that would do.
pub fn check_url(key: &str, text: &str, example: &str) -> Result<(), ConfigError> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() {
        let expected = format!("an address such as {example}");
        return Err(ConfigError::new(key, expected, format!("{text:?}")));
    }
    // A password in the address would be logged with it.
    refuse_user(key, text, "set username and password_file instead")
}

impl HttpAccess<'_> {
    /// Checks that the keys fit together. `prefix` is what their names begin with.
    pub fn validate(&self, prefix: &str) -> Result<(), ConfigError> {
        if self.bearer_token_file.is_some() && self.username.is_some() {
            return Err(ConfigError::of_table(format!(
                "expected {prefix}bearer_token_file or {prefix}username, found both"
            )));
        }
        // A user without a password, or the other way round, would be sent as no sign-in at all.
        if self.username.is_some() != self.password_file.is_some() {
            return Err(ConfigError::of_table(format!(
                "expected {prefix}username and {prefix}password_file together, found one of them"
            )));
        }
        Ok(())
    }

    /// Settings of the HTTP client. Reads the files.
    pub fn options(&self) -> anyhow::Result<HttpOptions> {
        let read = |path: &Path| {
            fs::read_to_string(path)
                // Files written with an editor end with a line feed, which is no part of the secret.
                .map(|text| text.trim().to_owned())
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let authorization = match (self.bearer_token_file, self.username, self.password_file) {
            (Some(token), _, _) => Some(format!("Bearer {}", read(token)?)),
            (None, Some(user), Some(password)) => {
                let pair = format!("{user}:{}", read(password)?);
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
            _ => None,
        };

        let authorities = self.ca_file.map(read).transpose()?;
        let headers = self
            .headers
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(HttpOptions {
            authorization,
            headers,
            authorities: authorities.map(String::into_bytes),
            timeout: Some(self.timeout),
            ..HttpOptions::default()
        })
    }
}
