//! The `[alerts]` table of `takt.toml`.

use crate::notify::slack::SLACK_API;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::shown::refuse_user;

/// Alert rules and receivers. The keys up to `ntfy_token_file` are the short form: one receiver
/// that gets everything; `alertmanager_file` is the long form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsConfig {
    /// Whether rules are evaluated and messages sent.
    pub enabled: bool,
    /// Addresses that get mail, through the server of `[email]`.
    pub email_to: Vec<String>,
    /// Name or id of the Slack channel that a bot (`slack_token_file`) writes to.
    pub slack_channel: Option<String>,
    /// File with the bot's token (`xoxb-…`, scope chat:write). Not in the data directory.
    pub slack_token_file: Option<PathBuf>,
    /// File with the URL of an incoming webhook of Slack; messages have no threads.
    pub slack_webhook_file: Option<PathBuf>,
    /// URL of Slack's Web API.
    pub slack_api_url: String,
    /// Whether the owner of a job gets mail about faults of the job: XIDs that it caused, too
    /// little memory, a GPU that failed under it. Needs `[email]`, and `domain` or `addresses` in
    /// `[reports]`.
    pub tell_owners: bool,
    /// URL that gets Alertmanager's webhook (version 4).
    pub webhook_url: Option<String>,
    /// Topic of an ntfy server.
    pub ntfy_topic: Option<String>,
    /// URL of the ntfy server.
    pub ntfy_url: String,
    /// File with the topic's access token.
    pub ntfy_token_file: Option<PathBuf>,
    /// An Alertmanager configuration (`alertmanager.yml`), instead of the short form.
    pub alertmanager_file: Option<PathBuf>,
    /// Whether the rules that Takt ships are used.
    pub shipped_rules: bool,
    /// Thresholds of the shipped rules to override: `{ nfs_slow_seconds = 0.5 }`. Their names are
    /// in `dashboards/rules/thresholds.rules.yml`.
    pub thresholds: BTreeMap<String, f64>,
    /// Folders with further rule files: `*.yml` of Prometheus, `*.events.yml` for events. A file
    /// with the name of a shipped one replaces it.
    pub rule_dirs: Vec<PathBuf>,
    /// Seconds between two evaluations of a group of rules without an interval of its own.
    pub interval_seconds: u64,
    /// Alerts that programs may have posted to `/api/v2/alerts` and that are not over; one sender can
    /// have three quarters of them. The texts of all may have 4 KiB for each. Further ones are
    /// refused with 429.
    pub posted_max: usize,
    /// Severity whose alerts are sent at once, without waiting for others of their group.
    pub page_severity: String,
    /// URL of this server for links in messages. Default: `auth.external_url`, else its listen
    /// address; this machine's name if it listens on all addresses.
    pub external_url: Option<String>,
    /// Whether messages of Slack, ntfy and mail have a link that acknowledges their alerts, without
    /// signing in: signed, for one use within a day (docs/alerts.md).
    pub acknowledge_links: bool,
    /// URL that is requested while alerting works, such as a check of healthchecks.io, which
    /// notices when Takt is gone. The requests stop while a message has been undelivered for longer
    /// than `patience_seconds`.
    pub heartbeat_url: Option<String>,
    /// Seconds between two heartbeats.
    pub heartbeat_seconds: u64,
    /// Seconds that a message may be undelivered, or a rule fail, before that is an alert of its
    /// own and an undelivered message stops the heartbeat.
    pub patience_seconds: u64,
}

/// Default of `ntfy_url`.
const DEFAULT_NTFY_URL: &str = "https://ntfy.sh";

impl Default for AlertsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            email_to: Vec::new(),
            slack_channel: None,
            slack_token_file: None,
            slack_webhook_file: None,
            slack_api_url: SLACK_API.to_owned(),
            tell_owners: true,
            webhook_url: None,
            ntfy_topic: None,
            ntfy_url: DEFAULT_NTFY_URL.to_owned(),
            ntfy_token_file: None,
            alertmanager_file: None,
            shipped_rules: true,
            thresholds: BTreeMap::new(),
            rule_dirs: Vec::new(),
            interval_seconds: 15,
            posted_max: 10_000,
            page_severity: "critical".to_owned(),
            external_url: None,
            acknowledge_links: true,
            heartbeat_url: None,
            heartbeat_seconds: 60,
            patience_seconds: 300,
        }
    }
}

