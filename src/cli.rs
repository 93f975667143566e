//! The command line: every command and flag, once.

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
    Demo(Demo),
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
    Credit(Credit),
    /// List jobs, newest first
    Jobs(Jobs),
    /// Show one job with all its runs
    Job(Job),
    /// List GPUs with their current users, processes and health
    Gpus(Gpus),
    /// Fair share of users and accounts, explained
    Fairshare(Fairshare),
    /// Capacity of a period: allocated, down, planned, idle and stranded hours
    Capacity(Capacity),
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
    #[command(hide = true)]
    DemoSlurm(DemoSlurm),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Write the man pages of takt and takt-exporter into a directory
    Man(Man),
}

impl Command {
    /// Level of the log without `RUST_LOG`. The demo prints what it does itself.
    pub fn log_level(&self) -> &'static str {
        match self {
            Self::Demo(_) | Self::DemoSlurm(_) => "error",
            _ => "info",
        }
    }
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell; `source <(takt completions bash)` switches them on in bash
    #[arg(value_enum)]
    pub shell: CompletionShell,
    /// Program that is completed
    #[arg(long, value_enum, default_value_t)]
    pub program: Program,
}

/// Shell of a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Program with completions and man pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Program {
    #[default]
    Takt,
    TaktExporter,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Directory, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct Whoami {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Passwd {
    /// Unix user; admins only [default: you]
    pub user: Option<String>,
    /// Remove the password
    #[arg(long)]
    pub remove: bool,
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token; prints it once
    Create(TokenCreate),
    /// List tokens: yours, or all for admins
    List(TokenList),
    /// Revoke a token
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
pub struct TokenCreate {
    /// Name of the token, such as the program that will use it
    pub name: String,
    /// Role: status, user, viewer, support or admin [default: user]
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Unix user on whose behalf the token asks [default: you, for the role user]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Validity (90d, 12h) [default: until it is revoked]
    #[arg(long = "for", value_name = "DURATION")]
    pub duration: Option<String>,
}

#[derive(Debug, Args)]
pub struct TokenList {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// Number of the token, from `takt token list`
    pub id: i64,
}

#[derive(Debug, Args)]
pub struct Audit {
    /// Only this Unix user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// List active alerts (needs a running server)
    List(AlertsList),
    /// Show the history of alerts, newest first
    History(AlertsHistory),
    /// Check rule files (Prometheus' format, *.events.yml) and alertmanager.yml files
    Check(AlertsFiles),
    /// Run rule tests in promtool's format
    Test(AlertsFiles),
    /// Show the receivers of an alert with these labels
    RouteTest(AlertsRouteTest),
    /// Create, list or expire silences (needs a running server)
    Silence(AlertsSilence),
    /// Silence matching active alerts
    Ack(AlertsAck),
    /// Close active alerts by hand, with a reason for the history (needs a running server)
    Close(AlertsClose),
    /// Send a test message through every channel and report the results
    TestSend(AlertsTestSend),
}

#[derive(Debug, Args)]
pub struct AlertsClose {
    /// Conditions that the alerts to close meet: alertname=GpuFellOffBus node=g01
    #[arg(required = true, value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Why they are closed
    #[arg(long, value_name = "TEXT")]
    pub comment: String,
    /// Person who closes them [default: the user who runs the command]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

#[derive(Debug, Args)]
pub struct AlertsList {
    /// Only alerts that match all of these: node=g01 'alertname=~"Gpu.*"'
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Only alerts about the jobs of the user who runs the command
    #[arg(long)]
    pub me: bool,
    /// Include alerts of severity "none", which report no fault: Watchdog
    #[arg(long)]
    pub all: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsHistory {
    /// Only this alert
    #[arg(long, value_name = "NAME")]
    pub alert: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Include alerts that became pending and never fired, and those of severity "none"
    #[arg(long, conflicts_with = "messages")]
    pub pending: bool,
    /// Show sent messages and their results instead of alerts
    #[arg(long, conflicts_with_all = ["alert", "node"])]
    pub messages: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsFiles {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AlertsRouteTest {
    /// Labels of the alert: alertname=GpuFellOffBus severity=critical
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
}

#[derive(Debug, Args)]
pub struct AlertsSilence {
    /// Matchers of the silence: node=g01 'alertname=~"Gpu.*"'; without any, existing silences are
    /// listed
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Duration (30m, 2h, 3d)
    #[arg(long = "for", value_name = "DURATION", default_value = "2h")]
    pub duration: String,
    /// Start time: 2026-11-22T08:00 in the cluster's time zone, or 2026-11-22T07:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Reason for the silence
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
    /// Expire the silence with this id
    #[arg(long, value_name = "ID", conflicts_with = "matchers")]
    pub expire: Option<String>,
    /// Output format of the list
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsAck {
    /// Matchers that select active alerts
    #[arg(required = true, value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// How long notifications stay silenced
    #[arg(long = "for", value_name = "DURATION", default_value = "8h")]
    pub duration: String,
    /// Comment, such as the action taken
    #[arg(long, value_name = "TEXT", default_value = "acknowledged")]
    pub comment: String,
}

#[derive(Debug, Args)]
pub struct AlertsTestSend {
    /// Only this channel (receiver/kind/number)
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(mut_arg("listen_address", |arg| arg.default_value("127.0.0.1:9855").help("Address of the exporter, HOST:PORT")))]
pub struct Up {
    /// Address of the web pages and the API
    #[arg(
        long = "listen-address",
        id = "server_address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9856"
    )]
    pub server_address: String,
    /// Seconds between two scrapes
    #[arg(long, value_name = "SECONDS")]
    pub interval_seconds: Option<f64>,
    #[command(flatten)]
    pub exporter: takt_exporter::Options,
}

#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// Number of simulated nodes: 3, 30 or 300
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = demo_nodes)]
    pub nodes: u32,
    /// Address of the web pages and the API [default: 127.0.0.1:9856, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen_address: Option<String>,
    /// Keep the data in this new directory; without it they are deleted at the end
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

fn demo_nodes(text: &str) -> Result<u32, String> {
    let nodes = text.parse().ok();
    nodes
        .filter(|nodes| takt_demo::Size::of(*nodes).is_some())
        .ok_or_else(|| "expected 3, 30 or 300".to_owned())
}

#[derive(Debug, Clone, Args)]
pub struct Init {
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "takt.toml")]
    pub to: PathBuf,
    /// Print the proposal instead of writing it
    #[arg(long)]
    pub dry_run: bool,
    /// Replace an existing file, which is kept as FILE.old
    #[arg(long)]
    pub force: bool,
    /// Directory of Slurm's commands [default: PATH]
    #[arg(long, value_name = "DIR")]
    pub slurm_bin: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct Doctor {
    /// Only checks whose id begins with this: gpu, or gpu.answers
    #[arg(long, value_name = "ID")]
    pub only: Option<String>,
    /// Skip checks whose id begins with this
    #[arg(long, value_name = "ID")]
    pub skip: Option<String>,
    /// List the checks that are in order, too
    #[arg(long, short)]
    pub verbose: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Clone, Args)]
pub struct Backup {
    /// Directory of the backup; it must not exist
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// Directory of the backup
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct DemoSlurm {
    /// URL of the simulated cluster
    pub url: String,
    /// The command of Slurm
    pub program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Address of the web pages and the API [default: server.listen_address]
    #[arg(long, value_name = "ADDRESS")]
    pub listen_address: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Import {
    /// Import the output of `sacct -P`; importing it again changes nothing
    Sacct(ImportSacct),
    /// Import Slurm's job completion file (JobCompType=jobcomp/filetxt)
    Jobcomp(ImportFrom),
}

#[derive(Debug, Args)]
pub struct ImportSacct {
    #[command(flatten)]
    pub from: ImportFrom,
    /// Column names of a file without a header, separated by |
    #[arg(long, value_name = "NAMES", value_delimiter = '|')]
    pub columns: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ImportFrom {
    /// File to read, gzip or plain; - for standard input
    pub file: PathBuf,
    /// Time zone of the file's timestamps, such as Europe/Oslo [default: the configured one, else
    /// the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Cluster name for records that have none
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Action if the runs are already stored, but with times of another time zone
    #[arg(long, value_enum, default_value_t)]
    pub shifted: OnShift,
    /// Output format of the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Subcommand)]
pub enum Report {
    /// CPU-, GPU-, node- and memory-hours, jobs and waiting times
    Usage(ReportUsage),
    /// Efficiency of each job
    Efficiency(ReportSheet),
    /// Allocated but unused hours by cause, with advice
    Waste(ReportSheet),
    /// Monthly report of the cluster
    Cluster(ReportSheet),
    /// Monthly report of an account
    Account(ReportSheet),
    /// Monthly report of a user
    User(ReportSheet),
    /// Send monthly reports that were not sent yet (a running server does this by itself)
    Send(ReportSend),
}

#[derive(Debug, Args)]
pub struct ReportSend {
    /// Month, such as 2026-10 [default: last month]
    #[arg(long, value_name = "YYYY-MM")]
    pub month: Option<String>,
    /// Do not send: print the mails, or write them into the directory of --out
    #[arg(long)]
    pub dry_run: bool,
    /// Directory for the mails, as .eml and .html files
    #[arg(long, value_name = "DIR", requires = "dry_run")]
    pub out: Option<PathBuf>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReportSheet {
    #[command(flatten)]
    pub period: Period,
    /// `report user` without them reports on the user who runs the command.
    #[command(flatten)]
    pub person: Person,
    /// Only this account
    #[arg(long, value_name = "NAME", conflicts_with = "person")]
    pub account: Option<String>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Time zone of the period's days, such as Europe/Oslo [default: the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Maximum number of jobs to list
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Assess {
    #[command(flatten)]
    pub period: Period,
    /// Compute again for jobs that already have an efficiency
    #[arg(long)]
    pub again: bool,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Credit {
    /// Credit the hours that a job lost
    Job(CreditJob),
    /// Revoke a credit
    Revoke(CreditRevoke),
    /// List all credits with author, date and reason
    List(CreditList),
}

#[derive(Debug, Args)]
pub struct CreditJob {
    /// Job id; of a requeued job, the run that a fault ended is credited
    pub id: String,
    /// Submit time of the run (2026-10-02T08:00:00Z), if the job has several lost runs
    #[arg(long, value_name = "TIME")]
    pub submit: Option<jiff::Timestamp>,
    /// Reason for the credit
    #[arg(long)]
    pub reason: String,
    /// GPU-hours to credit [default: all GPU-hours of the run]
    #[arg(long, value_name = "HOURS")]
    pub gpu_hours: Option<f64>,
}

#[derive(Debug, Args)]
pub struct CreditRevoke {
    /// Number of the credit
    pub id: i64,
    /// Reason for the revocation
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct CreditList {
    #[command(flatten)]
    pub person: Person,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct ReportUsage {
    /// Month, such as 2026-10 [default: this month]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start of the period: a date or an instant
    #[arg(long, value_name = "DATE", requires = "to")]
    pub from: Option<String>,
    /// End of the period (exclusive): a date or an instant
    #[arg(long, value_name = "DATE", requires = "from")]
    pub to: Option<String>,
    /// Group by user, account, account_tree (including sub-accounts), partition, qos, node,
    /// gpu_model, state, and one of hour, day, month, year; separate several with commas
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        default_value = "user"
    )]
    pub by: Vec<String>,
    #[command(flatten)]
    pub person: Person,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Time zone of the period's days, such as Europe/Oslo [default: the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Jobs {
    #[command(flatten)]
    pub person: Person,
    /// Only jobs in these states: RUNNING,FAILED or R,F
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Job {
    /// Job id: 123, 123_4, 123+0
    pub id: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Gpus {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only the GPU with this index or UUID
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<String>,
    #[command(flatten)]
    pub person: Person,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Fairshare {
    #[command(flatten)]
    pub person: Person,
    /// Only this account and its sub-accounts
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Explain the user's position and when it changes
    #[arg(long, requires = "person")]
    pub explain: bool,
    /// Show the effect of a job with these resources: cpu=8,gres/gpu=1,mem=64G
    #[arg(long, value_name = "TRES", requires = "person")]
    pub plan: Option<String>,
    /// Run time of the planned job in hours
    #[arg(long, value_name = "HOURS", requires = "plan", default_value_t = 1.0)]
    pub hours: f64,
    /// Partition of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub partition: Option<String>,
    /// Quality of service of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub qos: Option<String>,
    /// Show the history of the last days instead
    #[arg(long, value_name = "DAYS", conflicts_with_all = ["explain", "plan"])]
    pub history: Option<u32>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// A period of whole days.
#[derive(Debug, Clone, Default, Args)]
pub struct Period {
    /// Month, such as 2026-10 [default: this month]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start date
    #[arg(long, value_name = "DATE", requires = "to")]
    pub from: Option<String>,
    /// End date (exclusive)
    #[arg(long, value_name = "DATE", requires = "from")]
    pub to: Option<String>,
}

#[derive(Debug, Args)]
pub struct Capacity {
    #[command(flatten)]
    pub period: Period,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Reconcile {
    #[command(flatten)]
    pub period: Period,
    /// Show differences only
    #[arg(long)]
    pub differences: bool,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Sql {
    /// One SELECT statement; - for standard input
    pub statement: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Query {
    /// The query; - for standard input
    pub promql: String,
    /// Instant: seconds since 1970 or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["start", "end", "step"])]
    pub time: Option<String>,
    /// Start of a range
    #[arg(long, value_name = "TIME", requires = "end", requires = "step")]
    pub start: Option<String>,
    /// End of a range
    #[arg(long, value_name = "TIME", requires = "start")]
    pub end: Option<String>,
    /// Step of a range (15, 1m)
    #[arg(long, value_name = "DURATION", requires = "start")]
    pub step: Option<String>,
    /// Output format; plot needs a range
    #[arg(long, value_enum, default_value_t)]
    pub format: QueryFormat,
}

/// Output format of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    #[default]
    Table,
    Json,
    Csv,
    /// Curves in the terminal
    Plot,
}

#[derive(Debug, Args)]
pub struct Promqltest {
    /// Test scripts
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum RecordsCommand {
    /// List the imports, the newest first
    Imports(StoreListing),
    /// Delete the runs that only this import has stored
    Undo(RecordsUndo),
    /// Delete the records of a job or of a cluster
    Delete(RecordsDelete),
}

#[derive(Debug, Args)]
pub struct RecordsUndo {
    /// Number of the import, from `takt records imports`
    pub id: i64,
}

#[derive(Debug, Args)]
pub struct RecordsDelete {
    /// Job id
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Submit time of the run (2026-10-02T08:00:00Z). Default: all runs of the job
    #[arg(long, value_name = "TIME", requires = "job")]
    pub submit: Option<jiff::Timestamp>,
    /// Cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Confirm the deletion
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// List blocks with their time range, series, rows and bytes
    Stat(StoreListing),
    /// Read every block completely; exit code 1 if one is damaged
    Verify(StoreListing),
    /// Seal all recent samples into blocks now
    Seal(StoreListing),
    /// Delete all samples of a node or of the series that match a selector
    Delete(StoreDelete),
}

#[derive(Debug, Args)]
pub struct StoreListing {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct StoreDelete {
    /// Node whose samples are deleted
    #[arg(long, value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<String>,
    /// A PromQL selector: 'power_watts{gpu="3"}'
    #[arg(long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Confirm the deletion
    #[arg(long)]
    pub yes: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct CheckConfig {
    /// Print the reference page of all keys instead
    #[arg(long)]
    pub reference: bool,
}

/// Treatment of runs that exist with times shifted by a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnShift {
    /// Import nothing and fail
    #[default]
    Refuse,
    /// Replace the existing runs
    Replace,
    /// Keep both as different runs
    Keep,
}

/// Output format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ListingFormat {
    #[default]
    Table,
    Json,
    Csv,
}

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Table,
    Html,
    Csv,
    Json,
    Md,
    /// The HTML page, printed by an installed Chromium
    Pdf,
}

impl From<ReportFormat> for takt_server::reports::ReportFormat {
    fn from(format: ReportFormat) -> Self {
        match format {
            ReportFormat::Table => Self::Table,
            ReportFormat::Html | ReportFormat::Pdf => Self::Html,
            ReportFormat::Csv => Self::Csv,
            ReportFormat::Json => Self::Json,
            ReportFormat::Md => Self::Md,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    /// Runs the checks of clap that need debug assertions, on every command.
    #[test]
    fn flag_names_and_ids_are_unique() {
        let mut command = Cli::command();
        command.clone().debug_assert();
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
        let mut names = BTreeSet::new();
        for command in command.get_subcommands() {
            for name in std::iter::once(command.get_name()).chain(command.get_all_aliases()) {
                assert!(names.insert(name.to_owned()), "{path} {name} comes twice");
            }
            check(command, &format!("{path} {}", command.get_name()));
        }
    }
}
