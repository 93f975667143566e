//! The command line: every command and flag, once.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Monitoring and accounting for a GPU research cluster.
#[derive(Debug, Parser)]
#[command(name = "takt", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub place: Place,
    #[command(subcommand)]
    pub command: Command,
}

/// Where the data and the configuration are.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Data directory. Default: the configuration's, else ./takt-data
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
    /// File with the API token: required from other machines, and for changes
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
    /// Monitor this machine: exporter, server, local Slurm if there is one; nothing to configure
    Up(Up),
    /// Run the server
    Serve(Serve),
    /// Run the exporter of this node
    Exporter(takt_exporter::Options),
    /// Bring job records in
    #[command(subcommand)]
    Import(Import),
    /// Who used what
    #[command(subcommand)]
    Report(Report),
    /// Judge how well runs that have ended used what they held; a server does so by itself
    Assess(Assess),
    /// Give hours back that a fault cost
    #[command(subcommand)]
    Credit(Credit),
    /// List job runs, the newest first
    Jobs(Jobs),
    /// Show every run of one job
    Job(Job),
    /// Who is on which GPU right now, with what, and whether it works
    Gpus(Gpus),
    /// Who stands where in fair share, and why
    Fairshare(Fairshare),
    /// What the cluster had in a period: held, down, waited for, idle, stranded
    Capacity(Capacity),
    /// Compare with what sreport says, and name the reason of each difference
    Reconcile(Reconcile),
    /// Ask in SQL (read-only); tables: jobs, samples, series
    Sql(Sql),
    /// Ask in PromQL, at one instant or over a range
    Query(Query),
    /// Run PromQL test scripts in the language of Prometheus' own
    Promqltest(Promqltest),
    /// Alerts: what fires, what was told, rules, silences
    #[command(subcommand)]
    Alerts(Alerts),
    /// Look after the samples on disk
    #[command(subcommand)]
    Store(StoreCommand),
    /// List and undo imports, delete job records
    #[command(subcommand)]
    Records(RecordsCommand),
    /// Check the configuration and print what is in force
    CheckConfig(CheckConfig),
}

#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// What fires now (asks the server)
    List(AlertsList),
    /// What happened: every step of every alert, the newest first
    History(AlertsHistory),
    /// Check rule files (Prometheus' format, *.events.yml) and alertmanager.yml files
    Check(AlertsFiles),
    /// Run promtool's test files on our engine
    Test(AlertsFiles),
    /// Say who would be told of an alert with these labels
    RouteTest(AlertsRouteTest),
    /// Set, list or end silences (asks the server)
    Silence(AlertsSilence),
    /// Acknowledge: silence the alerts that fire now and that these conditions choose
    Ack(AlertsAck),
    /// Send a message by every channel and say what came of it
    TestSend(AlertsTestSend),
}