impl AlertsConfig {
    /// Checks ranges and references between keys; opens no files. `has_email`: `[email]` names a
    /// server.
    ///
    /// # Errors
    /// At the first key with an invalid value.
    pub fn validate(&self, has_email: bool) -> Result<(), ConfigError> {
        let wrong =
            |key: &str, expected: &str, found: &str| Err(ConfigError::new(key, expected, found));

        if self.alertmanager_file.is_some() && self.has_short_form() {
            let expected = "either this file or the keys of single channels";
            return wrong("alertmanager_file", expected, "both");
        }

        if !self.email_to.is_empty() && !has_email {
            let expected = "`server` and `from` in [email]";
            return wrong("email_to", expected, "no mail server");
        }
        if let Some(address) = self.email_to.iter().find(|address| !address.contains('@')) {
            let expected = "addresses such as ops@lab.example";
            return wrong("email_to", expected, &format!("{address:?}"));
        }

        // A bot needs both; one alone would leave a channel without messages.
        match (&self.slack_channel, &self.slack_token_file) {
            (Some(_), None) => {
                let expected = "the file with the token of a bot";
                return wrong("slack_token_file", expected, "nothing");
            }
            (None, Some(_)) => {
                let expected = "the channel that the bot writes to";
                return wrong("slack_channel", expected, "nothing");
            }
            _ => {}
        }

        if let Some(url) = &self.slack_webhook_file
            && url.to_string_lossy().contains("://")
        {
            let expected = "the path of a file that contains the URL";
            return wrong("slack_webhook_file", expected, "the URL itself");
        }

        if self.ntfy_token_file.is_some() && self.ntfy_topic.is_none() {
            return wrong("ntfy_topic", "the topic that the token is for", "nothing");
        }
        if self.ntfy_url != DEFAULT_NTFY_URL && self.ntfy_topic.is_none() {
            return wrong("ntfy_topic", "the topic of ntfy_url", "nothing");
        }

        let urls = [
            ("webhook_url", self.webhook_url.as_deref()),
            ("heartbeat_url", self.heartbeat_url.as_deref()),
            ("external_url", self.external_url.as_deref()),
            ("slack_api_url", Some(self.slack_api_url.as_str())),
            ("ntfy_url", Some(self.ntfy_url.as_str())),
        ];
        for (key, url) in urls {
            if let Some(url) = url
                && !url.starts_with("http://")
                && !url.starts_with("https://")
            {
                let expected = "an address that begins with http:// or https://";
                return wrong(key, expected, &format!("{url:?}"));
            }
        }

        if let Some(url) = &self.external_url {
            refuse_user(
                "external_url",
                url,
                "links of messages contain this address",
            )?;
        }

        for (key, number, range) in [
            ("interval_seconds", self.interval_seconds, 1..=3600),
            ("heartbeat_seconds", self.heartbeat_seconds, 5..=86_400),
            ("patience_seconds", self.patience_seconds, 5..=86_400),
            ("posted_max", self.posted_max as u64, 4..=1_000_000),
        ] {
            if !range.contains(&number) {
                let expected = format!("{} to {}", range.start(), range.end());
                return wrong(key, &expected, &number.to_string());
            }
        }
        Ok(())
    }

    /// Checks that no file of a channel's secret is empty: it would be named by the key of the long form.
    ///
    /// # Errors
    /// At the first empty file.
    pub fn check_secrets(&self) -> Result<(), ConfigError> {
        let files = [
            (
                "slack_token_file",
                &self.slack_token_file,
                "the token of a bot (xoxb-…) in it",
            ),
            (
                "slack_webhook_file",
                &self.slack_webhook_file,
                "the URL of a webhook in it",
            ),
            (
                "ntfy_token_file",
                &self.ntfy_token_file,
                "the access token of the topic in it",
            ),
        ];

        for (key, file, expected) in files {
            let Some(path) = file else { continue };
            // One that cannot be read is named when its channel is built.
            let is_empty = fs::read_to_string(path).is_ok_and(|text| text.trim().is_empty());
            if is_empty {
                let found = format!("the empty file {}", path.display());
                return Err(ConfigError::new(key, expected, found));
            }
        }
        Ok(())
    }

