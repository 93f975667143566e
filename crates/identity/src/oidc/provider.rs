//! Requests to the provider: discovery, keys, the exchange of a code, and the claims of a user.

use super::OidcConfig;
use super::token::{KeySet, TokenError};
use anyhow::{Context, bail};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Time for which the provider's description is kept.
const DISCOVERY_TIME: Duration = Duration::from_secs(3600);

/// Time between two readings of the keys: a token with an unknown key leads to one.
const KEY_TIME: Duration = Duration::from_secs(60);

/// The description of a provider (OpenID Connect Discovery, 3).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Description {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    userinfo_endpoint: Option<String>,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Answer to the exchange of a code.
#[derive(Debug, Deserialize)]
pub(super) struct Tokens {
    pub id_token: String,
    pub access_token: String,
}

/// The provider of a server.
#[derive(Debug)]
pub(super) struct Provider {
    config: OidcConfig,
    secret: Option<String>,
    http: Client,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    description: Option<(Description, Instant)>,
    keys: Option<(KeySet, Instant)>,
}

impl Provider {
    /// Reads the secret and the authorities.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(config: &OidcConfig) -> anyhow::Result<Self> {
        let secret = config
            .client_secret_file
            .as_deref()
            .map(super::super::directory::read_secret)
            .transpose()?;

        let mut http = Client::builder()
            .timeout(TIMEOUT)
            // A redirection could lead a secret elsewhere.
            .redirect(reqwest::redirect::Policy::none());
        if config.issuer.starts_with("http://") {
            // A provider of this machine.
            http = http.no_proxy();
        }

        if let Some(path) = &config.ca_file {
            let wrong = || format!("ca_file: {} has no certificate in PEM", path.display());

            let pem = fs::read(path).with_context(wrong)?;
            let found = reqwest::Certificate::from_pem_bundle(&pem).with_context(wrong)?;
            if found.is_empty() {
                bail!(wrong());
            }
            for certificate in found {
                http = http.add_root_certificate(certificate);
            }
        }

