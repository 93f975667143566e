//! `takt.toml`: reads the file and checks it once, so that the rest of the program can trust it.

mod current;
mod doubts;
mod mistake;
mod named;
mod readable;
mod readers;
mod values;

use crate::doctor::AcceptedFindings;
use crate::remote_write::RemoteWriteConfig;
use anyhow::{Context, bail};
pub(crate) use current::Unread;
pub use current::{CurrentConfig, Source};
use jiff::tz::TimeZone;
pub use readable::server_part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use takt_access::Privacy;
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::{BudgetConfig, PolicyWindow, RatesConfig};
use takt_alerts::config::AlertsConfig;
use takt_collector::push::PushConfig;
use takt_collector::schedulers::{JobsConfig, SharesConfig};
use takt_collector::scrape::ScrapeConfig;
use takt_identity::{AuthConfig, read_token};
use takt_lake::LakeConfig;
use takt_mail::EmailConfig;
use takt_model::ConfigError;
use takt_postgres::SqlConfig;
use takt_probe::{DeviceConfig, check_devices};
use takt_questions::{AccountingConfig, QueryConfig, ViewConfig};
use takt_reports::ReportsConfig;
use takt_store::StoreConfig;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use values::{Mistake, Value};

/// The whole configuration. Every key is optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the cluster: the label `cluster` of every series and job. Default: `ClusterName` of
    /// the local Slurm, or `local` without Slurm.
    pub cluster: Option<String>,
    /// Data directory, on a local disk, relative to this file. Default: `./takt-data`.
    pub data_dir: Option<PathBuf>,
    /// Time zone of the cluster: of the days and months in reports, and of imported files without
    /// `--timezone`. Default: the system's.
    pub timezone: Option<String>,
    /// The web page and the API.
    pub server: ServerConfig,
    /// Sign-in, roles, and what users see of each other.
    pub auth: AuthConfig,
    /// SQL over HTTP and over PostgreSQL's protocol.
    pub sql: SqlConfig,
    /// Limits of one PromQL query. The equivalent Prometheus flag is in brackets.
    pub query: QueryConfig,
    /// Other servers of Takt that are shown together.
    pub view: ViewConfig,
    /// Scraping: targets, intervals and limits.
    pub scrape: ScrapeConfig,
    /// Storage of samples and records.
    pub store: StoreConfig,
    /// Sources of job records.
    pub jobs: JobsConfig,
    /// Fair share for a cluster without slurmdbd. If `accounts` is set, Slurm's own shares are
    /// ignored.
    pub fairshare: SharesConfig,
    /// Outgoing mail for alerts and reports.
    pub email: EmailConfig,
    /// Alerts: rules and notification channels.
    pub alerts: AlertsConfig,
    /// Thresholds for the efficiency of finished jobs: idle, wasteful, measured.
    pub efficiency: EfficiencyConfig,
    /// Prices of GPUs, CPUs, memory and energy.
    pub rates: RatesConfig,
    /// Budgets of users and accounts. Takt warns when 50, 80 and 100 % are used.
    pub budgets: Vec<BudgetConfig>,
    /// Hours in which no job may run on certain nodes. Reports list the jobs that did.
    pub policy_windows: Vec<PolicyWindow>,
    /// The monthly reports: recipients and schedule.
    pub reports: ReportsConfig,
    /// Findings of `takt doctor`.
    pub doctor: AcceptedFindings,
    /// Programs that push samples, by Prometheus remote write or OTLP.
    pub push: PushConfig,
    /// Other systems that get the stored samples by Prometheus remote write.
    pub remote_write: Vec<RemoteWriteConfig>,
    /// Switches, PDUs and UPSes that the server asks itself (docs/devices.md).
    pub devices: Vec<DeviceConfig>,
    /// The data lake: a folder with copies of all finished days as Parquet tables with a Delta log,
    /// which other engines read (docs/lake.md).
    pub lake: LakeConfig,
    /// The file of this configuration; `None` for the defaults.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// The web page and the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port. Any address but loopback requires `token_file`.
    pub listen_address: String,
    /// Unix socket for commands on this machine; the kernel names the user at the other end.
    /// Empty: none. Default: `/run/takt/takt.sock`, if the server may write there.
    pub socket_file: Option<PathBuf>,
    /// File with the API token (one line), required for changes and for requests from other
    /// machines. Not in the data directory.
    pub token_file: Option<PathBuf>,
    /// File with a second token that allows reading only, for other machines. Not in the data
    /// directory.
    pub read_token_file: Option<PathBuf>,
    /// Memory that queries, answers until they are read, statements, and pushed requests may hold
    /// together, in MiB; one user has half of it, all users three quarters: the rest is for pushes
    /// and administrators. A request for which it is short waits for five seconds and is then
    /// refused. At least 64; the largest results of SQL, of 64 MiB, need 128.
    pub memory_budget_mib: u64,
}

