//! Sign-in with OpenID Connect: the code flow with PKCE.
//!
//! Discovery, the keys, the exchange of the code and the claims of the user are four requests with
//! the HTTP client that the server has, and `ring` checks the signatures. The crate `openidconnect`
//! would bring 33 crates for that, among them `rsa`, whose timing has an open advisory.
//!
//! `state`, `nonce` and the verifier of PKCE belong to one browser, by a cookie: an answer that
//! another browser got gives no session here (login CSRF), and a stolen code is of no use.

mod provider;
mod token;

use super::config::GroupRoles;
use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use provider::Provider;
use reqwest::Url;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use takt_access::{hash, new_secret};
use takt_model::shown::refuse_user;
use takt_model::{ConfigError, UnixTime};
use token::Expected;

/// Path to which the provider sends the browser back.
pub(super) const BACK_PATH: &str = "/login/oidc/back";

/// Seconds that a sign-in at the provider may take.
pub(super) const FLOW_SECONDS: i64 = 600;

/// Maximum number of sign-ins under way. The oldest one makes room.
const MAX_FLOWS: usize = 5000;

/// Maximum number of sign-ins under way of one address.
const MAX_FLOWS_OF_ADDRESS: usize = 100;

/// Sign-in with OpenID Connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OidcConfig {
    /// Address of the provider, exactly as the provider writes it, such as
    /// `https://idp.uni.example/realms/hpc`.
    pub issuer: String,
    /// Name of the provider on the page `/login`. Default: the host of `issuer`.
    pub name: Option<String>,
    /// Identifier of Takt at the provider. The provider must know the redirect address
    /// `external_url` + `/login/oidc/back`.
    pub client_id: String,
    /// File with the secret of Takt at the provider. Not in the data directory. Default: Takt is a
    /// public client.
    pub client_secret_file: Option<PathBuf>,
    /// Authorities (PEM) of the provider's certificate, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Scopes that Takt asks for, besides `openid`.
    pub scopes: Vec<String>,
    /// Claim with the Unix name. The name must be a user of this machine, or of a job.
    pub user_claim: String,
    /// Claim with the list of groups; a dot leads into an object, as in `realm_access.roles`.
    pub groups_claim: String,
    /// Roles by group.
    pub groups: GroupRoles,
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            name: None,
            client_id: String::new(),
            client_secret_file: None,
            ca_file: None,
            scopes: vec!["profile".to_owned()],
            user_claim: "preferred_username".to_owned(),
            groups_claim: "groups".to_owned(),
            groups: GroupRoles::default(),
        }
    }
}