        Ok(Self {
            config: config.clone(),
            secret,
            http: http.build()?,
            known: Mutex::default(),
        })
    }

    /// Returns the provider's description, at most an hour old.
    ///
    /// # Errors
    /// If the provider does not answer, or describes another one.
    pub async fn description(&self) -> anyhow::Result<Description> {
        // Held during the request: of many sign-ins at once, one asks the provider.
        let mut known = self.known.lock().await;
        if let Some((description, at)) = &known.description
            && at.elapsed() < DISCOVERY_TIME
        {
            return Ok(description.clone());
        }

        let issuer = &self.config.issuer;
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let description: Description = self.ask(self.http.get(&url)).await?;
        // A description of another issuer would bring that one's keys here (OpenID Connect Discovery, 4.3).
        if description.issuer != *issuer {
            bail!("{url} describes the issuer {:?}", description.issuer);
        }

        let is_plain_allowed = issuer.starts_with("http://");
        for endpoint in [
            &description.authorization_endpoint,
            &description.token_endpoint,
            &description.jwks_uri,
        ]
        .into_iter()
        .chain(&description.userinfo_endpoint)
        {
            let is_plain = endpoint.starts_with("http://");
            let is_safe = endpoint.starts_with("https://") || (is_plain && is_plain_allowed);
            if !is_safe {
                bail!("{url} names an address without TLS: {endpoint}");
            }
        }
        known.description = Some((description.clone(), Instant::now()));
        Ok(description)
    }

    /// Returns the claims of an ID token with a right signature. Reads the keys again if the
    /// token's key is unknown, once a minute at most.
    ///
    /// # Errors
    /// If the signature is wrong, or the keys cannot be read.
    pub async fn verify(&self, token: &str) -> anyhow::Result<Value> {
        let url = self.description().await?.jwks_uri;
        let mut known = self.known.lock().await;

        let verified = known.keys.as_ref().map(|(keys, _)| keys.verify(token));
        let is_old = known
            .keys
            .as_ref()
            .is_none_or(|(_, at)| at.elapsed() >= KEY_TIME);
        match verified {
            Some(Ok(claims)) => return Ok(claims),
            // A key may have been replaced under its old name, or none may have one.
            Some(Err(error @ (TokenError::Malformed | TokenError::Claim(_)))) => bail!(error),
            Some(Err(error)) if !is_old => bail!(error),
            Some(Err(_)) | None => {}
        }

        // A forged token gets here as well, but at most once a minute.
        let keys: KeySet = self.ask(self.http.get(url)).await?;
        let verified = keys.verify(token);
        known.keys = Some((keys, Instant::now()));
        Ok(verified?)
    }

    /// Exchanges a code for tokens.
    ///
    /// # Errors
    /// If the provider refuses the code, or does not answer.
    pub async fn exchange(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
    ) -> anyhow::Result<Tokens> {
        let description = self.description().await?;

        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", verifier),
            ("redirect_uri", redirect_uri),
        ];

        let id = self.config.client_id.as_str();
        let request = self.http.post(&description.token_endpoint);
        let request = match &self.secret {
            Some(secret) if description.takes_basic() => {
                // Both are encoded as in a form first (RFC 6749, 2.3.1).
                request.basic_auth(form_encoded(id), Some(form_encoded(secret)))
            }
            Some(secret) => {
                form.extend([("client_id", id), ("client_secret", secret)]);
                request
            }
            None => {
                form.push(("client_id", id));
                request
            }
        };
        self.ask(request.form(&form)).await
    }

    /// Returns the claims of the user to whom an access token belongs; `None` if the provider has
    /// no address for that.
    ///
    /// # Errors
    /// If the provider does not answer.
    pub async fn user_info(&self, access_token: &str) -> anyhow::Result<Option<Value>> {
        // `userinfo` is optional for a provider, and then the ID token has all claims there are.
        let Some(url) = self.description().await?.userinfo_endpoint else {
            return Ok(None);
        };
        let request = self.http.get(url).bearer_auth(access_token);
        self.ask(request).await.map(Some)
    }

    async fn ask<T>(&self, request: RequestBuilder) -> anyhow::Result<T>
    where
        T: DeserializeOwned,
    {
        let mut response = request
            .send()
            .await
            .context("the provider does not answer")?;

        let status = response.status();
        // Read in pieces: the length in a header need not be that of the body.
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                bail!("an answer of the provider is too large");
            }
        }

        if !status.is_success() {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            bail!(
                "the provider answers {status}: {} {}",
                answer["error"].as_str().unwrap_or_default(),
                answer["error_description"].as_str().unwrap_or_default()
            );
        }
        serde_json::from_slice(&body).context("an answer of the provider is unusable")
    }
}

impl Description {
    /// Returns the address to which the browser goes.
    ///
    /// # Errors
    /// If the provider's address is no URL.
    pub fn authorization(&self, parameters: &[(&str, &str)]) -> anyhow::Result<Url> {
        let mut url = Url::parse(&self.authorization_endpoint)?;
        url.query_pairs_mut().extend_pairs(parameters);
        Ok(url)
    }

    /// Returns whether the provider's answers name it: without, an answer of another provider could
    /// be taken for one of this.
    pub fn names_itself(&self) -> bool {
        self.authorization_response_iss_parameter_supported
    }

    /// Basic authentication is the default (OpenID Connect Discovery, 3).
    fn takes_basic(&self) -> bool {
        let methods = &self.token_endpoint_auth_methods_supported;
        methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic")
    }
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_encoded_as_in_a_form() {
        assert_eq!(form_encoded("a b:c%+é"), "a+b%3Ac%25%2B%C3%A9");
        assert_eq!(form_encoded(""), "");
    }
}