/// Smallest memory budget, in MiB.
const LEAST_BUDGET_MIB: u64 = 64;

/// Largest memory budget, in MiB: one TiB.
const MOST_BUDGET_MIB: u64 = 1 << 20;

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen_address: "127.0.0.1:9856".into(),
            socket_file: None,
            token_file: None,
            read_token_file: None,
            memory_budget_mib: 512,
        }
    }
}

pub use readers::ServiceUser;
use std::fs;
use std::io;
use takt_jobs::time_zone;

impl Config {
    /// URL of the server that people use: `alerts.external_url`, else `auth.external_url`.
    pub fn public_url(&self) -> Option<&str> {
        self.alerts
            .external_url
            .as_deref()
            .or(self.auth.external_url.as_deref())
    }

    /// The configured files with passwords, tokens and keys, each with its key. `read_token_file` is
    /// not one of them: users share it.
    fn secret_files(&self) -> impl Iterator<Item = (String, &Path)> {
        let files = [
            ("server.token_file", &self.server.token_file),
            ("sql.password_file", &self.sql.password_file),
            ("sql.tls_key_file", &self.sql.tls_key_file),
            ("email.password_file", &self.email.password_file),
            ("alerts.slack_token_file", &self.alerts.slack_token_file),
            ("alerts.slack_webhook_file", &self.alerts.slack_webhook_file),
            ("alerts.ntfy_token_file", &self.alerts.ntfy_token_file),
            (
                "reports.slack_webhook_file",
                &self.reports.slack_webhook_file,
            ),
            (
                "jobs.slurmrestd.token_file",
                &self.jobs.slurmrestd.token_file,
            ),
            ("lake.s3.credentials_file", &self.lake.s3.credentials_file),
        ];

        let files = files
            .into_iter()
            .filter_map(|(key, file)| Some((key.to_owned(), file.as_deref()?)));
        let of_sections = self.query.secret_files().chain(self.auth.secret_files());
        let of_destinations = self.remote_write.iter().enumerate().flat_map(|(at, one)| {
            let files = one.secret_files();
            files.map(move |(key, file)| (format!("remote_write[{at}].{key}"), file))
        });
        let of_devices = self.devices.iter().enumerate().flat_map(|(at, one)| {
            let files = one.secret_files();
            files.map(move |(key, file)| (format!("devices[{at}].{key}"), file))
        });
        let senders = self.push.senders.iter().enumerate();
        let of_senders = senders.map(|(at, sender)| {
            let key = format!("push.senders[{at}].token_file");
            (key, sender.token_file.as_path())
        });

        files
            .chain(of_sections.map(|(key, file)| (key.to_owned(), file)))
            .chain(self.scrape.secret_files())
            .chain(self.view.secret_files())
            .chain(of_destinations)
            .chain(of_devices)
            .chain(of_senders)
    }

    /// Returns the files with secrets that every user can read.
    pub fn open_secrets(&self) -> Vec<PathBuf> {
        self.secret_files()
            .filter(|(_, file)| is_world_readable(file))
            .map(|(_, file)| file.to_owned())
            .collect()
    }

    /// Logs a warning for each file with a secret that every user can read, and for each key that
    /// names what cannot be used.
    pub fn warn_of_files(&self, data_dir: &Path) {
        for error in self.unusable(data_dir) {
            tracing::warn!("{:#}", self.located(&error));
        }
        for file in self.open_secrets() {
            let file = file.display();
            tracing::warn!("every user can read the secret in {file}: chmod o-rwx {file}");
        }
    }