impl OidcConfig {
    /// Checks that types cannot express.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        refuse_user("issuer", &self.issuer, "set client_secret_file instead")?;
        // The keys that sign users in come from there, so the answer must not be changed on its way.
        let is_safe = Url::parse(&self.issuer)
            .ok()
            .filter(Url::has_host)
            .is_some_and(|url| {
                let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
                url.scheme() == "https" || (url.scheme() == "http" && is_local)
            });
        if !is_safe {
            let expected = "a URL such as https://idp.uni.example; http:// on loopback only";
            return Err(ConfigError::new(
                "issuer",
                expected,
                format!("{:?}", self.issuer),
            ));
        }
        if self.client_id.trim().is_empty() {
            let expected = "the identifier of Takt at the provider";
            return Err(ConfigError::new("client_id", expected, "nothing"));
        }
        // An e-mail address can be changed at many providers, and would then name another user.
        if matches!(self.user_claim.as_str(), "" | "email") {
            let expected = "a claim with the Unix name; an e-mail address is no identity";
            return Err(ConfigError::new(
                "user_claim",
                expected,
                format!("{:?}", self.user_claim),
            ));
        }
        self.groups.validate()
    }

    /// Returns the name of the provider on the page `/login`.
    pub fn shown_name(&self) -> String {
        self.name
            .clone()
            .or_else(|| Url::parse(&self.issuer).ok()?.host_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// OpenID Connect of a server.
#[derive(Debug)]
pub(super) struct Oidc {
    config: OidcConfig,
    provider: Provider,
    redirect_uri: String,
    /// Sign-ins under way, by the hash of their cookie.
    flows: Mutex<HashMap<String, Flow>>,
}

/// A sign-in under way.
#[derive(Debug, Clone)]
struct Flow {
    state: String,
    nonce: String,
    verifier: String,
    next: String,
    address: IpAddr,
    began_at: UnixTime,
}

/// A sign-in that begins.
#[derive(Debug)]
pub(super) struct Start {
    /// Address to which the browser goes.
    pub url: String,
    /// Cookie that names the sign-in.
    pub cookie: String,
}

/// The parameters with which the provider sends the browser back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Back {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// A user that the provider has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignedIn {
    pub user: String,
    pub groups: Vec<String>,
    /// Path to which the browser goes.
    pub next: String,
}

impl Oidc {
    /// Reads the secrets. `external_url` is the address of this server.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(config: &OidcConfig, external_url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            config: config.clone(),
            provider: Provider::new(config)?,
            redirect_uri: format!("{}{BACK_PATH}", external_url.trim_end_matches('/')),
            flows: Mutex::default(),
        })
    }

    /// Returns the roles by group.
    pub fn groups(&self) -> &GroupRoles {
        &self.config.groups
    }

    /// Reads the provider's description.
    ///
    /// # Errors
    /// If the provider does not answer, or describes another issuer.
    pub async fn examine(&self) -> anyhow::Result<()> {
        self.provider.description().await.map(drop)
    }

    /// Begins a sign-in that leads to the path `next`. `Ok(None)` if too many of this address are
    /// under way.
    ///
    /// # Errors
    /// If the provider does not answer.
    pub async fn start(
        &self,
        next: &str,
        address: IpAddr,
        now: UnixTime,
    ) -> anyhow::Result<Option<Start>> {
        let description = self.provider.description().await?;

        let cookie = new_secret()?;
        let flow = Flow {
            state: new_secret()?,
            nonce: new_secret()?,
            verifier: new_secret()?,
            next: next.to_owned(),
            address,
            began_at: now,
        };

        // PKCE: the provider gets the hash now and the verifier with the code, so a stolen code is of no use.
        let challenge = digest(&SHA256, flow.verifier.as_bytes());
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(challenge);
        let scopes = self
            .config
            .scopes
            .iter()
            .map(String::as_str)
            .filter(|scope| *scope != "openid");
        let scopes: Vec<&str> = ["openid"].into_iter().chain(scopes).collect();

        let url = description.authorization(&[
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &self.redirect_uri),
            ("scope", &scopes.join(" ")),
            ("state", &flow.state),
            ("nonce", &flow.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ])?;

        let is_kept = self.keep(&cookie, flow, now);
        Ok(is_kept.then(|| Start {
            url: url.into(),
            cookie,
        }))
    }

    fn keep(&self, cookie: &str, flow: Flow, now: UnixTime) -> bool {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.retain(|_, flow| now < flow.began_at + FLOW_SECONDS);
        // The limit of an address comes first: one machine must not push out the sign-ins of others.
        let of_address = flows.values().filter(|other| other.address == flow.address);
        if of_address.count() >= MAX_FLOWS_OF_ADDRESS {
            return false;
        }

        if flows.len() >= MAX_FLOWS {
            let oldest = flows.iter().min_by_key(|(_, flow)| flow.began_at);
            if let Some(oldest) = oldest.map(|(cookie, _)| cookie.clone()) {
                flows.remove(&oldest);
            }
        }
        flows.insert(hash(cookie), flow);
        true
    }

    /// Ends a sign-in: returns the user that the provider names. A sign-in ends once, however it
    /// ends.
    ///
    /// # Errors
    /// If the browser has not begun it, the provider refuses, or the provider's answer is wrong.
    pub async fn finish(
        &self,
        cookie: &str,
        back: Back,
        now: UnixTime,
    ) -> anyhow::Result<SignedIn> {
        // Taken before anything is checked, so a wrong answer cannot be tried again.
        let flow = self.take(cookie, now)?;
        // By hash, so that the time of the comparison says nothing about the state.
        if back.state.as_deref().map(hash) != Some(hash(&flow.state)) {
            bail!("the answer belongs to another sign-in");
        }

        let description = self.provider.description().await?;
        // With several providers, an attacker could pass on the code of another (RFC 9207).
        let is_named = back.iss.is_some() || description.names_itself();
        if is_named && back.iss.as_deref() != Some(self.config.issuer.as_str()) {
            bail!("the answer is of another provider: {:?}", back.iss);
        }

        if let Some(error) = back.error {
            let text = back.error_description.unwrap_or_default();
            bail!("the provider refuses: {error} {text}");
        }

        let code = back.code.context("the answer has no code")?;
        let tokens = self
            .provider
            .exchange(&code, &flow.verifier, &self.redirect_uri)
            .await?;

        let mut claims = self.provider.verify(&tokens.id_token).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &flow.nonce,
            now,
        };
        token::check(&claims, expected)?;
        // Some providers put only `sub` into the ID token. Another request is made only if a claim is missing.
        if !self.has_all(&claims)
            && let Some(more) = self.provider.user_info(&tokens.access_token).await?
        {
            add(&mut claims, more)?;
        }

        let user = claim(&claims, &self.config.user_claim)
            .and_then(Value::as_str)
            .with_context(|| format!("no claim {}", self.config.user_claim))?
            .to_owned();
        Ok(SignedIn {
            user,
            groups: names(claim(&claims, &self.config.groups_claim)),
            next: flow.next,
        })
    }

    fn take(&self, cookie: &str, now: UnixTime) -> anyhow::Result<Flow> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let flow = flows.remove(&hash(cookie));
        flow.filter(|flow| now < flow.began_at + FLOW_SECONDS)
            .context("this browser has begun no sign-in, or more than ten minutes ago")
    }

    /// Whether an ID token has all claims that count; the provider may keep some for its other
    /// address.
    fn has_all(&self, claims: &Value) -> bool {
        let needs_groups = !self.config.groups.is_empty();
        claim(claims, &self.config.user_claim).is_some()
            && (!needs_groups || claim(claims, &self.config.groups_claim).is_some())
    }
}

