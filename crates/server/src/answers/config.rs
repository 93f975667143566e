//! The part of the configuration that answers depend on.

use super::DoctorConfig;
use crate::http::access::SignInWays;
use crate::{Config, QueryConfig};
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::{BudgetConfig, PolicyWindow, RatesConfig};
use takt_collector::schedulers::SharesConfig;
use takt_store::sql::Limits;

/// The part of the configuration that answers depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerConfig {
    /// Prices, budgets and thresholds of reports.
    pub accounting: AccountingConfig,
    /// Shares of users and accounts for clusters without slurmdbd.
    pub shares: SharesConfig,
    /// Limits of one PromQL query.
    pub query: QueryConfig,
    /// Limits of one SQL statement.
    pub sql: Limits,
    /// Settings that the checks of `takt doctor` read.
    pub doctor: DoctorConfig,
    /// Ways to sign in with a browser.
    pub sign_in: SignInWays,
    /// Whether people sign in with passwords of `takt passwd`.
    pub keeps_passwords: bool,
}

impl AnswerConfig {
    /// The part of `config` that answers depend on.
    pub fn of(config: &Config) -> Self {
        Self {
            accounting: config.accounting(),
            shares: config.fairshare.clone(),
            query: config.query.clone(),
            sql: config.sql.limits(),
            doctor: DoctorConfig::of(config),
            sign_in: config.auth.sign_in_ways(),
            keeps_passwords: config.auth.passwords,
        }
    }
}

/// Configuration of the accounting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccountingConfig {
    /// Thresholds: which runs are idle, wasteful, measured.
    pub efficiency: EfficiencyConfig,
    /// Price of usage.
    pub rates: RatesConfig,
    /// Budgets of users and accounts.
    pub budgets: Vec<BudgetConfig>,
    /// Hours in which jobs may not run on some nodes.
    pub policy_windows: Vec<PolicyWindow>,
    /// Cluster that the configuration is about. `None`: every cluster.
    pub cluster: Option<String>,
    /// Time zone of that cluster's months and days. `None`: the recorded one.
    pub timezone: Option<String>,
    /// Whether rankings replace the names of other users. `None`: Slurm's recorded `PrivateData`
    /// decides.
    pub pseudonyms: Option<bool>,
}