    /// Returns the server's token and its token for reading.
    ///
    /// # Errors
    /// If a file has no valid token. The message names the line.
    pub fn server_tokens(&self) -> anyhow::Result<(String, Option<String>)> {
        let wrong = |key| {
            move |error: anyhow::Error| {
                let error = ConfigError::with_problem(key, format!("{error:#}"));
                self.located(&error.in_section("server"))
            }
        };

        let token = self.server.token().map_err(wrong("token_file"))?;

        let read_token = self.server.read_token().map_err(wrong("read_token_file"))?;
        // One token for both would give every reader the rights of an administrator.
        if read_token.as_ref() == Some(&token) {
            let problem = "expected a token of its own, found that of server.token_file, with which one may change everything";
            return Err(wrong("read_token_file")(anyhow::anyhow!(problem)));
        }
        Ok((token, read_token))
    }

    /// Returns the token and the name of each program that pushes samples.
    ///
    /// # Errors
    /// If a file has no valid token, or the token of another program. The message names the line.
    pub fn sender_tokens(&self) -> anyhow::Result<Vec<(String, Arc<str>)>> {
        let mut tokens: Vec<(String, Arc<str>)> = Vec::new();
        // An unreadable token of the server is reported by `server_tokens`.
        let of_server = self.server.token_file.as_deref().map(read_token);
        let of_server = of_server.and_then(Result::ok);
        for (at, sender) in self.push.senders.iter().enumerate() {
            let name = &sender.name;
            let wrong = |problem: String| {
                let error = ConfigError::with_problem("token_file", problem);
                let error = error.in_list(&format!("senders, {name}: "), "senders", at);
                self.located(&error.in_section("push"))
            };

            let token =
                read_token(&sender.token_file).map_err(|error| wrong(format!("{error:#}")))?;
            // With equal tokens, the samples of one sender would have the name of the other.
            if let Some((_, other)) = tokens.iter().find(|(known, _)| *known == token) {
                let problem = format!("expected a token for each sender, found that of {other}");
                return Err(wrong(problem));
            }
            if of_server.as_ref() == Some(&token) {
                let problem = "expected a token of its own, found that of server.token_file";
                return Err(wrong(problem.to_owned()));
            }
            tokens.push((token, name.as_str().into()));
        }
        Ok(tokens)
    }

    /// Reads the files with tokens, passwords and certificates of other engines, as the server does.
    ///
    /// # Errors
    /// If a file cannot be read or used. The message names the line.
    pub fn check_engines(&self) -> anyhow::Result<()> {
        for (at, destination) in self.remote_write.iter().enumerate() {
            destination.http_options().map_err(|error| {
                let error = ConfigError::with_problem("url", format!("{error:#}"));
                let place = format!("remote_write, {}: ", destination.name());
                self.located(&error.in_list(&place, "remote_write", at))
            })?;
        }

        self.query.http_options().map(drop).map_err(|error| {
            let error = ConfigError::with_problem("remote", format!("{error:#}"));
            self.located(&error.in_section("query"))
        })
    }

    /// Adds the file, and the line of the key, if the configuration is of a file.
    pub fn located(&self, error: &ConfigError) -> anyhow::Error {
        match &self.file {
            Some(file) => {
                // The text is read again: the configuration does not keep it.
                let text = fs::read_to_string(file).unwrap_or_default();
                mistake::locate(error, &text, file)
            }
            None => anyhow::anyhow!("{error}"),
        }
    }

    /// Checks that the service's user can read the configured files with passwords, tokens and keys.
    /// Commands of root can read every file, so that a wrong owner would stay unnoticed until the
    /// server starts.
    ///
    /// # Errors
    /// If a file exists that the user cannot read.
    pub fn check_secrets_of(&self, user: &ServiceUser) -> anyhow::Result<()> {
        let shared = self.server.read_token_file.as_deref();
        let secret = self.secret_files().map(|(_, file)| file);

        for file in secret.chain(shared) {
            if let Some(closed) = user.closed_path(file) {
                bail!(
                    "the user {name} cannot read {file}: change the \
                     permissions of {closed}: sudo chown root:{group} {closed} && sudo chmod {mode} \
                     {closed}",
                    name = user.name(),
                    group = user.name(),
                    file = file.display(),
                    mode = if closed.is_dir() { "750" } else { "640" },
                    closed = closed.display(),
                );
            }
        }
        Ok(())
    }

