//! The part of the configuration that answers depend on.

use super::{AlertDesk, KeptAnswers};
use crate::http::access::SignInWays;
use crate::view::ViewServers;
use crate::{CurrentConfig, QueryConfig};
use std::path::PathBuf;
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::{BudgetConfig, PolicyWindow, RatesConfig};
use takt_collector::schedulers::SharesConfig;
use takt_store::MemoryBudget;
use takt_store::sql::Limits;

/// The part of the configuration that answers depend on.
#[derive(Debug, Clone, Default)]
pub struct AnswerConfig {
    /// Prices, budgets and thresholds of reports.
    pub accounting: AccountingConfig,
    /// Shares of users and accounts for clusters without slurmdbd.
    pub shares: SharesConfig,
    /// Limits of one PromQL query.
    pub query: QueryConfig,
    /// Limits of one SQL statement.
    pub sql: Limits,
    /// The configuration in force, for the checks of `takt doctor`.
    pub current: CurrentConfig,
    /// Other servers that are shown together.
    pub view: ViewServers,
    /// Ways to sign in with a browser.
    pub sign_in: SignInWays,
    /// Whether people sign in with passwords of `takt passwd`.
    pub keeps_passwords: bool,
    /// The data directory, if a command reads it because no server runs on it.
    pub unserved: Option<PathBuf>,
    /// The alert engine of a running server.
    pub alerts: AlertDesk,
    /// Memory that answers may take.
    pub memory: MemoryBudget,
    /// Answers that are still valid.
    pub kept: KeptAnswers,
}

impl AnswerConfig {
    /// The part of `current` that answers depend on.
    pub fn of(current: CurrentConfig) -> Self {
        let config = current.get();
        Self {
            accounting: config.accounting(),
            shares: config.fairshare.clone(),
            query: config.query.clone(),
            sql: config.sql.limits(),
            view: ViewServers::of(&config.view),
            sign_in: config.auth.sign_in_ways(),
            keeps_passwords: config.auth.passwords,
            unserved: None,
            alerts: AlertDesk::default(),
            memory: MemoryBudget::default(),
            kept: KeptAnswers::default(),
            current,
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
    /// Cluster of questions and imports that name none: the configured one, or the one that the server
    /// found. `None`: the only cluster with records.
    pub home: Option<String>,
    /// Time zone of that cluster's months and days. `None`: the recorded one.
    pub timezone: Option<String>,
    /// Whether rankings replace the names of other users. `None`: Slurm's recorded `PrivateData`
    /// decides.
    pub pseudonyms: Option<bool>,
}