    /// Time between two evaluations of a group without an interval of its own.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds)
    }

    fn has_short_form(&self) -> bool {
        !self.email_to.is_empty()
            || self.slack_channel.is_some()
            || self.slack_webhook_file.is_some()
            || self.webhook_url.is_some()
            || self.ntfy_topic.is_some()
    }

    /// The short form as an Alertmanager configuration: the shipped routes with these channels as
    /// receivers. Owners of jobs get mail if their addresses are known; otherwise their alerts go
    /// into the digest.
    pub fn in_long_form(&self, routes: &str, knows_owners: bool) -> String {
        // Only the receivers are replaced: routes and inhibition are those that Takt ships.
        let (before, after) = routes.split_once("\nreceivers:").unwrap_or((routes, ""));
        let after = after
            .split_once("\ninhibit_rules:")
            .map_or("", |(_, rules)| rules);
        // A string of JSON is one of YAML.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let path = |path: &PathBuf| quoted(&path.to_string_lossy());

        let mut channels = String::new();
        let mut slack = String::new();
        if let (Some(channel), Some(token)) = (&self.slack_channel, &self.slack_token_file) {
            let channel = quoted(channel);
            let token = path(token);
            let url = quoted(&self.slack_api_url);
            let _ = writeln!(
                slack,
                "      - {{channel: {channel}, app_token_file: {token}, app_url: {url}, \
                 send_resolved: true}}"
            );
        }

        if let Some(file) = &self.slack_webhook_file {
            let _ = writeln!(
                slack,
                "      - {{api_url_file: {}, send_resolved: true}}",
                path(file)
            );
        }
        if !slack.is_empty() {
            let _ = write!(channels, "    slack_configs:\n{slack}");
        }

        if !self.email_to.is_empty() {
            let to = quoted(&self.email_to.join(", "));
            let _ = writeln!(
                channels,
                "    email_configs:\n      - {{to: {to}, send_resolved: true}}"
            );
        }
        if let Some(url) = &self.webhook_url {
            let _ = writeln!(
                channels,
                "    webhook_configs:\n      - {{url: {}}}",
                quoted(url)
            );
        }

        if let Some(topic) = &self.ntfy_topic {
            let token = self
                .ntfy_token_file
                .as_ref()
                .map(|file| format!(", token_file: {}", path(file)));
            let topic = quoted(topic);
            let url = quoted(&self.ntfy_url);
            let _ = writeln!(
                channels,
                "    ntfy_configs:\n      - {{topic: {topic}, url: {url}{}}}",
                token.unwrap_or_default()
            );
        }

        // Without addresses a route to owners would be one to no channel.
        let (before, owners) = if self.tell_owners && knows_owners {
            (before.to_owned(), "    owner_configs:\n      - {}\n")
        } else {
            (without_owners(before), "")
        };
        format!(
            "{before}\nreceivers:\n  - name: operators\n{channels}  - name: digest\n{channels}  - \
             name: owners\n{owners}  - name: nobody\ninhibit_rules:{after}"
        )
    }
}

/// The routes without those to owners of jobs, which are between two comments.
fn without_owners(routes: &str) -> String {
    routes
        .split_once(OWNERS_BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(OWNERS_END)?.1)))
        .map_or_else(
            || routes.to_owned(),
            |(before, after)| format!("{before}{after}"),
        )
}

const OWNERS_BEGIN: &str = "    # What hit a job is its owner's business.";
const OWNERS_END: &str = "    # All else is the operators'.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_secret_file_is_named_by_the_key_of_the_short_form() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slack");
        let config = AlertsConfig {
            slack_webhook_file: Some(file.clone()),
            ..AlertsConfig::default()
        };

        fs::write(&file, "\n").unwrap();
        let expected = format!(
            "slack_webhook_file: expected the URL of a webhook in it, found the empty file {}",
            file.display()
        );
        assert_eq!(config.check_secrets().unwrap_err().to_string(), expected);

        fs::write(&file, "https://hooks.slack.com/services/T/B/s\n").unwrap();
        assert_eq!(config.check_secrets(), Ok(()));
    }
}