    /// Parses and checks a configuration. Messages name `path`, and relative paths start at its
    /// folder.
    ///
    /// # Errors
    /// The mistakes, a line for each: the first of each section.
    pub fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        let mut config = Self::read(text).map_err(|mistakes| {
            let said = mistakes
                .iter()
                .map(|mistake| mistake::explain(mistake, text, path));
            in_lines(said)
        })?;

        let base = path.parent().unwrap_or(Path::new(""));

        // A key that is missing in these lists would be relative to the working directory.
        let Self {
            data_dir,
            server,
            auth,
            sql,
            query,
            view,
            email,
            alerts,
            jobs,
            reports,
            remote_write,
            push,
            devices,
            ..
        } = &mut config;

        let files = [
            data_dir,
            &mut server.token_file,
            &mut server.read_token_file,
            &mut email.password_file,
            &mut email.ca_file,
        ];
        let of_jobs = [
            &mut jobs.slurm_bin,
            &mut jobs.jobcomp_file,
            &mut jobs.slurmrestd.token_file,
        ];
        let of_alerts = [
            &mut alerts.slack_token_file,
            &mut alerts.slack_webhook_file,
            &mut alerts.ntfy_token_file,
            &mut alerts.alertmanager_file,
            &mut reports.slack_webhook_file,
        ];

        let files = files
            .into_iter()
            .chain(sql.files())
            .chain(query.files())
            .chain(view.files())
            .chain(of_jobs)
            .chain(of_alerts)
            .chain(auth.files())
            .chain(remote_write.iter_mut().flat_map(RemoteWriteConfig::files))
            .chain(devices.iter_mut().flat_map(DeviceConfig::files))
            .flatten();

        let of_senders = push.senders.iter_mut().map(|sender| &mut sender.token_file);
        for relative in files.chain(&mut alerts.rule_dirs).chain(of_senders) {
            *relative = base.join(&*relative);
        }
        // An empty path turns the socket off.
        if let Some(socket) = &mut server.socket_file
            && !socket.as_os_str().is_empty()
        {
            *socket = base.join(&*socket);
        }
        // A slash at the end would be doubled in the addresses of queries.
        if let Some(url) = &mut query.remote {
            url.truncate(url.trim_end_matches('/').len());
        }

        config.scrape.resolve_paths(base);
        config.lake.resolve_paths(base);

