//! `takt.toml`: what the user typed becomes, once, what the program trusts.

use crate::QueryConfig;
use crate::SqlConfig;
use crate::answers::AccountingConfig;
use crate::reports::ReportsConfig;
use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::{BudgetConfig, PolicyWindow, RatesConfig};
use takt_alerts::config::AlertsConfig;
use takt_alerts::notify::email::EmailConfig;
use takt_collector::schedulers::{JobsConfig, SharesConfig};
use takt_collector::scrape::ScrapeConfig;
use takt_store::StoreConfig;

/// The whole configuration. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the cluster, on every series and job; the local Slurm's ClusterName, else `local`.
    pub cluster: Option<String>,
    /// Directory of the data, on a local disk; else `./takt-data`. Relative to this file.
    pub data_dir: Option<PathBuf>,
    /// Time zone of the months in reports, and of imported files without `--timezone`; the system's.
    pub timezone: Option<String>,
    /// The web page and the API.
    pub server: ServerConfig,
    /// SQL, over HTTP and over PostgreSQL's protocol.
    pub sql: SqlConfig,
    /// How much one PromQL query may take. Prometheus' flag of the same meaning is in brackets.
    pub query: QueryConfig,
    /// Which exporters are read, and how often.
    pub scrape: ScrapeConfig,
    /// How samples and records are kept.
    pub store: StoreConfig,
    /// Where job records come from.
    pub jobs: JobsConfig,
    /// Fair share of a cluster whose scheduler keeps no accounts. With `accounts`, what Slurm says of shares is not used.
    pub fairshare: SharesConfig,
    /// How mail is sent: alerts and reports.
    pub email: EmailConfig,
    /// Who is told when something breaks.
    pub alerts: AlertsConfig,
    /// What counts as idle, wasteful and measured in a run.
    pub efficiency: EfficiencyConfig,
    /// What usage costs.
    pub rates: RatesConfig,
    /// What users and accounts may use. Reports warn at 50, 80 and 100 %.
    pub budgets: Vec<BudgetConfig>,
    /// Hours in which jobs may not run on some nodes. Reports name those that did.
    pub policy_windows: Vec<PolicyWindow>,
    /// The monthly reports: who gets them, and how.
    pub reports: ReportsConfig,
}

/// The web page and the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port. Any address but loopback needs `token_file`.
    pub listen_address: String,
    /// File with the token (one line) that writes, and every request from another machine, must carry. Not in the
    /// data directory.
    pub token_file: Option<PathBuf>,
    /// File with a second token, which may read everything and change nothing: for who asks from another machine. Not in
    /// the data directory.
    pub read_token_file: Option<PathBuf>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen_address: "127.0.0.1:9856".into(),
            token_file: None,
            read_token_file: None,
        }
    }
}

impl Config {
    /// Reads and checks a configuration. `path` is for the messages, and what relative paths are relative to.
    pub fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        let mut config: Self = toml::from_str(text).map_err(|error| explain(&error, text, path))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let Self {
            data_dir,
            server,
            sql,
            email,
            alerts,
            jobs,
            reports,
            ..
        } = &mut config;
        let files = [
            data_dir,
            &mut server.token_file,
            &mut server.read_token_file,
            &mut email.password_file,
            &mut email.ca_file,
        ];
        let of_jobs = [&mut jobs.jobcomp_file, &mut jobs.slurmrestd.token_file];
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
            .chain(of_jobs)
            .chain(of_alerts)
            .flatten();
        for relative in files.chain(&mut alerts.rule_dirs) {
            *relative = base.join(&*relative);
        }
        config.scrape.resolve_paths(base);
        config
            .validate()
            .with_context(|| format!("{}", path.display()))?;
        Ok(config)
    }

    /// What no type can say.
    pub fn validate(&self) -> anyhow::Result<()> {
        if self
            .cluster
            .as_deref()
            .is_some_and(|name| name.trim().is_empty())
        {
            bail!("cluster: expected a name, found nothing; leave the key out for the default");
        }
        if let Some(name) = &self.timezone {
            takt_slurm::time_zone(name).context("timezone")?;
        }
        self.server.validate().context("server")?;
        self.sql.validate().context("sql")?;
        self.query.validate().context("query")?;
        self.scrape.validate().context("scrape")?;
        self.store.validate().context("store")?;
        self.jobs.validate().context("jobs")?;
        self.fairshare.validate().context("fairshare")?;
        self.email.validate().context("email")?;
        self.alerts
            .validate(self.email.is_set())
            .context("alerts")?;
        self.efficiency.validate().context("efficiency")?;
        self.rates.validate().context("rates")?;
        self.budgets
            .iter()
            .try_for_each(BudgetConfig::validate)
            .context("budgets")?;
        if self.budgets.iter().any(|budget| budget.money.is_some()) && self.rates.cards.is_empty() {
            bail!(
                "budgets: money: expected prices in [[rates.cards]], without which nothing costs anything, found none"
            );
        }
        self.policy_windows
            .iter()
            .try_for_each(PolicyWindow::validate)
            .context("policy_windows")?;
        self.reports.validate().context("reports")?;
        if self.reports.send && !self.email.is_set() {
            bail!("reports.send: expected a mail server in [email], found none");
        }
        if self.reports.weekly && !self.email.is_set() {
            bail!("reports.weekly: expected a mail server in [email], found none");
        }
        Ok(())
    }

    /// What accounting needs of it.
    pub fn accounting(&self) -> AccountingConfig {
        AccountingConfig {
            efficiency: self.efficiency.clone(),
            rates: self.rates.clone(),
            budgets: self.budgets.clone(),
            policy_windows: self.policy_windows.clone(),
            cluster: self.cluster.clone(),
            timezone: self.timezone.clone(),
            pseudonyms: self.reports.pseudonyms,
        }
    }

    /// Whether owners of jobs can be written to: there is a mail server, and somebody's address.
    pub fn knows_owners(&self) -> bool {
        self.email.is_set() && (self.reports.domain.is_some() || !self.reports.addresses.is_empty())
    }
}

