//! The command line: the list of commands, and the flags that several of them have. A command's own flags are
//! declared in its file in `commands/`.

use crate::commands::alerts::Alerts;
use crate::commands::assess::Assess;
use crate::commands::audit::Audit;
use crate::commands::backup::{Backup, Restore};
use crate::commands::capacity::Capacity;
use crate::commands::card::CardCommand;
use crate::commands::check_config::CheckConfig;
use crate::commands::completions::{Completions, Man};
use crate::commands::credit::CreditCommand;
use crate::commands::demo::{DemoArgs, DemoSlurm};
use crate::commands::doctor::Doctor;
use crate::commands::fairshare::Fairshare;
use crate::commands::gpus::Gpus;
use crate::commands::import::Import;
use crate::commands::init::Init;
use crate::commands::job::Job;
use crate::commands::jobs::Jobs;
use crate::commands::lake::LakeCommand;
use crate::commands::node::Node;
use crate::commands::passwd::Passwd;
use crate::commands::probe::{self, Probe};
use crate::commands::promqltest::Promqltest;
use crate::commands::query::Query;
use crate::commands::reconcile::Reconcile;
use crate::commands::records::RecordsCommand;
use crate::commands::report::Report;
use crate::commands::serve::Serve;
use crate::commands::sql::Sql;
use crate::commands::store::StoreCommand;
use crate::commands::token::Token;
use crate::commands::up::Up;
use crate::commands::view::View;
use crate::commands::whatif::WhatIf;
use crate::commands::whoami::Whoami;
use crate::person;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Monitoring and accounting for a GPU research cluster.
#[derive(Debug, Parser)]
#[command(name = "takt", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub place: Place,
    /// Command; without one, Takt prints the state of the server or how to start one.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The user of a listing.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "person", multiple = false)]
pub struct Person {
    /// Only this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only the user who runs the command
    #[arg(long)]
    pub me: bool,
}

impl Person {
    /// Returns the name of the user; `None` for all users.
    pub fn name(&self) -> Option<String> {
        if self.me {
            Some(person::operator())
        } else {
            self.user.clone()
        }
    }
}

/// Data directory, configuration and server of a command.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Data directory [default: data_dir of the configuration, then ./takt-data]
    #[arg(
        long,
        global = true,
        env = "TAKT_DATA_DIR",
        value_name = "DIR",
        help_heading = "Where"
    )]
    pub data_dir: Option<PathBuf>,
    /// Configuration file (TOML). Default without options: /etc/takt/takt.toml, if it exists
    #[arg(
        long,
        global = true,
        env = "TAKT_CONFIG",
        value_name = "FILE",
        help_heading = "Where"
    )]
    pub config: Option<PathBuf>,
    /// Query this server, such as http://head:9856
    #[arg(
        long,
        global = true,
        env = "TAKT_SERVER",
        value_name = "URL",
        help_heading = "Where"
    )]
    pub server: Option<String>,
    /// File with the API token; required remotely and for changes
    #[arg(
        long,
        global = true,
        env = "TAKT_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Where"
    )]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Monitor this machine: starts an exporter and a server, and polls the local Slurm if it has
    /// one
    Up(Up),
    /// Show Takt with a simulated cluster: no GPU, no Slurm and no configuration needed
    Demo(DemoArgs),
    /// Propose a configuration from what this machine and its cluster have
    Init(Init),
    /// Look for what is wrong, with the command that repairs it
    Doctor(Doctor),
    /// Copy records and samples into a new directory, also while the server runs
    Backup(Backup),
    /// Copy a backup into an empty data directory
    Restore(Restore),
    /// Run the server
    Serve(Serve),
    /// Let the running server read its configuration again; exit code 1 if it is invalid
    Reload,
    /// Run the exporter of this node
    Exporter(takt_exporter::Options),
    /// Run SQL statements of a server, which starts this process itself
    #[command(hide = true)]
    SqlProcess,
    /// Import job records
    #[command(subcommand)]
    Import(Import),
    /// Usage, efficiency and waste of a period
    #[command(subcommand)]
    Report(Report),
    /// Compute the efficiency of finished jobs (a running server does this by itself)
    Assess(Assess),
    /// Credit hours that were lost to a fault
    #[command(subcommand)]
    Credit(CreditCommand),
    /// List jobs, newest first
    Jobs(Jobs),
    /// Show one job with all its runs
    Job(Job),
    /// List GPUs with their current users, processes and health
    Gpus(Gpus),
    /// Cards (physical GPUs): where each was, its verdict, and the evidence for a return
    #[command(subcommand)]
    Card(CardCommand),
    /// Questions about this node, answered by its exporter
    #[command(subcommand)]
    Node(Node),
    /// Ask a switch, PDU or UPS, or serve the metrics of such devices
    Probe(Probe),
    /// Fair share of users and accounts, explained
    Fairshare(Fairshare),
    /// Capacity of a period: allocated, down, planned, idle and stranded hours
    Capacity(Capacity),
    /// Replay a past period with other nodes, limits or requests: who would have waited less or longer
    Whatif(WhatIf),
    /// Nodes, GPUs, jobs, usage and fair share of several servers ([[view.servers]])
    View(View),
    /// Compare usage with sreport and explain each difference
    Reconcile(Reconcile),
    /// Run a read-only SQL query (tables: jobs, samples, series, ...)
    Sql(Sql),
    /// Run a PromQL query, at one instant or over a range
    Query(Query),
    /// Run PromQL test scripts in Prometheus' promqltest format
    Promqltest(Promqltest),
    /// Active alerts, their history, rules, silences and test messages
    #[command(subcommand)]
    Alerts(Alerts),
    /// Inspect, verify, seal and delete stored samples
    #[command(subcommand)]
    Store(StoreCommand),
    /// Copies of finished days and records that other engines read
    #[command(subcommand)]
    Lake(LakeCommand),
    /// List and undo imports, delete job records
    #[command(subcommand)]
    Records(RecordsCommand),
    /// Print a link that signs a browser in as you (needs a running server; on other machines with
    /// munge, name the server with --server)
    Login,
    /// Set the password with which you, or another user, sign in
    Passwd(Passwd),
    /// Show who the server takes you for, your role, and what you see of others
    Whoami(Whoami),
    /// Create, list and revoke tokens of programs
    #[command(subcommand)]
    Token(Token),
    /// List sign-ins and changes, newest first
    Audit(Audit),
    /// Check the configuration and print the effective settings
    CheckConfig(CheckConfig),
    /// Answer as one of Slurm's commands of the demo's cluster
    #[command(hide = true, name = "slurm-of-demo")]
    DemoSlurm(DemoSlurm),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Write the man pages of takt and takt-exporter into a directory
    Man(Man),
}