        let mistakes = config.mistakes();
        if mistakes.is_empty() {
            return Ok(config);
        }
        let said = mistakes
            .iter()
            .map(|error| mistake::locate(error, text, path));
        Err(in_lines(said))
    }

    /// Reads the values of a text: all of it, or the mistakes.
    fn read(text: &str) -> Result<Self, Vec<Mistake>> {
        let table = DeTable::parse(text).map_err(|error| vec![error.into()])?;
        let span = table.span();

        let whole = Spanned::new(span.clone(), DeValue::Table(table.into_inner()));
        Self::deserialize(Value(&whole)).map_err(|first| {
            // Reading stops at the first mistake, so each section is read for itself.
            // Nothing but a table can be at the top, so this is never taken.
            let DeValue::Table(table) = whole.into_inner() else {
                return vec![first];
            };
            // A copy of the table with one section: the others are as if they were left out.
            let sections = table.into_iter().map(|section| {
                let section = DeTable::from_iter([section]);
                Spanned::new(span.clone(), DeValue::Table(section))
            });
            let mut mistakes: Vec<Mistake> = sections
                .filter_map(|section| Self::deserialize(Value(&section)).err())
                .collect();
            // The order of the text, since a table is sorted by its keys.
            mistakes.sort_by_key(|mistake| mistake.start);
            mistakes
        })
    }

    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first of [`Config::mistakes`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.mistakes().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the first key with an invalid value of each section, and of the keys above them.
    pub fn mistakes(&self) -> Vec<ConfigError> {
        let in_section = |name, checked: Result<(), ConfigError>| {
            checked.map_err(|error| error.in_section(name))
        };

        let has_email = self.email.is_set();
        let store = in_section("store", self.store.validate());
        // Ages are compared with the retention, if that is right.
        let (push, remote_write) = match store {
            Ok(()) => (
                in_section("push", self.push.validate(self.store.retention_days)),
                self.validate_remote_write(),
            ),
            Err(_) => (Ok(()), Ok(())),
        };

        let checked = [
            self.validate_names(),
            in_section("server", self.server.validate()),
            in_section("auth", self.auth.validate()),
            in_section(
                "sql",
                self.sql.validate().and_then(|()| self.validate_sql()),
            ),
            in_section("query", self.query.validate()),
            in_section("view", self.view.validate()),
            in_section("scrape", self.scrape.validate()),
            store,
            in_section("jobs", self.jobs.validate()),
            in_section("fairshare", self.fairshare.validate()),
            in_section("email", self.email.validate()),
            in_section("alerts", self.alerts.validate(has_email)),
            in_section("efficiency", self.efficiency.validate()),
            in_section("rates", self.rates.validate()),
            self.validate_budgets(),
            self.validate_policy_windows(),
            in_section("reports", self.reports.validate()),
            in_section("doctor", self.doctor.validate()),
            in_section("lake", self.lake.validate()),
            push,
            remote_write,
            check_devices(&self.devices),
            self.validate_mails(),
        ];

        checked.into_iter().filter_map(Result::err).collect()
    }

    /// Checks the keys above the sections.
    fn validate_names(&self) -> Result<(), ConfigError> {
        if let Some(cluster) = &self.cluster
            && cluster.trim().is_empty()
        {
            let found = "nothing; leave the key out for the default";
            // An empty name would be a label that Prometheus treats as absent.
            return Err(ConfigError::new("cluster", "a name", found));
        }
        if let Some(name) = &self.timezone {
            time_zone(name).map_err(|error| ConfigError::with_problem("timezone", error))?;
        }
        Ok(())
    }

    /// Checks that SQL and the pages can listen beside each other.
    fn validate_sql(&self) -> Result<(), ConfigError> {
        let Some(text) = self.sql.address() else {
            return Ok(());
        };
        let addresses = [text, &self.server.listen_address].map(str::parse::<SocketAddr>);
        let [Ok(sql), Ok(server)] = addresses else {
            return Ok(());
        };

        let [of_sql, of_server] = [sql.ip(), server.ip()];
        // An address for all interfaces takes the port of each of them.
        let is_same_ip =
            of_sql == of_server || of_sql.is_unspecified() || of_server.is_unspecified();

        if sql.port() != server.port() || sql.port() == 0 || !is_same_ip {
            return Ok(());
        }
        let expected = format!(
            "an address other than server.listen_address = \"{server}\", or \"\" for no SQL"
        );
        Err(ConfigError::new("listen_address", expected, text))
    }

    fn validate_policy_windows(&self) -> Result<(), ConfigError> {
        for (at, window) in self.policy_windows.iter().enumerate() {
            window
                .validate()
                .map_err(|error| error.in_list("policy_windows: ", "policy_windows", at))?;
        }
        Ok(())
    }

    /// Checks that mails which are asked for can be sent.
    fn validate_mails(&self) -> Result<(), ConfigError> {
        let mails = [
            ("reports.send", self.reports.send),
            ("reports.weekly", self.reports.weekly),
        ];
        match mails
            .iter()
            .find(|(_, is_on)| *is_on && !self.email.is_set())
        {
            Some((key, _)) => Err(ConfigError::new(key, "a mail server in [email]", "none")),
            None => Ok(()),
        }
    }

    fn validate_budgets(&self) -> Result<(), ConfigError> {
        for (at, budget) in self.budgets.iter().enumerate() {
            let in_budget = |error: ConfigError| error.in_list("budgets: ", "budgets", at);
            budget.validate().map_err(in_budget)?;
            // A budget of money needs prices, or nothing would ever be used of it.
            if budget.money.is_some() && self.rates.cards.is_empty() {
                let error = ConfigError::new("money", "prices in [[rates.cards]]", "none");
                return Err(in_budget(error));
            }
        }
        Ok(())
    }

    fn validate_remote_write(&self) -> Result<(), ConfigError> {
        for (at, destination) in self.remote_write.iter().enumerate() {
            destination
                .validate(self.store.retention_days)
                .map_err(|error| {
                    let place = format!("remote_write, number {}: ", at + 1);
                    error.in_list(&place, "remote_write", at)
                })?;

            let name = destination.name();
            // Positions in the store and metrics are by name.
            if self.remote_write[..at].iter().any(|one| one.name() == name) {
                let problem = format!("two destinations have the name {name}; set another name");
                return Err(ConfigError::with_problem("remote_write", problem));
            }
        }
        Ok(())
    }

    /// Time zone of the cluster: `timezone`, else the system's. `validate` has refused unknown
    /// names.
    pub fn zone(&self) -> TimeZone {
        self.timezone
            .as_deref()
            .and_then(|name| time_zone(name).ok())
            .unwrap_or_else(TimeZone::system)
    }

    /// Returns the part that accounting needs.
    pub fn accounting(&self) -> AccountingConfig {
        AccountingConfig {
            efficiency: self.efficiency.clone(),
            rates: self.rates.clone(),
            budgets: self.budgets.clone(),
            policy_windows: self.policy_windows.clone(),
            cluster: self.cluster.clone(),
            home: self.cluster.clone(),
            timezone: self.timezone.clone(),
            // A user who may not see the usage of others must not see their names in a ranking.
            pseudonyms: if self.reports.pseudonyms {
                Some(true)
            } else {
                self.auth.privacy.level().map(|level| level > Privacy::Open)
            },
        }
    }

    /// Returns whether job owners can get mail: a mail server and at least one address are
    /// configured.
    pub fn knows_owners(&self) -> bool {
        self.email.is_set() && (self.reports.domain.is_some() || !self.reports.addresses.is_empty())
    }
}

