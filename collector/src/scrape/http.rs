//! HTTP settings of scrapes and `http_sd_configs`: credentials, certificates, redirects.

use super::lookup::{LimitedLookups, addresses};
use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Identity, RequestBuilder, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use takt_model::ConfigError;

/// Value of the header `User-Agent`.
pub(super) const USER_AGENT: &str = concat!("takt/", env!("CARGO_PKG_VERSION"));

/// Maximum number of redirects to follow, as in Prometheus.
const MAX_REDIRECTS: usize = 10;

/// A user name and a password.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BasicAuthConfig {
    /// User name.
    pub username: String,
    /// File with the password, read for every request.
    pub password_file: PathBuf,
}

/// A token in the `Authorization` header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthorizationConfig {
    /// Authentication scheme.
    pub r#type: String,
    /// File with the token, read for every request.
    pub credentials_file: PathBuf,
}

impl Default for AuthorizationConfig {
    fn default() -> Self {
        Self {
            r#type: "Bearer".to_owned(),
            credentials_file: PathBuf::new(),
        }
    }
}

/// TLS settings. The files are read at the start and at every reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// CA certificates (PEM) that may have signed the server's certificate. Default: those of the
    /// system.
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM), with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Private key (PEM) of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Expected name in the server's certificate. Default: the host of the address.
    pub server_name: String,
    /// Accept any server certificate.
    pub insecure_skip_verify: bool,
}

impl TlsConfig {
    pub(super) fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca_file, &mut self.cert_file, &mut self.key_file]
            .into_iter()
            .flatten()
    }
}

/// The HTTP keys of one table of the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpKeys<'c> {
    pub basic_auth: &'c Option<BasicAuthConfig>,
    pub authorization: &'c Option<AuthorizationConfig>,
    pub bearer_token_file: &'c Option<PathBuf>,
    pub tls_config: &'c Option<TlsConfig>,
    pub follow_redirects: bool,
}

/// Checked HTTP settings. [`Self::client`] and the requests open the files, so a configuration can
/// be checked on a machine without them.
#[derive(Debug, Clone, Default)]
pub(super) struct Http {
    credentials: Option<Credentials>,
    tls: TlsConfig,
    follow_redirects: bool,
}

#[derive(Debug, Clone)]
enum Credentials {
    Basic {
        username: String,
        password_file: PathBuf,
    },
    Token {
        kind: String,
        file: PathBuf,
    },
}

/// The reason why a client or a request cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A certificate, key, password or token cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file contains no certificate or no key.
    #[error("{} has no {expected} in PEM", path.display())]
    Pem {
        /// The path of the file.
        path: PathBuf,
        /// The expected content of the file.
        expected: &'static str,
    },
    /// The client cannot be set up.
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

impl Http {
    /// Checks the settings. `key` is the table's key, for messages.
    pub fn new(keys: HttpKeys<'_>, key: &str) -> Result<Self, ConfigError> {
        let wrong = |field: &str, expected, found| {
            Err(ConfigError::new(format!("{key}.{field}"), expected, found))
        };

        let given = [
            keys.basic_auth.is_some(),
            keys.authorization.is_some(),
            keys.bearer_token_file.is_some(),
        ];
        // Prometheus refuses several credentials, too: only one `Authorization` header can be sent.
        if given.into_iter().filter(|&given| given).count() > 1 {
            let expected = "one of basic_auth, authorization and bearer_token_file";
            return Err(ConfigError::new(key, expected, "several"));
        }

        let credentials = match (keys.basic_auth, keys.authorization, keys.bearer_token_file) {
            (Some(basic), _, _) if basic.username.is_empty() => {
                return wrong("basic_auth.username", "a name", "nothing");
            }
            (Some(basic), _, _) if basic.password_file.as_os_str().is_empty() => {
                return wrong("basic_auth.password_file", "a file", "nothing");
            }
            (
                Some(BasicAuthConfig {
                    username,
                    password_file,
                }),
                _,
                _,
            ) => Some(Credentials::Basic {
                username: username.clone(),
                password_file: password_file.clone(),
            }),
            (_, Some(token), _) if token.credentials_file.as_os_str().is_empty() => {
                return wrong("authorization.credentials_file", "a file", "nothing");
            }
            // Basic credentials are a base64 of two values, so a file with the token alone would be sent wrongly.
            (_, Some(token), _) if token.r#type.eq_ignore_ascii_case("basic") => {
                return wrong(
                    "authorization.type",
                    "a scheme other than that of basic_auth",
                    &token.r#type,
                );
            }
            (
                _,
                Some(AuthorizationConfig {
                    r#type,
                    credentials_file,
                }),
                _,
            ) => Some(Credentials::Token {
                kind: r#type.trim().to_owned(),
                file: credentials_file.clone(),
            }),
            (_, _, Some(file)) => Some(Credentials::Token {
                kind: "Bearer".to_owned(),
                file: file.clone(),
            }),
            (None, None, None) => None,
        };

