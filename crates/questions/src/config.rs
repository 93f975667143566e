//! The part of the configuration that answers depend on.

use super::{AlertDesk, Doctor, KeptAnswers};
use crate::QueryConfig;
use crate::view_servers::ViewServers;
use std::path::PathBuf;
use std::sync::Arc;
use takt_access::SignInWays;
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::{BudgetConfig, PolicyWindow, RatesConfig};
use takt_collector::schedulers::SharesConfig;
use takt_lake::LakeConfig;
use takt_store::sql::Limits;
use takt_store::{MemoryBudget, WorkPlaces};

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
    /// Whether the server polls the scheduler.
    pub polls_jobs: bool,
    /// The checks of `takt doctor`; `None` where nothing checks.
    pub doctor: Option<Arc<dyn Doctor>>,
    /// The data lake.
    pub lake: LakeSettings,
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
    /// Places for the work of pages and answers.
    pub work: WorkPlaces,
}

/// The data lake, as it is configured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LakeSettings {
    /// The section `[lake]`.
    pub config: LakeConfig,
    /// Free bytes of the disk below which nothing is written.
    pub min_free_bytes: u64,
    /// The configuration file, which may name a lake that the server has not read yet.
    pub file: Option<PathBuf>,
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
