//! Budgets of users and accounts, and their use.

use crate::RunOut;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use takt_model::ConfigError;

/// Limit of a user's or an account's usage in a period.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// User that the budget applies to. Give this or `account`.
    pub user: Option<String>,
    /// Account that the budget applies to, with the accounts below it. Give this or `user`.
    pub account: Option<String>,
    /// Calendar period of the budget: `month` or `year`.
    pub period: BudgetPeriod,
    /// Limit in GPU-hours. Give this, `money`, or both.
    pub gpu_hours: Option<f64>,
    /// Limit in the currency of `[rates]`.
    pub money: Option<f64>,
}

/// Length of a budget's period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// A calendar month.
    #[default]
    Month,
    /// A calendar year.
    Year,
}

impl BudgetPeriod {
    /// Returns `month` or `year`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// Fractions of a budget at which a warning is sent.
pub const WARN_AT: [f64; 3] = [0.5, 0.8, 1.0];

/// Use of a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetUse {
    /// User or account.
    pub name: String,
    /// Whether `name` is an account.
    pub is_account: bool,
    /// Calendar period of the budget.
    pub period: BudgetPeriod,
    /// `GPU-hours`, or the currency.
    pub unit: String,
    /// Limit, in `unit`.
    pub limit: f64,
    /// Amount used, in `unit`.
    pub used: f64,
    /// The highest of [`WARN_AT`] that is reached. `None` below all of them.
    pub warning: Option<f64>,
    /// When it is used up at the pace of the last weeks. `None` for a period that has ended, for an exceeded budget, and
    /// without records of two weeks.
    #[serde(default)]
    pub run_out: Option<RunOut>,
    /// `run_out` as a sentence, in the cluster's time.
    #[serde(default)]
    pub outlook: Option<String>,
}

impl BudgetConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// Not exactly one of user and account is set, or an amount is missing, or not above 0.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.user.is_some() == self.account.is_some() {
            // A budget is of one user or of one account.
            return Err(ConfigError::new(
                "user, account",
                "one of them",
                if self.user.is_some() { "both" } else { "none" },
            ));
        }

        let amounts: Vec<f64> = self.gpu_hours.into_iter().chain(self.money).collect();

        if amounts.is_empty() {
            return Err(ConfigError::new(
                "gpu_hours, money",
                "at least one of them",
                "none",
            ));
        }

        match amounts
            .into_iter()
            .find(|amount| !(*amount > 0.0 && amount.is_finite()))
        {
            Some(amount) => Err(ConfigError::new("gpu_hours, money", "more than 0", amount)),
            None => Ok(()),
        }
    }

    /// Returns the use of each limit after this many GPU-hours and this much money.
    pub fn used(&self, gpu_hours: f64, money: f64, currency: &str) -> Vec<BudgetUse> {
        let name = self
            .user
            // `validate` has checked that one of the two is set.
            .as_ref()
            .or(self.account.as_ref())
            .cloned()
            .unwrap_or_default();
        let amounts = [
            (self.gpu_hours, gpu_hours, "GPU-hours"),
            (self.money, money, currency),
        ];

        amounts
            .into_iter()
            .filter_map(|(limit, used, unit)| {
                let limit = limit?;
                Some(BudgetUse {
                    name: name.clone(),
                    is_account: self.account.is_some(),
                    period: self.period,
                    unit: unit.to_owned(),
                    limit,
                    used,
                    // From the highest: only the one that was reached last is sent.
                    warning: WARN_AT
                        .into_iter()
                        .rev()
                        .find(|share| used >= limit * share),
                    run_out: None,
                    outlook: None,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_at_50_80_and_100_percent() {
        let budget = BudgetConfig {
            account: Some("physics".into()),
            gpu_hours: Some(200.0),
            ..BudgetConfig::default()
        };
        let warning = |used| budget.used(used, 0.0, "EUR")[0].warning;
        for (used, expected) in [
            // Just below a step and on it.
            (0.0, None),
            (99.9, None),
            (100.0, Some(0.5)),
            (160.0, Some(0.8)),
            (199.0, Some(0.8)),
            (200.0, Some(1.0)),
            (900.0, Some(1.0)),
        ] {
            assert_eq!(warning(used), expected, "{used}");
        }
    }

    #[test]
    fn invalid_budgets_are_refused() {
        let amount = BudgetConfig {
            gpu_hours: Some(1.0),
            ..BudgetConfig::default()
        };
        let ann = || Some("ann".to_owned());
        for (budget, message) in [
            (
                amount.clone(),
                "user, account: expected one of them, found none",
            ),
            (
                BudgetConfig {
                    user: ann(),
                    account: ann(),
                    ..amount.clone()
                },
                "user, account: expected one of them, found both",
            ),
            (
                BudgetConfig {
                    user: ann(),
                    ..BudgetConfig::default()
                },
                "gpu_hours, money: expected at least one of them, found none",
            ),
            (
                BudgetConfig {
                    user: ann(),
                    money: Some(-2.0),
                    ..amount
                },
                "gpu_hours, money: expected more than 0, found -2",
            ),
        ] {
            assert_eq!(budget.validate().unwrap_err().to_string(), message);
        }
    }
}
