//! Shares and prices: associations, QOS, billing weights, usage decay. A cluster without slurmdbd
//! keeps none of them, so `takt.toml` can set them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_accounting::fairshare::AssociationTree;
use takt_jobs::{
    Association, BillingWeights, PriorityFlags, PrioritySettings, ShareSettings, Shares, TresError,
};
use takt_model::ConfigError;

/// Fair share of a cluster whose scheduler keeps no accounts. With `accounts`, what Slurm says of
/// shares is not used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharesConfig {
    /// Half-life of past usage, in days; 0 turns decay off.
    pub half_life_days: f64,
    /// Use Slurm's classic fair-share factor instead of Fair Tree.
    pub classic: bool,
    /// Billing weights in Slurm's syntax (`CPU=1.0,Mem=0.25G,GRES/gpu=8.0`). Default: one per CPU.
    pub billing_weights: Option<String>,
    /// The account tree. List a parent before its children.
    pub accounts: Vec<ShareAccount>,
}

/// An account with its users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareAccount {
    /// Name of the account.
    pub account: String,
    /// Parent account. Default: the root.
    #[serde(default)]
    pub parent: Option<String>,
    /// Shares of the account relative to its siblings.
    #[serde(default = "one")]
    pub shares: u32,
    /// Users of the account and their shares: `{ alice = 2, bob = 1 }`. Jobs without an account are
    /// charged to the first account that lists their user.
    #[serde(default)]
    pub users: BTreeMap<String, u32>,
}

fn one() -> u32 {
    1
}

impl Default for SharesConfig {
    fn default() -> Self {
        Self {
            half_life_days: 7.0,
            classic: false,
            billing_weights: None,
            accounts: Vec::new(),
        }
    }
}

/// Slurm's name for the account above all others.
const ROOT: &str = "root";

impl SharesConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // A half-life of a century still fits into 32 bits of seconds.
        if !(0.0..=36_500.0).contains(&self.half_life_days) {
            return Err(ConfigError::new(
                "half_life_days",
                "0 to 36500",
                self.half_life_days,
            ));
        }

        if let Some(text) = &self.billing_weights {
            let refused = |error| {
                ConfigError::new(
                    "billing_weights",
                    "weights such as CPU=1.0,GRES/gpu=8.0",
                    error,
                )
            };

            let weights = BillingWeights::parse(text).map_err(refused)?;
            if let Some(name) = weights.unknown() {
                return Err(refused(TresError::Unknown(name.to_owned())));
            }
        }

        // Slurm's root is above all accounts and is added to them.
        if self
            .accounts
            .iter()
            .any(|of| of.account.is_empty() || of.account == ROOT)
        {
            return Err(ConfigError::new(
                "accounts",
                "a name for each account, other than root",
                "none",
            ));
        }

        // The tree itself finds unknown parents and accounts that are listed twice.
        AssociationTree::new(self.associations())
            .map(drop)
            .map_err(|error| ConfigError::new("accounts", "a tree below the account root", error))
    }

    /// Returns the settings for fair share; `None` if no account is configured.
    pub fn settings(&self) -> Option<ShareSettings> {
        (!self.accounts.is_empty()).then(|| ShareSettings {
            associations: self.associations(),
            priority: PrioritySettings {
                decay_half_life_seconds: (self.half_life_days * 86_400.0) as u32,
                flags: PriorityFlags {
                    no_fair_tree: self.classic,
                    ..PriorityFlags::default()
                },
                ..PrioritySettings::default()
            },
            // `validate` has checked the weights. Fall back to one per CPU.
            otherwise: self
                .billing_weights
                .as_deref()
                .and_then(|text| BillingWeights::parse(text).ok()),
            ..ShareSettings::default()
        })
    }

    /// Returns the account to charge for a user's runs without an account.
    pub fn account_of(&self, user: &str) -> Option<&str> {
        self.accounts
            .iter()
            .find(|account| account.users.contains_key(user))
            .map(|account| account.account.as_str())
    }

    fn associations(&self) -> Vec<Association> {
        let mut associations = vec![Association::account(ROOT, None, Shares::Raw(1))];

        for of in &self.accounts {
            let parent = of.parent.as_deref().unwrap_or(ROOT);
            associations.push(Association::account(
                &of.account,
                Some(parent),
                Shares::Raw(of.shares),
            ));

            let users = of
                .users
                .iter()
                .map(|(user, shares)| Association::user(&of.account, user, Shares::Raw(*shares)));
            associations.extend(users);
        }
        associations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SharesConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn accounts_make_a_tree() {
        let shares = config(
            r#"{"billing_weights": "GRES/gpu=1", "accounts": [
                {"account": "lab", "shares": 60, "users": {"ann": 2, "bob": 1}},
                {"account": "vision", "parent": "lab", "users": {"ann": 1}}]}"#,
        );

        assert_eq!(shares.validate(), Ok(()));
        let settings = shares.settings().unwrap();
        let names: Vec<_> = settings
            .associations
            .iter()
            .map(Association::name)
            .collect();
        assert_eq!(names, ["root", "lab", "ann", "bob", "vision", "ann"]);

        // The first of the two accounts with `ann` is charged.
        assert_eq!(shares.account_of("ann"), Some("lab"));
        assert_eq!(shares.account_of("eve"), None);
        assert_eq!(settings.priority.decay_half_life_seconds, 7 * 86_400);
        assert_eq!(SharesConfig::default().settings(), None);
    }

    #[test]
    fn invalid_account_trees_are_rejected() {
        let said = |text: &str| config(text).validate().unwrap_err().to_string();
        assert_eq!(
            said(r#"{"accounts": [{"account": "a", "parent": "b"}]}"#),
            "accounts: expected a tree below the account root, found account 'a' is below account 'b', which does not exist"
        );
        assert!(
            said(r#"{"accounts": [{"account": "a"}, {"account": "a"}]}"#)
                .contains("two associations of account 'a'")
        );
        assert!(said(r#"{"accounts": [{"account": ""}]}"#).contains("a name for each account"));
        assert!(
            said(r#"{"half_life_days": -1.0}"#).starts_with("half_life_days: expected 0 to 36500")
        );
        assert!(
            said(r#"{"billing_weights": "gpu"}"#)
                .starts_with("billing_weights: expected weights such as")
        );
    }
}
