//! `[reports]` of `takt.toml`: who gets the monthly reports, and how.

use anyhow::bail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The monthly reports: who gets them, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportsConfig {
    /// Whether the reports of a month are sent by e-mail when it has ended.
    pub send: bool,
    /// Whether users whose GPUs hardly worked within seven days, or whose time limits kept many reserved for nothing, get
    /// a letter about it: every seven days at most, and on workdays only.
    pub weekly: bool,
    /// Domain of users' addresses: `alice` is written to at `alice@` this. Not written to where it is left out, unless
    /// `addresses` has them.
    pub domain: Option<String>,
    /// Addresses of users who have others: `{ alice = "a.liddell@lab.example" }`.
    pub addresses: BTreeMap<String, String>,
    /// Who answers for an account and gets its sheet: `{ physics = ["pi@lab.example"] }`.
    pub account_owners: BTreeMap<String, Vec<String>>,
    /// Who gets the cluster's sheet.
    pub operators: Vec<String>,
    /// Users who want no report.
    pub opt_out: Vec<String>,
    /// Days after the month's end on which the reports are sent; records may arrive that late.
    pub delay_days: u32,
    /// Days after the month's end up to which late records make a correction.
    pub correct_days: u32,
    /// Hours between a report and its correction, at least: records that come one by one make one correction.
    pub correction_hours: u32,
    /// Whether the rank keeps users' names back from the others.
    pub pseudonyms: bool,
    /// File with the URL of a Slack webhook that gets the month in short.
    pub slack_webhook_file: Option<std::path::PathBuf>,
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
    /// What no type can say.
    pub fn validate(&self) -> anyhow::Result<()> {
        let owners = self.account_owners.values().flatten();
        for address in self.addresses.values().chain(owners).chain(&self.operators) {
            if !is_address(address) {
                bail!("expected an address such as ann@lab.example, found {address:?}");
            }
        }
        Ok(())
    }

    /// Where a user is written to; `None` where nobody has said it, or the user wants no report.
    pub fn address_of(&self, user: &str) -> Option<String> {
        if self.opt_out.iter().any(|name| name == user) {
            return None;
        }
        let at_domain = || {
            self.domain
                .as_ref()
                .map(|domain| format!("{user}@{domain}"))
        };
        self.addresses
            .get(user)
            .cloned()
            .or_else(at_domain)
            .filter(|address| is_address(address))
    }
}

/// One address and nothing else: neither a second one nor a line break may come from a configuration or a user's name.
fn is_address(text: &str) -> bool {
    let plain = |c: char| {
        c.is_ascii_graphic() && !matches!(c, ',' | ';' | '<' | '>' | '"' | '(' | ')' | '@')
    };
    text.split_once('@').is_some_and(|(user, domain)| {
        !user.is_empty()
            && !domain.is_empty()
            && user.chars().all(plain)
            && domain.chars().all(plain)
    })
}