#[derive(Debug, Args)]
pub struct AlertsList {
    /// Only alerts that all of these choose: node=g01 'alertname=~"Gpu.*"'
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// How it is printed
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
    /// Messages and what became of them, instead of alerts
    #[arg(long, conflicts_with_all = ["alert", "node"])]
    pub messages: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// How it is printed
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
    /// Conditions on the alerts: node=g01 'alertname=~"Gpu.*"'; nothing lists the silences there are
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// How long (30m, 2h, 3d)
    #[arg(long = "for", value_name = "DURATION", default_value = "2h")]
    pub duration: String,
    /// When it begins, if not now (2026-11-22T08:00 here, 2026-11-22T07:00Z)
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
    /// End the silence with this id
    #[arg(long, value_name = "ID", conflicts_with = "matchers")]
    pub expire: Option<String>,
    /// How the list is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsAck {
    /// Conditions that choose among the alerts that fire now
    #[arg(required = true, value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// For how long nothing more is told of them
    #[arg(long = "for", value_name = "DURATION", default_value = "8h")]
    pub duration: String,
    /// What is being done
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
    /// Address of the web page and the API
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
pub struct Serve {
    /// Address of the web page and the API; else the configuration's
    #[arg(long, value_name = "ADDRESS")]
    pub listen_address: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Import {
    /// Import what `sacct -P` printed; importing twice changes nothing
    Sacct(ImportSacct),
    /// Import the file in which Slurm notes ended jobs (JobCompType=jobcomp/filetxt)
    Jobcomp(ImportFrom),
}

#[derive(Debug, Args)]
pub struct ImportSacct {
    #[command(flatten)]
    pub from: ImportFrom,
    /// The columns of a file without a header, separated by |
    #[arg(long, value_name = "NAMES", value_delimiter = '|')]
    pub columns: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ImportFrom {
    /// File to read, gzip or plain; - for standard input
    pub file: PathBuf,
    /// Time zone of the file (such as Europe/Oslo). Default: the configured one, else the cluster's
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Cluster of the records where they do not name it
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// What to do if runs are stored already, but at times of another time zone
    #[arg(long, value_enum, default_value_t)]
    pub shifted: OnShift,
    /// How the summary is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Subcommand)]
pub enum Report {
    /// Usage of a period: CPU-, GPU-, node- and memory-hours, jobs and waiting
    Usage(ReportUsage),
    /// How well runs used what they held, one by one
    Efficiency(ReportSheet),
    /// What was held and not used, by cause, and what to change
    Waste(ReportSheet),
    /// The whole cluster's month
    Cluster(ReportSheet),
    /// An account's month, for those who answer for it
    Account(ReportSheet),
    /// A user's month
    User(ReportSheet),
    /// Send the month's reports to all who get one and do not have it yet; a server does so by itself
    Send(ReportSend),
}

#[derive(Debug, Args)]
pub struct ReportSend {
    /// Month to report (2026-10); last month where this is left out
    #[arg(long, value_name = "YYYY-MM")]
    pub month: Option<String>,
    /// Send nothing: print the mails, or write them into the directory of --out
    #[arg(long)]
    pub dry_run: bool,
    /// Directory for the mails, each as .eml and .html
    #[arg(long, value_name = "DIR", requires = "dry_run")]
    pub out: Option<PathBuf>,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReportSheet {
    #[command(flatten)]
    pub period: Period,
    /// Only this user's; `report user` takes whoever runs it where this is left out
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only this account's
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    pub account: Option<String>,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Most runs to list
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Assess {
    #[command(flatten)]
    pub period: Period,
    /// Those that were assessed already as well
    #[arg(long)]
    pub again: bool,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Credit {
    /// Give back the hours that a job lost
    Job(CreditJob),
    /// Take a credit back
    Revoke(CreditRevoke),
    /// List all credits, with who gave them, when and why
    List(CreditList),
}

#[derive(Debug, Args)]
pub struct CreditJob {
    /// Job id; of a requeued job, the run that a fault ended is credited
    pub id: String,
    /// Submit time of the run (2026-10-02T08:00:00Z), if the job has several lost runs
    #[arg(long, value_name = "TIME")]
    pub submit: Option<jiff::Timestamp>,
    /// Why
    #[arg(long)]
    pub reason: String,
    /// GPU-hours to give back; all that the run held where this is left out
    #[arg(long, value_name = "HOURS")]
    pub gpu_hours: Option<f64>,
}

#[derive(Debug, Args)]
pub struct CreditRevoke {
    /// The credit's number
    pub id: i64,
    /// Why
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct CreditList {
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct ReportUsage {
    /// Month to report (2026-10); this month where no period is given
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// First day, or instant, of the period
    #[arg(long, value_name = "DATE", requires = "to")]
    pub from: Option<String>,
    /// End of the period: the first day, or instant, that is outside
    #[arg(long, value_name = "DATE", requires = "from")]
    pub to: Option<String>,
    /// Group by: user, account, account_tree (with those below), partition, qos, node, gpu_model, state, and one of hour,
    /// day, month, year (several with commas)
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        default_value = "user"
    )]
    pub by: Vec<String>,
    /// Only this user's runs
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Jobs {
    /// Only this user's runs
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only runs in these states, with commas: RUNNING, FAILED, … or R, F, …
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Job {
    /// Job id: 123, 123_4, 123+0
    pub id: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Gpus {
    /// Only this node's
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only the GPU of this number, or UUID
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<String>,
    /// Only this user's
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Fairshare {
    /// Only this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only this account and what is below it
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Say in words why the user stands there, and when that changes
    #[arg(long, requires = "user")]
    pub explain: bool,
    /// What a job would do to the user's standing: what it would hold (cpu=8,gres/gpu=1,mem=64G)
    #[arg(long, value_name = "TRES", requires = "user")]
    pub plan: Option<String>,
    /// Hours that the planned job would run
    #[arg(long, value_name = "HOURS", requires = "plan", default_value_t = 1.0)]
    pub hours: f64,
    /// Partition of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub partition: Option<String>,
    /// Quality of service of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub qos: Option<String>,
    /// Show how it was in the last days instead
    #[arg(long, value_name = "DAYS", conflicts_with_all = ["explain", "plan"])]
    pub history: Option<u32>,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// A period of whole days.
#[derive(Debug, Clone, Default, Args)]
pub struct Period {
    /// Month (2026-10); this month where no period is given
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// First day of the period
    #[arg(long, value_name = "DATE", requires = "to")]
    pub from: Option<String>,
    /// End of the period: the first day that is outside
    #[arg(long, value_name = "DATE", requires = "from")]
    pub to: Option<String>,
}

#[derive(Debug, Args)]
pub struct Capacity {
    #[command(flatten)]
    pub period: Period,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Reconcile {
    #[command(flatten)]
    pub period: Period,
    /// Only what differs
    #[arg(long)]
    pub differences: bool,
    /// Which cluster, where records of several are kept
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Sql {
    /// One SELECT statement; - for standard input
    pub statement: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct Query {
    /// The query; - for standard input
    pub promql: String,
    /// Instant: seconds since 1970 or RFC 3339; now where nothing is given
    #[arg(long, value_name = "TIME", conflicts_with_all = ["start", "end", "step"])]
    pub time: Option<String>,
    /// First instant of a range
    #[arg(long, value_name = "TIME", requires = "end", requires = "step")]
    pub start: Option<String>,
    /// Last instant of a range
    #[arg(long, value_name = "TIME", requires = "start")]
    pub end: Option<String>,
    /// Time between two instants of a range (15, 1m)
    #[arg(long, value_name = "DURATION", requires = "start")]
    pub step: Option<String>,
    /// How it is printed; plot is for a range
    #[arg(long, value_enum, default_value_t)]
    pub format: QueryFormat,
}

/// How the answer to a query is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    #[default]
    Table,
    Json,
    Csv,
    /// Curves on a terminal
    Plot,
}

#[derive(Debug, Args)]
pub struct Promqltest {
    /// Scripts
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
    /// List the blocks: time, series, rows, bytes
    Stat(StoreListing),
    /// Read every block to its end; exit code 1 where one is damaged
    Verify(StoreListing),
    /// Seal all hot samples into blocks now
    Seal(StoreListing),
    /// Delete the samples of a node, or of the series that a selector matches
    Delete(StoreDelete),
}

#[derive(Debug, Args)]
pub struct StoreListing {
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct StoreDelete {
    /// The node
    #[arg(long, value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<String>,
    /// A PromQL selector: 'power_watts{gpu="3"}'
    #[arg(long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Yes, delete them
    #[arg(long)]
    pub yes: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct CheckConfig {
    /// Print the page that explains every key instead
    #[arg(long)]
    pub reference: bool,
}

/// What becomes of runs that are known in another time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnShift {
    /// Nothing is imported
    #[default]
    Refuse,
    /// They are forgotten as they were known
    Replace,
    /// They are other runs
    Keep,
}

/// How a listing is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ListingFormat {
    #[default]
    Table,
    Json,
    Csv,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Table,
    Html,
    Csv,
    Json,
    Md,
}

impl From<ReportFormat> for takt_server::reports::ReportFormat {
    fn from(format: ReportFormat) -> Self {
        match format {
            ReportFormat::Table => Self::Table,
            ReportFormat::Html => Self::Html,
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

    /// What clap itself checks only where debug assertions are compiled, of every command.
    #[test]
    fn no_two_flags_are_taken_for_one_another() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        command.build();
        check(&command, "takt");
    }

    fn check(command: &clap::Command, path: &str) {
        let (mut ids, mut words) = (BTreeSet::new(), BTreeSet::new());
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
            // Panics where it is said to exclude one that is not there.
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
