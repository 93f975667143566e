//! One scrape configuration: sources of targets, settings of scrapes, relabelling.

use super::config::ScrapeConfig;
use super::discovery::{FileSdConfig, HttpSdConfig, Provider, SlurmSdConfig, StaticConfig};
use super::http::{AuthorizationConfig, BasicAuthConfig, Http, HttpKeys, TlsConfig};
use super::relabel::{RelabelConfig, Rules};
use super::units::{ByteSize, PromDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::exposition::Format;

/// One of Prometheus' `scrape_configs`: the same keys with the same meaning. After relabelling a
/// target also gets `instance`, `node` (the host of its address) and `cluster` where it has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobConfig {
    /// Value of the label `job`; unique.
    pub job_name: String,
    /// Time between two scrapes of a target, such as `15s`. Default: that of `[scrape]`.
    pub scrape_interval: Option<PromDuration>,
    /// Time after which a scrape fails. Default: that of `[scrape]`, but at most `scrape_interval`.
    pub scrape_timeout: Option<PromDuration>,
    /// Path of the page on the target.
    pub metrics_path: String,
    /// `http` or `https`.
    pub scheme: String,
    /// URL parameters.
    pub params: BTreeMap<String, Vec<String>>,
    /// If a series and its target have the same label, keep the series' value. Otherwise the
    /// series' label becomes `exported_…`.
    pub honor_labels: bool,
    /// Use timestamps on a page. Otherwise every sample gets the time of its scrape.
    pub honor_timestamps: bool,
    /// Request pages with gzip. Decompressing a page costs several times as much as reading it, so
    /// use it for distant targets only.
    pub enable_compression: bool,
    /// Scrape native histograms, which only pages in protobuf carry. Targets that do not offer protobuf send text.
    pub scrape_native_histograms: bool,
    /// Format of pages without a valid Content-Type: `PrometheusText0.0.4`, `PrometheusText1.0.0`,
    /// `OpenMetricsText0.0.1` or `OpenMetricsText1.0.0`. Without it, such scrapes fail.
    pub fallback_scrape_protocol: Option<ScrapeProtocol>,
    /// Follow HTTP redirects.
    pub follow_redirects: bool,
    /// HTTP basic authentication.
    pub basic_auth: Option<BasicAuthConfig>,
    /// The `Authorization` header.
    pub authorization: Option<AuthorizationConfig>,
    /// File with a bearer token; short for `authorization`.
    pub bearer_token_file: Option<PathBuf>,
    /// TLS: certificates of the server and of Takt.
    pub tls_config: Option<TlsConfig>,
    /// A fixed list of targets.
    pub static_configs: Vec<StaticConfig>,
    /// Targets from files.
    pub file_sd_configs: Vec<FileSdConfig>,
    /// Targets from an HTTP server.
    pub http_sd_configs: Vec<HttpSdConfig>,
    /// Targets from Slurm: every node of the cluster that this machine belongs to.
    pub slurm_sd_configs: Vec<SlurmSdConfig>,
    /// Relabelling of the targets. `__address__`, `__scheme__`, `__metrics_path__`, `__param_NAME`,
    /// `__scrape_interval__` and `__scrape_timeout__` control the scrape.
    pub relabel_configs: Vec<RelabelConfig>,
    /// Relabelling of the scraped series.
    pub metric_relabel_configs: Vec<RelabelConfig>,
    /// Maximum size of a page, such as `10MB`. If this or one of the following limits is missing or
    /// 0, that of `[scrape]` applies.
    pub body_size_limit: Option<ByteSize>,
    /// Maximum number of samples on a page, after `metric_relabel_configs`.
    pub sample_limit: usize,
    /// Maximum number of series per target in the head, recently ended series included.
    pub series_limit: usize,
    /// Maximum number of labels of a series.
    pub label_limit: usize,
    /// Maximum length of a label name, in bytes.
    pub label_name_length_limit: usize,
    /// Maximum length of a label value, in bytes.
    pub label_value_length_limit: usize,
    /// Maximum number of targets; with more, every scrape of this configuration fails. 0: no limit.
    pub target_limit: usize,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            job_name: String::new(),
            scrape_interval: None,
            scrape_timeout: None,
            metrics_path: "/metrics".to_owned(),
            scheme: "http".to_owned(),
            params: BTreeMap::new(),
            honor_labels: false,
            honor_timestamps: true,
            enable_compression: false,
            scrape_native_histograms: false,
            fallback_scrape_protocol: None,
            follow_redirects: true,
            basic_auth: None,
            authorization: None,
            bearer_token_file: None,
            tls_config: None,
            static_configs: Vec::new(),
            file_sd_configs: Vec::new(),
            http_sd_configs: Vec::new(),
            slurm_sd_configs: Vec::new(),
            relabel_configs: Vec::new(),
            metric_relabel_configs: Vec::new(),
            body_size_limit: None,
            sample_limit: 0,
            series_limit: 0,
            label_limit: 0,
            label_name_length_limit: 0,
            label_value_length_limit: 0,
            target_limit: 0,
        }
    }
}

/// A way to write a page, by Prometheus' name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are Prometheus' own")]
pub enum ScrapeProtocol {
    #[serde(rename = "PrometheusText0.0.4")]
    PrometheusText004,
    #[serde(rename = "PrometheusText1.0.0")]
    PrometheusText100,
    #[serde(rename = "OpenMetricsText0.0.1")]
    OpenMetricsText001,
    #[serde(rename = "OpenMetricsText1.0.0")]
    OpenMetricsText100,
}