impl ServerConfig {
    fn validate(&self) -> anyhow::Result<()> {
        let address: SocketAddr = self.listen_address.parse().with_context(|| {
            format!(
                "listen_address: expected address:port such as 127.0.0.1:9856, found {:?}",
                self.listen_address
            )
        })?;
        if !address.ip().is_loopback() && self.token_file.is_none() {
            bail!(
                "listen_address: {} is reached from other machines, which needs a token_file",
                self.listen_address
            );
        }
        Ok(())
    }

    /// The token of `token_file`; without one, a new one that only this machine's commands learn (from the lock file).
    pub fn token(&self) -> anyhow::Result<String> {
        self.token_file
            .as_deref()
            .map_or_else(random_token, read_token)
    }

    /// The token of `read_token_file`.
    pub fn read_token(&self) -> anyhow::Result<Option<String>> {
        self.read_token_file.as_deref().map(read_token).transpose()
    }
}

/// The token in a file.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    match text.trim() {
        token if token.len() >= 16 => Ok(token.to_owned()),
        _ => bail!(
            "the token in {} is shorter than 16 characters",
            path.display()
        ),
    }
}

fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 24];
    let mut source = std::fs::File::open("/dev/urandom").context("cannot make a token")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("cannot make a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A mistake in the file, with its line and, for an unknown key, the nearest one that exists.
fn explain(error: &toml::de::Error, text: &str, path: &Path) -> anyhow::Error {
    let line = error.span().map_or(1, |span| {
        text[..span.start.min(text.len())].matches('\n').count() + 1
    });
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let hint = match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(key)) => {
            let nearest = quoted.max_by(|a, b| {
                strsim::jaro_winkler(key, a).total_cmp(&strsim::jaro_winkler(key, b))
            });
            nearest.map_or_else(
                || format!("unknown key {key}"),
                |near| format!("unknown key {key}; did you mean {near}?"),
            )
        }
        _ if message.starts_with("invalid type: map, expected a sequence") => {
            "expected a list of tables, each under [[…]] instead of […]".to_owned()
        }
        _ if message.starts_with("invalid type: map, expected a string") => {
            "expected a text (a date stands in quotes as well), found a table or a bare date"
                .to_owned()
        }
        _ => message.lines().collect::<Vec<_>>().join(" "),
    };
    anyhow::anyhow!("{}, line {line}: {hint}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_we_ship_is_what_it_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/takt.example.toml");
        Config::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
    }

    #[test]
    fn no_file_is_a_configuration() {
        assert_eq!(
            Config::parse("", Path::new("takt.toml")).unwrap(),
            Config::default()
        );
    }

    /// Every mistake we can imagine is a file; its first line says what must be told.
    #[test]
    fn each_mistake_has_its_message() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config");
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let expected = text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("# "))
                .expect("a first line with the message");
            let said = format!(
                "{:#}",
                Config::parse(&text, Path::new("takt.toml")).expect_err(&path.to_string_lossy())
            );
            assert_eq!(said, expected, "{}", path.display());
            count += 1;
        }
        assert!(count >= 8, "only {count} files in {}", folder.display());
    }
}
