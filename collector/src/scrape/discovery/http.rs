//! Targets from an HTTP server: `http_sd_configs`.

use super::super::http::{
    AuthorizationConfig, BasicAuthConfig, Http, HttpError, HttpKeys, TlsConfig,
};
use super::super::units::PromDuration;
use super::{Listener, StaticConfig};
use reqwest::{Client, Url, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::Labels;
use takt_model::shown::{refuse_user, shown_address};

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of labels of all targets together. A short list can repeat many labels for many
/// targets.
const MAX_LABELS: usize = 4_000_000;

/// Maximum duration of a request. After it, the previous list stays in use.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Prometheus' `http_sd_configs`: an address that answers with a JSON list of `{"targets": [],
/// "labels": {}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSdConfig {
    /// URL of the target list.
    pub url: String,
    /// Interval between two requests.
    pub refresh_interval: PromDuration,
    /// HTTP basic authentication.
    pub basic_auth: Option<BasicAuthConfig>,
    /// The `Authorization` header.
    pub authorization: Option<AuthorizationConfig>,
    /// File with a bearer token; short for `authorization`.
    pub bearer_token_file: Option<PathBuf>,
    /// TLS: certificates of the server and of Takt.
    pub tls_config: Option<TlsConfig>,
    /// Follow HTTP redirects.
    pub follow_redirects: bool,
}

impl Default for HttpSdConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            refresh_interval: PromDuration(Duration::from_secs(60)),
            basic_auth: None,
            authorization: None,
            bearer_token_file: None,
            tls_config: None,
            follow_redirects: true,
        }
    }
}

impl HttpSdConfig {
    pub(crate) fn paths(&mut self) -> Vec<&mut PathBuf> {
        let mut paths: Vec<&mut PathBuf> = Vec::new();
        paths.extend(
            self.basic_auth
                .iter_mut()
                .map(|basic| &mut basic.password_file),
        );
        paths.extend(
            self.authorization
                .iter_mut()
                .map(|token| &mut token.credentials_file),
        );
        paths.extend(self.bearer_token_file.as_mut());
        paths.extend(self.tls_config.iter_mut().flat_map(TlsConfig::files));
        paths
    }
}

#[derive(Debug, Clone)]
pub(crate) struct HttpSd {
    url: Url,
    every: Duration,
    http: Http,
}

#[derive(Debug, thiserror::Error)]
enum HttpSdError {
    #[error("{url}")]
    Setup { url: String, source: Box<HttpError> },
    #[error("{url} does not answer")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{url} answered {status}, not 200 OK")]
    Status {
        url: String,
        status: reqwest::StatusCode,
    },
    #[error("{url} answered with {found}, not application/json")]
    ContentType { url: String, found: String },
    #[error("{url} answered with more than {MAX_BYTES} bytes")]
    TooLarge { url: String },
    #[error("{url} answered with targets that have more than {MAX_LABELS} labels together")]
    TooMany { url: String },
    #[error("{url}: expected a list of targets and labels")]
    Content {
        url: String,
        source: serde_json::Error,
    },
}

impl HttpSd {
    pub fn new(config: &HttpSdConfig, key: &str) -> Result<Self, ConfigError> {
        refuse_user(&format!("{key}.url"), &config.url, "set basic_auth instead")?;

        let url = Url::parse(&config.url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                ConfigError::new(
                    format!("{key}.url"),
                    "an http or https address",
                    format!("{:?}", config.url),
                )
            })?;

        let keys = HttpKeys {
            basic_auth: &config.basic_auth,
            authorization: &config.authorization,
            bearer_token_file: &config.bearer_token_file,
            tls_config: &config.tls_config,
            follow_redirects: config.follow_redirects,
        };