/// Adds the claims of the provider's other address, which must be about the same user. Those of the
/// ID token stay.
fn add(claims: &mut Value, more: Value) -> anyhow::Result<()> {
    if claims["sub"] != more["sub"] {
        bail!("the provider describes another user");
    }
    // Entries of the signed token stay: the other answer is protected by TLS only.
    if let (Value::Object(claims), Value::Object(more)) = (claims, more) {
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
    }
    Ok(())
}

/// Returns a claim by its name; a dot leads into an object.
fn claim<'c>(claims: &'c Value, name: &str) -> Option<&'c Value> {
    // The whole name is tried first: some claims are URLs, and contain dots.
    claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        claim(claims.get(first)?, rest)
    })
}

/// Returns the names in a claim: a list, or one name.
fn names(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        Some(Value::String(name)) => vec![name.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn oidc() -> Oidc {
        // Another test may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = OidcConfig {
            issuer: "https://idp.example".to_owned(),
            client_id: "takt".to_owned(),
            ..OidcConfig::default()
        };
        Oidc::new(&config, "https://takt.example/").unwrap()
    }

    fn flow(address: [u8; 4], began_at: UnixTime) -> Flow {
        Flow {
            state: "s".to_owned(),
            nonce: "n".to_owned(),
            verifier: "v".to_owned(),
            next: "/".to_owned(),
            address: address.into(),
            began_at,
        }
    }

    #[test]
    fn a_sign_in_ends_once_and_in_time() {
        let oidc = oidc();

        assert_eq!(oidc.redirect_uri, "https://takt.example/login/oidc/back");
        assert!(oidc.keep("one", flow([10, 0, 0, 1], UnixTime(0)), UnixTime(0)));
        assert!(oidc.keep("two", flow([10, 0, 0, 1], UnixTime(0)), UnixTime(0)));
        assert!(oidc.take("three", UnixTime(0)).is_err(), "another browser");
        assert!(oidc.take("one", UnixTime(599)).is_ok());
        assert!(oidc.take("one", UnixTime(599)).is_err(), "once");
        assert!(oidc.take("two", UnixTime(600)).is_err(), "late");
    }

    #[test]

    fn sign_ins_under_way_are_bounded() {
        let oidc = oidc();
        let kept = |address, now| oidc.keep(&new_secret().unwrap(), flow(address, now), now);
        // Twice the limit of an address.
        let many = (0..200)
            .filter(|_| kept([10, 0, 0, 1], UnixTime(0)))
            .count();
        assert_eq!(many, MAX_FLOWS_OF_ADDRESS);
        // One more address than sign-ins are kept: the oldest one makes room, and each begins.
        for address in 0..=MAX_FLOWS as u16 {
            let [high, low] = address.to_be_bytes();
            assert!(kept([10, 1, high, low], UnixTime(1)));
        }
        assert!(oidc.flows.lock().unwrap().len() <= MAX_FLOWS);

        assert!(kept([10, 0, 0, 1], UnixTime(FLOW_SECONDS)));
    }

    #[test]
    fn claims_of_both_addresses_count_and_of_one_user_only() {
        let mut claims = json!({ "sub": "1", "preferred_username": "alice" });
        // Both answers name a user, with different names.
        let more = json!({
            "sub": "1",
            "preferred_username": "root",
            "realm_access": {"roles": ["a"]},
        });
        add(&mut claims, more).unwrap();
        assert_eq!(claims["preferred_username"], "alice", "the signed one");
        assert_eq!(names(claim(&claims, "realm_access.roles")), ["a"]);
        assert_eq!(claim(&claims, "realm_access.none"), None);
        assert!(add(&mut claims, json!({ "sub": "2" })).is_err());
        // An answer without `sub` could be anybody's.
        assert!(add(&mut claims, json!({})).is_err());
        assert_eq!(names(Some(&json!("one"))), ["one"]);
        assert!(names(Some(&json!({ "a": 1 }))).is_empty());
    }

    #[test]
    fn the_provider_needs_tls() {
        let said = |issuer: &str, claim: &str| {
            let config = OidcConfig {
                issuer: issuer.to_owned(),
                user_claim: claim.to_owned(),
                client_id: "takt".to_owned(),
                ..OidcConfig::default()
            };
            config.validate().is_ok()
        };

        assert!(said("https://idp.example/realms/hpc", "uid"));
        assert!(said("http://127.0.0.1:4711", "uid"));
        assert!(!said("http://idp.example", "uid"));
        // A host that only begins like loopback.
        assert!(!said("http://localhost.evil.example", "uid"));
        assert!(!said("idp.example", "uid"));
        assert!(!said("", "uid"));
        // A safe address with a claim that is no identity.
        assert!(!said("https://idp.example", "email"));
    }
}
