//! `[reports]` of `takt.toml`: recipients and schedule of the monthly reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use takt_model::ConfigError;

/// The monthly reports: recipients and schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportsConfig {
    /// Send the reports of a month by mail after its end.
    pub send: bool,
    /// Send a mail to users whose GPUs were mostly idle in the last seven days, or whose time
    /// limits reserved many GPU-hours that were not used. At most one mail in seven days, on
    /// workdays only.
    pub weekly: bool,
    /// Mail domain of the users: alice gets mail at alice@`domain`. Without it, only users in
    /// `addresses` get mail.
    pub domain: Option<String>,
    /// Mail addresses of users that differ from USER@`domain`:
    /// `{ alice = "a.liddell@lab.example" }`.
    pub addresses: BTreeMap<String, String>,
    /// Recipients of each account's report: `{ physics = ["pi@lab.example"] }`.
    pub account_owners: BTreeMap<String, Vec<String>>,
    /// Recipients of the cluster's report.
    pub operators: Vec<String>,
    /// Users who get no report.
    pub opt_out: Vec<String>,
    /// Days after the end of the month on which the reports are sent. Records may arrive that late.
    pub delay_days: u32,
    /// Days after the end of the month until which late records lead to a corrected report.
    pub correct_days: u32,
    /// Minimum hours between a report and its correction, so that several late records make one
    /// correction.
    pub correction_hours: u32,
    /// Replace the names of other users in a user's ranking.
    pub pseudonyms: bool,
    /// File with the URL of a Slack webhook for a summary of the month.
    pub slack_webhook_file: Option<PathBuf>,
}

impl Default for ReportsConfig {
    fn default() -> Self {
        Self {
            send: false,
            weekly: false,
            domain: None,
            addresses: BTreeMap::new(),
            account_owners: BTreeMap::new(),
            operators: Vec::new(),
            opt_out: Vec::new(),
            delay_days: 1,
            correct_days: 14,
            correction_hours: 24,
            pseudonyms: false,
            slack_webhook_file: None,
        }
    }
}

impl ReportsConfig {
    /// Checks that types cannot express: ranges and references between keys.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Takt makes an address of each user's name and the domain, so the whole must be one.
        if let Some(domain) = &self.domain
            && !is_address(&format!("user@{domain}"))
        {
            let expected = "a domain such as lab.example, which follows USER@";
            return Err(ConfigError::new("domain", expected, format!("{domain:?}")));
        }

        let owners = self.account_owners.values().flatten();
        for address in self.addresses.values().chain(owners).chain(&self.operators) {
            if !is_address(address) {
                return Err(ConfigError::of_table(format!(
                    "expected an address such as ann@lab.example, found {address:?}"
                )));
            }
        }
        // Sending to no one would pass unnoticed for a month.
        if (self.send || self.weekly) && !self.has_recipients() {
            let key = if self.send { "send" } else { "weekly" };
            let expected = "somebody to send to: domain, addresses, account_owners, operators or slack_webhook_file";
            return Err(ConfigError::new(key, expected, "none of them"));
        }
        Ok(())
    }

    fn has_recipients(&self) -> bool {
        self.domain.is_some()
            || !self.addresses.is_empty()
            || self
                .account_owners
                .values()
                .any(|owners| !owners.is_empty())
            || !self.operators.is_empty()
            || self.slack_webhook_file.is_some()
    }

    /// Returns user and account for each owner of an account whose address belongs to a user.
    pub fn users_who_own_accounts(&self) -> Vec<(String, String)> {
        self.account_owners
            .iter()
            .flat_map(|(account, addresses)| {
                addresses
                    .iter()
                    .filter_map(|address| self.user_of(address))
                    .map(|user| (user, account.clone()))
            })
            .collect()
    }

    /// Returns the user with this mail address.
    fn user_of(&self, address: &str) -> Option<String> {
        // A configured address comes first: it may be in the same domain as those made of names.
        let mut known = self.addresses.iter();
        if let Some((user, _)) = known.find(|(_, of_user)| *of_user == address) {
            return Some(user.clone());
        }
        let (user, domain) = address.rsplit_once('@')?;
        // A configured address of this user replaces the one in the domain.
        let is_own = self.domain.as_deref() == Some(domain) && !self.addresses.contains_key(user);
        is_own.then(|| user.to_owned())
    }

    /// Returns a user's mail address; `None` if none is configured or the user opted out.
    pub fn address_of(&self, user: &str) -> Option<String> {
        // Users who opted out have no address, whichever way it would be found.
        if self.opt_out.iter().any(|name| name == user) {
            return None;
        }
        self.addresses
            .get(user)
            .cloned()
            .or_else(|| {
                self.domain
                    .as_ref()
                    .map(|domain| format!("{user}@{domain}"))
            })
            // User names come from Slurm's records, and may have signs that a mail header must not contain.
            .filter(|address| is_address(address))
    }
}

/// Returns whether `text` is exactly one address. A second address or a line break in a
/// configuration or user name must not reach a mail header.
fn is_address(text: &str) -> bool {
    let plain = |c: char| {
        c.is_ascii_graphic() && !matches!(c, ',' | ';' | '<' | '>' | '"' | '(' | ')' | '@')
    };
    text.split_once('@').is_some_and(|(user, domain)| {
        !user.is_empty()
            && !domain.is_empty()
            && user.chars().all(plain)
            && domain.chars().all(plain)
            // `user@https://lab.example` is plain, and no mail program sends to it.
            && takt_mail::is_address(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_no_address_can_have_is_refused() {
        let check = |domain: &str| {
            let config = ReportsConfig {
                domain: Some(domain.into()),
                ..ReportsConfig::default()
            };
            config.validate()
        };
        assert_eq!(check("lab.example"), Ok(()));
        for domain in [
            "https://lab.example",
            "@lab.example",
            "lab example",
            "lab.example/",
            "",
        ] {
            let error = check(domain).unwrap_err().to_string();
            assert!(
                error.contains("expected a domain such as lab.example"),
                "{error}"
            );
        }
    }
}
