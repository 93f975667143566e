//! Checks of the names in the configuration: accounts, users, nodes, and models of GPUs.

use super::facts::{Facts, Reading};
use super::{Finding, Severity, finding};
use crate::Config;
use std::collections::{BTreeMap, BTreeSet};
use takt_accounting::RateCard;
use takt_jobs::nodelist;
use takt_model::words;
use takt_questions::did_you_mean;

/// Names that the configuration refers to, with the key of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReferredNames {
    /// Accounts.
    pub accounts: Vec<(&'static str, String)>,
    /// Users.
    pub users: Vec<(&'static str, String)>,
    /// Nodes.
    pub nodes: Vec<(&'static str, String)>,
    /// Models of GPUs that the newest rate card prices, if it has no price for all others.
    pub gpu_models: BTreeSet<String>,
}

impl ReferredNames {
    /// Returns the names in a configuration.
    pub(super) fn of(config: &Config) -> Self {
        let mut names = Self::default();
        let owned = config.reports.account_owners.keys();
        names
            .accounts
            .extend(owned.map(|account| ("reports.account_owners", account.clone())));
        for budget in &config.budgets {
            let account = budget.account.clone();
            names
                .accounts
                .extend(account.map(|account| ("budgets", account)));
            let user = budget.user.clone();
            names.users.extend(user.map(|user| ("budgets", user)));
        }

        let lists = [
            ("auth.admins", &config.auth.admins),
            ("auth.support", &config.auth.support),
            ("auth.viewers", &config.auth.viewers),
            ("reports.opt_out", &config.reports.opt_out),
        ];
        for (key, users) in lists {
            names
                .users
                .extend(users.iter().map(|user| (key, user.clone())));
        }
        let addressed = config.reports.addresses.keys();
        names
            .users
            .extend(addressed.map(|user| ("reports.addresses", user.clone())));

        for window in &config.policy_windows {
            let nodes = nodelist::expand(&window.nodes).unwrap_or_default();
            names
                .nodes
                .extend(nodes.into_iter().map(|node| ("policy_windows", node)));
        }
        names
            .nodes
            .extend(config.doctor.nodes().map(|node| ("doctor.accept", node)));

        let cards = config.rates.cards.iter();
        let newest = cards.max_by_key(|card| card.from.as_str());
        if let Some(card) = newest.filter(|card| card.gpu_hour == 0.0) {
            names.gpu_models = card.gpu_models.keys().cloned().collect();
        }
        names
    }
}

/// Names that job records and associations have.
#[derive(Debug, Clone, Default)]
pub(in crate::doctor) struct KnownNames {
    /// Accounts.
    pub accounts: BTreeSet<String>,
    /// Users.
    pub users: BTreeSet<String>,
    /// GPU-hours of the last days by model of the GPUs.
    pub gpu_models: BTreeMap<String, f64>,
}

/// Returns the names that are not known, each once, with a similar one.
fn unknown(
    kind: &str,
    referred: &[(&'static str, String)],
    known: &BTreeSet<&str>,
    source: &str,
) -> Vec<Finding> {
    let mut reported = BTreeSet::new();
    let unknown = referred
        .iter()
        .filter(|(_, name)| !known.is_empty() && !known.contains(name.as_str()))
        .filter(|one| reported.insert(*one));
    unknown
        .map(|(key, name)| {
            let near = did_you_mean(name, known.iter().copied());
            finding(
                Severity::Warning,
                "",
                format!("{key} names the {kind} {name}, which {source}{near}"),
                "The setting has no effect.",
                [format!(
                    "{key}        # in takt.toml: correct or remove the name"
                )],
            )
        })
        .collect()
}

pub(super) fn config_subjects(facts: &Facts) -> Vec<Finding> {
    let referred = &facts.config.referred;
    let accounts = facts.names.accounts.iter().map(String::as_str).collect();
    let users = facts.names.users.iter().map(String::as_str).collect();

    // Without a server, and right after its start, targets are not known that are no nodes of Slurm.
    let scraped: BTreeSet<&str> = scraped_nodes(facts).collect();
    let mut nodes = BTreeSet::new();
    if facts.config.unserved.is_none() && !scraped.is_empty() {
        nodes = scraped;
        nodes.extend(facts.slurm_nodes.keys().map(String::as_str));
    }

    let of_records = "neither job records nor associations have";
    let mut found = unknown("account", &referred.accounts, &accounts, of_records);
    let of_users = "neither job records, associations nor this machine have";
    found.extend(unknown("user", &referred.users, &users, of_users));
    let of_nodes = "is no node of Slurm and no target";
    found.extend(unknown("node", &referred.nodes, &nodes, of_nodes));
    found
}

/// The nodes of targets, whether they answer or not.
pub(super) fn scraped_nodes(facts: &Facts) -> impl Iterator<Item = &str> {
    facts
        .select("up", |reading| reading.label("job") != "takt-server")
        .map(Reading::node)
        .filter(|node| !node.is_empty())
}

pub(super) fn config_prices(facts: &Facts) -> Vec<Finding> {
    let priced = &facts.config.referred.gpu_models;
    let used = &facts.names.gpu_models;
    if used.is_empty() {
        return Vec::new();
    }
    let card = RateCard {
        gpu_models: priced.iter().map(|model| (model.clone(), 0.0)).collect(),
        ..RateCard::default()
    };
    let report = |evidence: String, cost: &str| {
        let names: Vec<&str> = used.keys().map(String::as_str).collect();
        let fix = format!(
            "gpu_models        # in [rates], takt.toml; the scheduler's names are {}",
            names.join(", ")
        );
        finding(Severity::Warning, "", evidence, cost, [fix])
    };

    let unpriced = used
        .iter()
        .filter(|(model, hours)| **hours > 0.0 && card.lacks_price(model))
        .map(|(model, hours)| {
            let hours = words::amount(*hours);
            let evidence = format!("no price for {model}: {hours} GPU-hours in 31 days");
            let near = similar(model, priced.iter());
            report(
                evidence + &near,
                "These GPU-hours cost nothing in reports and budgets.",
            )
        });
    let unused = priced
        .iter()
        .filter(|model| !used.contains_key(*model))
        .map(|model| {
            let evidence = format!("[rates] prices {model}, and no job record has this model");
            let near = similar(model, used.keys());
            report(evidence + &near, "The price has no effect.")
        });
    unpriced.chain(unused).collect()
}

/// Proposes a similar model, and says so if the names differ in case only.
fn similar<'m>(model: &str, known: impl Iterator<Item = &'m String> + Clone) -> String {
    match known.clone().find(|one| one.eq_ignore_ascii_case(model)) {
        Some(one) => format!("; {one} differs only in upper and lower case"),
        None => did_you_mean(model, known.map(String::as_str)),
    }
}