        Ok(Self {
            url,
            every: config.refresh_interval.0,
            http: Http::new(keys, key)?,
        })
    }

    pub async fn run(self, to: Listener) {
        // The client is created in the loop, because its certificates may be missing at the start and come later.
        let mut client = None;
        loop {
            let read = self.ask(&mut client).await;
            if to.send("http_sd_configs", read).await.is_err() {
                return;
            }
            tokio::time::sleep(self.every).await;
        }
    }

    async fn ask(&self, client: &mut Option<Client>) -> Result<Vec<Labels>, HttpSdError> {
        let url = || self.shown_url();
        let setup = |source: HttpError| HttpSdError::Setup {
            url: url(),
            source: source.into(),
        };
        let unreachable = |source: reqwest::Error| HttpSdError::Unreachable {
            url: url(),
            // The URL in reqwest's error would show the secrets that `shown_url` hides.
            source: source.without_url(),
        };

        let client = match client {
            Some(client) => client,
            none => none.insert(self.http.client_for(&self.url).map_err(setup)?),
        };

        let (asked, headers) = self.http.request(&self.url);
        let request = client
            .get(asked)
            .headers(headers)
            .header(header::ACCEPT, "application/json")
            .header(
                // Prometheus' header: a server may prepare its list as often as it is asked.
                "x-prometheus-refresh-interval-seconds",
                self.every.as_secs_f64().to_string(),
            )
            .timeout(TIMEOUT);

        let request = self.http.authorize(request).await.map_err(setup)?;
        let mut answer = request.send().await.map_err(unreachable)?;

        if answer.status() != reqwest::StatusCode::OK {
            return Err(HttpSdError::Status {
                url: url(),
                status: answer.status(),
            });
        }

        let kind = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|kind| String::from_utf8_lossy(kind.as_bytes()))
            .unwrap_or_else(|| "no content type".into());

        if !kind
            .split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        {
            return Err(HttpSdError::ContentType {
                url: url(),
                found: kind.into_owned(),
            });
        }

        // The limit applies to each chunk: a response may have no `Content-Length`, or a wrong one.
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await.map_err(unreachable)? {
            if body.len() + bytes.len() > MAX_BYTES {
                return Err(HttpSdError::TooLarge { url: url() });
            }
            body.extend_from_slice(&bytes);
        }

        let groups: Vec<StaticConfig> = serde_json::from_slice(&body)
            .map_err(|source| HttpSdError::Content { url: url(), source })?;
        self.targets(&groups)
    }

    /// The URL without values of parameters that may be secrets.
    fn shown_url(&self) -> String {
        shown_address(self.url.as_str())
    }

    /// Labels of the targets of all groups.
    fn targets(&self, groups: &[StaticConfig]) -> Result<Vec<Labels>, HttpSdError> {
        // Each target also has an address and the URL of the list.
        let labels = |group: &StaticConfig| group.targets.len() * (group.labels.len() + 2);
        if groups.iter().map(labels).sum::<usize>() > MAX_LABELS {
            let url = self.shown_url();
            return Err(HttpSdError::TooMany { url });
        }

        let shown = self.shown_url();
        Ok(groups
            .iter()
            .flat_map(|group| group.discovered(Some(("__meta_url", shown.as_str()))))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_repeats_many_labels_for_many_targets_is_refused() {
        let config = HttpSdConfig {
            url: "http://localhost/targets".to_owned(),
            ..HttpSdConfig::default()
        };

        let discovery = HttpSd::new(&config, "http_sd_configs").unwrap();
        let group = |targets: usize, labels: usize| StaticConfig {
            targets: (0..targets).map(|n| format!("g{n}:9855")).collect(),
            labels: (0..labels)
                .map(|n| (format!("l{n}"), "x".to_owned()))
                .collect(),
        };
        let found = discovery.targets(&[group(1000, 10), group(3, 0)]).unwrap();
        assert_eq!(found.len(), 1003);

        // Ten labels, the address, and the URL of the list.
        assert_eq!(found[0].len(), 12);

        // Nine million labels from a list of a few tens of kilobytes.
        let refused = discovery.targets(&[group(3000, 3000)]).unwrap_err();
        assert!(matches!(refused, HttpSdError::TooMany { .. }), "{refused}");
    }
}