impl ServerConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let text = &self.listen_address;
        let address = text.parse::<SocketAddr>().map_err(|error| {
            let expected = "address:port such as 127.0.0.1:9856";
            ConfigError::new("listen_address", expected, format!("{text:?}: {error}"))
        })?;

        if !address.ip().is_loopback() && self.token_file.is_none() {
            let problem =
                format!("{text} is reachable from other machines, which requires a token_file");
            return Err(ConfigError::with_problem("listen_address", problem));
        }

        let budget = self.memory_budget_mib;
        if !(LEAST_BUDGET_MIB..=MOST_BUDGET_MIB).contains(&budget) {
            let expected = format!("{LEAST_BUDGET_MIB} to {MOST_BUDGET_MIB}");
            return Err(ConfigError::new("memory_budget_mib", expected, budget));
        }
        Ok(())
    }

    /// Memory that clients may make the server hold, in bytes.
    pub fn memory_budget_bytes(&self) -> u64 {
        self.memory_budget_mib << 20
    }

    /// Returns the token in `token_file`, or a random token, which commands on this machine read
    /// from the lock file.
    pub fn token(&self) -> anyhow::Result<String> {
        self.token_file
            .as_deref()
            .map_or_else(random_token, read_token)
    }

    /// Returns the token in `read_token_file`, if that is set.
    pub fn read_token(&self) -> anyhow::Result<Option<String>> {
        self.read_token_file.as_deref().map(read_token).transpose()
    }
}

/// Puts several messages into one, a line for each.
pub fn in_lines(errors: impl IntoIterator<Item = anyhow::Error>) -> anyhow::Error {
    let lines: Vec<String> = errors
        .into_iter()
        .map(|error| format!("{error:#}"))
        .collect();
    anyhow::anyhow!("{}", lines.join("\n"))
}

fn is_world_readable(path: &Path) -> bool {
    let found = fs::metadata(path);
    // A missing file is another mistake, which `missing` reports.
    found.is_ok_and(|found| found.is_file() && found.mode() & 0o004 != 0)
}

fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 24];
    let mut source = fs::File::open("/dev/urandom").context("cannot create a token")?;
    io::Read::read_exact(&mut source, &mut bytes).context("cannot create a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::fs;
    use tempfile::tempdir;

    fn document(name: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(name);
        fs::read_to_string(root).unwrap()
    }

    /// In the example, `#key` is a disabled key, and `# text` is a comment.
    #[test]
    fn the_example_is_valid_as_shipped_and_with_everything_switched_on() {
        let example = document("docs/takt.example.toml");
        let path = Path::new("docs/takt.example.toml");
        let shipped = Config::parse(&example, path).unwrap();

        let switched_on: String = example
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') => format!("{key}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let switched_on = Config::parse(&switched_on, path).unwrap();
        assert!(!shipped.email.is_set() && switched_on.email.is_set());
    }

    /// People append the lines from a documentation page to their copy of the example.
    #[test]
    fn lines_of_the_pages_can_be_appended_to_the_example() {
        let example = document("docs/takt.example.toml");

        for page in ["README.md", "docs/install.md", "docs/monthly-reports.md"] {
            let text = document(page);
            // Only blocks of TOML. A block in a page may be a part of the file, with its tables.
            for block in text
                .split("```toml\n")
                .skip(1)
                .filter_map(|rest| rest.split("```").next())
            {
                let both = format!("{example}\n{block}");
                Config::parse(&both, Path::new(page)).unwrap();
            }
        }
    }

    #[test]
    fn names_in_rankings_follow_the_privacy_setting() {
        let hidden = |text: &str| {
            let config = Config::parse(text, Path::new("takt.toml")).unwrap();
            config.accounting().pseudonyms
        };

        assert_eq!(hidden(""), None, "Slurm's PrivateData decides");
        assert_eq!(hidden("auth.privacy = 'open'"), Some(false));
        for text in [
            "auth.privacy = 'usage'",
            "auth.privacy = 'private'",
            "auth.privacy = 'open'\nreports.pseudonyms = true",
            "reports.pseudonyms = true",
        ] {
            assert_eq!(hidden(text), Some(true), "{text}");
        }
    }

    #[test]
    fn files_of_engines_are_read_and_an_empty_socket_file_stays_empty() {
        let path = Path::new("/etc/takt/takt.toml");

        let said = |text: &str| {
            let config = Config::parse(text, path).unwrap();
            format!("{:#}", config.check_engines().unwrap_err())
        };

        let destination = "[[remote_write]]\nurl = 'http://mimir/push'\nca_file = '/nope'\n";
        let wrong = said(destination);
        assert!(
            wrong.contains("remote_write, mimir:80: ") && wrong.contains("/nope"),
            "{wrong}"
        );

        let engine = "[query]\nremote = 'http://mimir'\nremote_bearer_token_file = '/nope'\n";
        let wrong = said(engine);
        assert!(
            wrong.contains("query: remote: ") && wrong.contains("/nope"),
            "{wrong}"
        );

        let config = Config::parse("server.socket_file = ''", path).unwrap();
        assert_eq!(config.server.socket_file.as_deref(), Some(Path::new("")));
        config.check_engines().unwrap();
    }

    #[test]
    fn a_token_that_cannot_be_read_has_file_line_and_sender() {
        let folder = tempdir().unwrap();
        let file = folder.path().join("takt.toml");
        let token = folder.path().join("token");
        fs::write(&token, "0123456789abcdef").unwrap();
        fs::write(folder.path().join("same"), "0123456789abcdef").unwrap();
        let sender =
            |name, token| format!("[[push.senders]]\nname = '{name}'\ntoken_file = '{token}'\n");

        let said = |text: &str| {
            fs::write(&file, text).unwrap();
            let config = Config {
                file: Some(file.clone()),
                ..Config::parse(text, &file).unwrap()
            };

            let checked = config.server_tokens().and(config.sender_tokens());
            let said = format!("{:#}", checked.unwrap_err());
            said.replace(&format!("{}/", folder.path().display()), "")
        };

        let absent = sender("gateway", "token") + &sender("otel", "/nope");
        assert_eq!(
            said(&absent),
            "takt.toml, line 6: push: senders, otel: token_file: cannot read the token in /nope: \
             No such file or directory (os error 2)"
        );

        assert_eq!(
            said(&(sender("gateway", "token") + &sender("otel", "same"))),
            "takt.toml, line 6: push: senders, otel: token_file: expected a token for each sender, \
             found that of gateway"
        );

        let of_server = "[server]\ntoken_file = 'token'\n".to_owned() + &sender("gateway", "same");
        assert_eq!(
            said(&of_server),
            "takt.toml, line 5: push: senders, gateway: token_file: expected a token of its own, \
             found that of server.token_file"
        );

        let for_reading = "[server]\ntoken_file = 'token'\nread_token_file = 'same'\n";
        assert_eq!(
            said(for_reading),
            "takt.toml, line 3: server: read_token_file: expected a token of its own, found that of \
             server.token_file, with which one may change everything"
        );

        fs::write(
            folder.path().join("lines"),
            "0123456789abcdef\nfedcba9876543210\n",
        )
        .unwrap();
        let lines = said(&sender("gateway", "lines"));
        assert!(
            lines.ends_with("lines has several lines; expected one with the token"),
            "{lines}"
        );

        for key in ["token_file", "read_token_file"] {
            assert_eq!(
                said(&format!("[server]\n{key} = '/nope'")),
                format!(
                    "takt.toml, line 2: server: {key}: cannot read the token in /nope: No such file \
                     or directory (os error 2)"
                )
            );
        }
    }

    #[test]
    fn the_address_of_an_engine_loses_its_last_slash() {
        let text = "query.remote = 'http://mimir:9009/prometheus/'";
        let config = Config::parse(text, Path::new("takt.toml")).unwrap();
        assert_eq!(
            config.query.remote.as_deref(),
            Some("http://mimir:9009/prometheus")
        );
    }

    #[test]
    fn each_section_has_its_mistake_in_one_message() {
        let said = |text: &str| {
            let error = Config::parse(text, Path::new("takt.toml")).unwrap_err();
            error.to_string()
        };

        assert_eq!(
            said("timezone = 5\n[scrape]\nintervall = 5\n[reports]\nsend = 'yes'\n"),
            "takt.toml, line 1: timezone: expected a text in quotes, found 5\n\
             takt.toml, line 3: unknown key intervall; did you mean interval_seconds?\n\
             takt.toml, line 5: send: expected true or false, found \"yes\""
        );

        assert_eq!(
            said("cluster = ''\n[store]\nretention_days = 0\n"),
            "takt.toml, line 1: cluster: expected a name, found nothing; leave the key out for the \
             default\n\
             takt.toml, line 3: store: retention_days: expected 1 to 36500, found 0"
        );
    }

    #[test]
    fn pages_and_sql_listen_beside_each_other() {
        let said = |server: &str, sql: &str| {
            let text = format!("[server]\nlisten_address = '{server}'\n[sql]\n{sql}");
            let error = Config::parse(&text, Path::new("takt.toml")).err();
            error.map(|error| error.to_string())
        };
        // The same address, and SQL's default beside a server that has taken it.
        for (server, sql, place) in [
            ("127.0.0.1:9000", "listen_address = '127.0.0.1:9000'", 4),
            ("127.0.0.1:9857", "", 3),
        ] {
            let expected = format!(
                "takt.toml, line {place}: sql: listen_address: expected an address other than \
                 server.listen_address = \"{server}\", or \"\" for no SQL, found {server}"
            );
            assert_eq!(said(server, sql), Some(expected));
        }

        for sql in [
            "listen_address = ''",
            "listen_address = '127.0.0.1:9001'",
            "listen_address = '127.0.0.2:9000'",
        ] {
            assert_eq!(said("127.0.0.1:9000", sql), None);
        }

        let everywhere = "token_file = '/t'\n";
        let text = format!(
            "[server]\n{everywhere}listen_address = '0.0.0.0:9000'\n\
             [sql]\nlisten_address = '127.0.0.1:9000'"
        );
        let error = Config::parse(&text, Path::new("takt.toml")).unwrap_err();
        assert!(error.to_string().contains("sql: listen_address"), "{error}");
        // Port 0 is a free port for each.
        assert_eq!(said("127.0.0.1:0", "listen_address = '127.0.0.1:0'"), None);
    }

    #[test]
    fn no_file_is_a_configuration() {
        assert_eq!(
            Config::parse("", Path::new("takt.toml")).unwrap(),
            Config::default()
        );
    }

    /// Each anticipated mistake is a file. Its first line is the expected message.
    #[test]
    fn each_mistake_has_its_message() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config");
        let mut count = 0;

        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();

            let expected = text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("# "))
                .expect("a first line with the message");
            let said = format!(
                "{:#}",
                Config::parse(&text, Path::new("takt.toml")).expect_err(&path.to_string_lossy())
            );
            // `UPDATE_GOLDEN` writes the messages into the files, to be read in the diff.
            if env::var_os("UPDATE_GOLDEN").is_some() {
                let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
                fs::write(&path, format!("# {said}\n{rest}")).unwrap();
            } else {
                assert_eq!(said, expected, "{}", path.display());
            }
            count += 1;
        }
        assert!(count >= 8, "only {count} files in {}", folder.display());
    }
}