impl ScrapeProtocol {
    pub(super) const fn format(self) -> Format {
        match self {
            Self::PrometheusText004 | Self::PrometheusText100 => Format::Text,
            Self::OpenMetricsText001 | Self::OpenMetricsText100 => Format::OpenMetrics,
        }
    }
}

impl JobConfig {
    /// The configured files with passwords and tokens, each with its key.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let basic = self.basic_auth.as_ref();
        let token = self.authorization.as_ref();

        let files = [
            (
                "basic_auth.password_file",
                basic.map(|basic| &*basic.password_file),
            ),
            (
                "authorization.credentials_file",
                token.map(|token| &*token.credentials_file),
            ),
            ("bearer_token_file", self.bearer_token_file.as_deref()),
        ];
        files
            .into_iter()
            .filter_map(|(key, file)| Some((key, file?)))
    }

    /// Makes the configured file paths relative to `base`.
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        let mut files: Vec<&mut PathBuf> = Vec::new();
        files.extend(
            self.basic_auth
                .iter_mut()
                .map(|basic| &mut basic.password_file),
        );
        files.extend(
            self.authorization
                .iter_mut()
                .map(|token| &mut token.credentials_file),
        );

        files.extend(self.bearer_token_file.as_mut());
        files.extend(self.tls_config.iter_mut().flat_map(TlsConfig::files));
        files.extend(self.file_sd_configs.iter_mut().flat_map(|sd| &mut sd.files));
        files.extend(
            self.http_sd_configs
                .iter_mut()
                .flat_map(HttpSdConfig::paths),
        );

        let commands = self.slurm_sd_configs.iter_mut();
        files.extend(commands.filter_map(|sd| sd.slurm_bin.as_mut()));

        for file in files
            // Defaults have empty paths. `base` joined to one would be a folder, which hides that it is missing.
            .into_iter()
            .filter(|file| !file.as_os_str().is_empty())
        {
            *file = base.join(&*file);
        }
    }

    fn http(&self) -> HttpKeys<'_> {
        HttpKeys {
            basic_auth: &self.basic_auth,
            authorization: &self.authorization,
            bearer_token_file: &self.bearer_token_file,
            tls_config: &self.tls_config,
            follow_redirects: self.follow_redirects,
        }
    }
}

/// Limits for one page. A page above one of them fails as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub body_bytes: u64,
    pub samples: usize,
    pub series: usize,
    pub labels: usize,
    pub label_name_bytes: usize,
    pub label_value_bytes: usize,
}

/// A checked scrape configuration: the settings that its targets share.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub config: JobConfig,
    /// Time between two scrapes, unless relabelling sets another.
    pub interval: Duration,
    /// Maximum duration of a scrape, unless relabelling sets another.
    pub timeout: Duration,
    pub limits: Limits,
    pub relabel: Rules,
    pub metric_relabel: Rules,
    pub http: Http,
    pub providers: Vec<Provider>,
}

impl Job {
    /// Checks a scrape configuration. `around` supplies missing values; `key` is the
    /// configuration's key, for messages.
    pub fn new(config: JobConfig, around: &ScrapeConfig, key: &str) -> Result<Self, ConfigError> {
        let wrong = |field: &str, expected: String, found: &dyn ToString| {
            Err(ConfigError::new(
                format!("{key}.{field}"),
                expected,
                found.to_string(),
            ))
        };

        if config.job_name.is_empty() {
            return wrong("job_name", "a name".to_owned(), &"nothing");
        }
        if !matches!(config.scheme.as_str(), "http" | "https") {
            return wrong("scheme", "http or https".to_owned(), &config.scheme);
        }

        let interval = config
            .scrape_interval
            .map_or(around.interval(), |interval| interval.0);

        // An inherited timeout is shortened to the job's interval; only a timeout of the job itself can be too long.
        let timeout = config
            .scrape_timeout
            .map_or(around.timeout().min(interval), |timeout| timeout.0);

        if timeout > interval {
            let expected = format!("at most scrape_interval = {}", PromDuration(interval));
            return wrong("scrape_timeout", expected, &PromDuration(timeout));
        }

        // Zero stands for "not set": in Prometheus it means no limit, which Takt does not offer.
        let or = |own: usize, around: usize| if own == 0 { around } else { own };
        let limits = Limits {
            body_bytes: config
                .body_size_limit
                .map(|size| size.0)
                .filter(|&own| own > 0)
                .unwrap_or(around.body_size_limit_bytes),
            samples: or(config.sample_limit, around.sample_limit),
            series: or(config.series_limit, around.series_limit),
            labels: or(config.label_limit, around.label_limit),
            label_name_bytes: or(
                config.label_name_length_limit,
                around.label_name_length_limit,
            ),
            label_value_bytes: or(
                config.label_value_length_limit,
                around.label_value_length_limit,
            ),
        };

        let list = |name: &str| format!("{key}.{name}");
        Ok(Self {
            relabel: Rules::compile(&config.relabel_configs, &list("relabel_configs"))?,
            metric_relabel: Rules::compile(
                &config.metric_relabel_configs,
                &list("metric_relabel_configs"),
            )?,
            http: Http::new(config.http(), key)?,
            providers: Provider::all(&config, key)?,
            config,
            interval,
            timeout,
            limits,
        })
    }

    /// Returns whether running scrapes may continue. Certificates are read at the start of a
    /// scraper, so a job with certificates restarts its scrapers at every reload.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.config, self.interval, self.timeout, self.limits)
            == (&other.config, other.interval, other.timeout, other.limits)
            && self
                .config
                .tls_config
                .clone()
                .is_none_or(|mut tls| tls.files().next().is_none())
    }
}