impl Command {
    /// Whether the command runs until it is stopped.
    pub fn keeps_running(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Up(_) | Self::Exporter(_) | Self::Demo(_) => true,
            Self::Probe(asked) => probe::keeps_running(asked),
            _ => false,
        }
    }

    /// Level of the log without `RUST_LOG`. The demo prints what it does itself.
    pub fn log_level(&self) -> &'static str {
        match self {
            Self::Demo(_) | Self::DemoSlurm(_) => "error",
            // The crate logs each request that fails as an error; the reading of the device has it.
            _ => "info,async_snmp=off",
        }
    }
}

/// A period: a month, or the time between two times.
#[derive(Debug, Clone, Default, Args)]
pub struct Period {
    /// Month, such as 2026-10 [default: this month]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start: a date, a time, an instant (RFC 3339), today, yesterday, -12h, -7d
    #[arg(long, value_name = "TIME", requires = "to", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End (exclusive), in the same forms, or now
    #[arg(
        long,
        value_name = "TIME",
        requires = "from",
        allow_hyphen_values = true
    )]
    pub to: Option<String>,
}

/// Output format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ListingFormat {
    #[default]
    Table,
    Json,
    Csv,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;
    use std::iter;

    /// Runs the checks of clap that need debug assertions, on every command.
    #[test]
    fn flag_names_and_ids_are_unique() {
        let mut command = Cli::command();
        command.clone().debug_assert();

        // Only a built command has the global flags of its parents, which may clash, too.
        command.build();
        check(&command, "takt");
    }

    fn check(command: &clap::Command, path: &str) {
        let mut ids = BTreeSet::new();
        let mut words = BTreeSet::new();
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(ids.insert(id.to_string()), "{path}: {id} comes twice");
            let long = argument
                .get_long()
                .into_iter()
                .chain(argument.get_all_aliases().into_iter().flatten());
            let short = argument
                .get_short()
                .into_iter()
                .chain(argument.get_all_short_aliases().into_iter().flatten());
            for word in long
                .map(|word| format!("--{word}"))
                .chain(short.map(|word| format!("-{word}")))
            {
                assert!(words.insert(word.clone()), "{path}: {word} comes twice");
            }
            // Panics if the argument conflicts with one that does not exist.
            command.get_arg_conflicts_with(argument);
        }

        // An alias must not hide another command.
        let mut names = BTreeSet::new();
        for command in command.get_subcommands() {
            for name in iter::once(command.get_name()).chain(command.get_all_aliases()) {
                assert!(names.insert(name.to_owned()), "{path} {name} comes twice");
            }
            check(command, &format!("{path} {}", command.get_name()));
        }
    }
}