        let tls = keys.tls_config.clone().unwrap_or_default();
        // TLS needs both: the certificate to show, and its key to sign with.
        if tls.cert_file.is_some() != tls.key_file.is_some() {
            let (missing, there) = if tls.cert_file.is_some() {
                ("key", "cert")
            } else {
                ("cert", "key")
            };
            return wrong(
                &format!("tls_config.{missing}_file"),
                &format!("a file together with {there}_file"),
                "nothing",
            );
        }

        Ok(Self {
            credentials,
            tls,
            follow_redirects: keys.follow_redirects,
        })
    }

    /// Returns the same settings, except that redirects are not followed.
    pub fn without_redirects(&self) -> Self {
        Self {
            follow_redirects: false,
            ..self.clone()
        }
    }

    /// Creates a client for any server. Servers with another name in TLS need [`Self::client_for`].
    pub fn client(&self) -> Result<Client, HttpError> {
        self.builder()?.build().map_err(HttpError::Client)
    }

    /// Creates a client for the server of `url`.
    pub fn client_for(&self, url: &Url) -> Result<Client, HttpError> {
        let Some(server_name) = self.server_name(url) else {
            return self.client();
        };

        let server_name = server_name.to_owned();
        let host = url
            .host_str()
            .unwrap_or_default()
            .to_owned()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();

        let builder = self
            .builder()?
            .dns_resolver(Arc::new(OtherName { server_name, host }));
        builder.build().map_err(HttpError::Client)
    }

    /// Returns the URL and headers with which [`Self::client_for`]'s client requests `url`.
    pub fn request(&self, url: &Url) -> (Url, HeaderMap) {
        let mut request_url = url.clone();
        let mut headers = HeaderMap::new();

        // The URL has the certificate's name, so the header must name the real host, or virtual hosts would not
        // match.
        if let Some(server_name) = self.server_name(url)
            && request_url.set_host(Some(server_name)).is_ok()
            && let Ok(host) = HeaderValue::from_str(url.authority())
        {
            headers.insert(header::HOST, host);
        }

        (request_url, headers)
    }

    fn builder(&self) -> Result<ClientBuilder, HttpError> {
        let mut builder = Client::builder()
            .user_agent(USER_AGENT)
            .http1_only()
            // The scraper decompresses itself, so that the size limit applies while it reads.
            .no_gzip()
            // As in Prometheus, proxies from the environment are not used.
            .no_proxy()
            .dns_resolver(Arc::new(LimitedLookups))
            .tcp_nodelay(true)
            .redirect(if self.follow_redirects {
                Policy::limited(MAX_REDIRECTS)
            } else {
                Policy::none()
            })
            .danger_accept_invalid_certs(self.tls.insecure_skip_verify);

        if let Some(path) = &self.tls.ca_file {
            let wrong = |_| HttpError::Pem {
                path: path.clone(),
                expected: "certificate",
            };

            let trusted = Certificate::from_pem_bundle(&read(path)?).map_err(wrong)?;
            if trusted.is_empty() {
                return Err(HttpError::Pem {
                    path: path.clone(),
                    expected: "certificate",
                });
            }

            // A private authority is configured in order to trust no other one.
            builder = builder.tls_built_in_root_certs(false);
            builder = trusted
                .into_iter()
                .fold(builder, ClientBuilder::add_root_certificate);
        }

        if let (Some(cert), Some(key)) = (&self.tls.cert_file, &self.tls.key_file) {
            // The line end separates the blocks if the certificate file lacks its last one.
            let pem = [read(cert)?, b"\n".to_vec(), read(key)?].concat();
            let wrong = |_| HttpError::Pem {
                path: cert.clone(),
                expected: "certificate that goes with its key_file",
            };
            builder = builder.identity(Identity::from_pem(&pem).map_err(wrong)?);
        }
        Ok(builder)
    }

    /// Returns the name of `url`'s server in TLS if it differs from the host.
    pub fn server_name(&self, url: &Url) -> Option<&str> {
        (url.scheme() == "https" && !self.tls.server_name.is_empty())
            .then_some(&self.tls.server_name)
    }

    /// Adds the credentials to a request.
    pub async fn authorize(&self, request: RequestBuilder) -> Result<RequestBuilder, HttpError> {
        let authorization = self.authorization().await?;
        Ok(authorization.into_iter().fold(request, |request, value| {
            request.header(header::AUTHORIZATION, value)
        }))
    }

    /// Returns the value of the header `Authorization`. Fails if the password or token cannot be
    /// read.
    pub async fn authorization(&self) -> Result<Option<HeaderValue>, HttpError> {
        let (text, path) = match &self.credentials {
            None => return Ok(None),
            Some(Credentials::Basic {
                username,
                password_file,
            }) => {
                let both = format!("{username}:{}", secret(password_file).await?);
                (
                    format!("Basic {}", BASE64_STANDARD.encode(both)),
                    password_file,
                )
            }
            Some(Credentials::Token { kind, file }) => {
                (format!("{kind} {}", secret(file).await?), file)
            }
        };

        // Line breaks or control characters within the secret cannot be in a header.
        let unfit = |_| HttpError::Read {
            path: path.clone(),
            source: io::ErrorKind::InvalidData.into(),
        };

        let mut value = HeaderValue::from_str(&text).map_err(unfit)?;

        // The mark keeps the value out of debug output.
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, HttpError> {
    std::fs::read(path).map_err(|source| HttpError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads a password or token. It is read for every request, because it may be renewed at any time.
async fn secret(path: &Path) -> Result<String, HttpError> {
    let wrong = |source| HttpError::Read {
        path: path.to_owned(),
        source,
    };
    // Editors and `echo` end a file with a line break, which is no part of the secret.
    Ok(tokio::fs::read_to_string(path)
        .await
        .map_err(wrong)?
        .trim()
        .to_owned())
}

/// Resolves the server name of a certificate to the host of the address: requests go to
/// `https://SERVER_NAME`, connections to the host. This makes the name right in both the handshake
/// (SNI) and the certificate's check.
#[derive(Debug)]
struct OtherName {
    server_name: String,
    host: String,
}

impl Resolve for OtherName {
    fn resolve(&self, name: Name) -> Resolving {
        // A redirect may lead to another host, which is resolved as usual.
        let host = if name.as_str() == self.server_name {
            self.host.clone()
        } else {
            name.as_str().to_owned()
        };
        Box::pin(async move {
            // The port comes from the address; 0 is a placeholder.
            let found = addresses(&host, 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(
        basic_auth: &Option<BasicAuthConfig>,
        authorization: &Option<AuthorizationConfig>,
        tls_config: &Option<TlsConfig>,
    ) -> String {
        let keys = HttpKeys {
            basic_auth,
            authorization,
            bearer_token_file: &None,
            tls_config,
            follow_redirects: true,
        };
        Http::new(keys, "c").unwrap_err().to_string()
    }

    #[test]
    fn each_mistake_names_its_key() {
        let basic = BasicAuthConfig {
            username: "u".to_owned(),
            ..BasicAuthConfig::default()
        };
        let token = AuthorizationConfig::default();
        let tls = TlsConfig {
            cert_file: Some("c.pem".into()),
            ..TlsConfig::default()
        };
        assert_eq!(
            keys(&Some(basic.clone()), &None, &None),
            "c.basic_auth.password_file: expected a file, found nothing"
        );
        assert_eq!(
            keys(&Some(BasicAuthConfig::default()), &None, &None),
            "c.basic_auth.username: expected a name, found nothing"
        );
        assert_eq!(
            keys(&Some(basic), &Some(token.clone()), &None),
            "c: expected one of basic_auth, authorization and bearer_token_file, found several"
        );
        assert_eq!(
            keys(&None, &Some(token), &None),
            "c.authorization.credentials_file: expected a file, found nothing"
        );
        assert_eq!(
            keys(&None, &None, &Some(tls)),
            "c.tls_config.key_file: expected a file together with cert_file, found nothing"
        );
    }
}
