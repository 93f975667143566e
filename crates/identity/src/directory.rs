//! Sign-in with passwords of an LDAP directory: search for the user, then bind as the entry that
//! was found.

use super::config::GroupRoles;
use anyhow::{Context, bail};
use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, ResultEntry, Scope, SearchEntry, SearchOptions,
    ldap_escape,
};
use reqwest::Url;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use takt_access::session::is_user_name;
use takt_model::ConfigError;
use takt_model::shown::refuse_user;
use tokio::sync::Semaphore;
use tokio::time;

/// Time limit of a sign-in.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of sign-ins that use the directory at once.
const MAX_AT_ONCE: usize = 8;

/// Maximum number of groups that are read.
const MAX_GROUPS: i32 = 1000;

/// Result code for a wrong password, or for an unknown entry.
const INVALID_CREDENTIALS: u32 = 49;

/// Result code of a search whose base does not exist.
const NO_SUCH_OBJECT: u32 = 32;

/// Result code of a search with more entries than asked for.
const SIZE_LIMIT: u32 = 4;

/// Selects no attribute of an entry (RFC 4511, 4.5.1.8).
const NO_ATTRIBUTES: &str = "1.1";

/// Place of the user's name in a filter.
const USER: &str = "{user}";

/// Place of the user's distinguished name in a filter.
const DN: &str = "{dn}";

/// Sign-in with passwords of an LDAP directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LdapConfig {
    /// Address of the server: `ldaps://ldap.uni.example`, or `ldap://…` with `start_tls`. Without
    /// TLS on loopback only.
    pub url: String,
    /// Whether a connection to `ldap://…` begins with StartTLS.
    pub start_tls: bool,
    /// Authorities (PEM) of the server's certificate, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Distinguished name below which the users are.
    pub base: String,
    /// Distinguished name with which Takt searches. Default: anonymous.
    pub bind_dn: Option<String>,
    /// File with the password of `bind_dn`. Not in the data directory.
    pub bind_password_file: Option<PathBuf>,
    /// Filter that finds the entry of a user; `{user}` is the name that the user typed.
    pub user_filter: String,
    /// Attribute with the Unix name.
    pub user_attribute: String,
    /// Distinguished name below which the groups are. Default: only `memberOf` of the user's entry
    /// names groups, by their distinguished names.
    pub group_base: Option<String>,
    /// Filter that finds the groups of a user; `{user}` is the Unix name, `{dn}` the distinguished
    /// name of the entry.
    pub group_filter: String,
    /// Attribute with the name of a group.
    pub group_attribute: String,
    /// Roles by group.
    pub groups: GroupRoles,
}

impl Default for LdapConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            start_tls: false,
            ca_file: None,
            base: String::new(),
            bind_dn: None,
            bind_password_file: None,
            user_filter: "(&(objectClass=posixAccount)(uid={user}))".to_owned(),
            user_attribute: "uid".to_owned(),
            group_base: None,
            group_filter: "(|(memberUid={user})(member={dn})(uniqueMember={dn}))".to_owned(),
            group_attribute: "cn".to_owned(),
            groups: GroupRoles::default(),
        }
    }
}

impl LdapConfig {
    /// Checks that types cannot express.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        refuse_user(
            "url",
            &self.url,
            "set bind_dn and bind_password_file instead",
        )?;

        let url = Url::parse(&self.url).ok();
        let url = url.filter(|url| matches!(url.scheme(), "ldap" | "ldaps") && url.has_host());
        let Some(url) = url else {
            let expected = "a URL such as ldaps://ldap.uni.example";
            return Err(ConfigError::new("url", expected, format!("{:?}", self.url)));
        };
        // A bind sends the password itself, so it must be encrypted on any network.
        if url.scheme() == "ldap" && !self.start_tls && !is_loopback(&url) {
            let expected =
                "ldaps://, or start_tls = true: passwords must not cross the network in clear";
            return Err(ConfigError::new("url", expected, &self.url));
        }
        if url.scheme() == "ldaps" && self.start_tls {
            let expected = "ldap:// with start_tls, or ldaps:// without";
            return Err(ConfigError::new("url", expected, &self.url));
        }

        if self.base.trim().is_empty() {
            let expected = "the distinguished name below which the users are";
            return Err(ConfigError::new("base", expected, "nothing"));
        }
        if self.bind_dn.is_some() != self.bind_password_file.is_some() {
            let expected = "bind_dn and bind_password_file together";
            return Err(ConfigError::new("bind_dn", expected, "one of them"));
        }
        // Without the place of the name, the filter would find the same entry for everybody.
        if !self.user_filter.contains(USER) {
            let expected = "a filter with {user}";
            return Err(ConfigError::new("user_filter", expected, &self.user_filter));
        }
        // The filters are tried with sample names, so a typing error shows at the start and not at the first sign-in.
        for (key, filter) in [
            ("user_filter", &self.user_filter),
            ("group_filter", &self.group_filter),
        ] {
            let sample = filter.replace(USER, "alice").replace(DN, "cn=alice");
            if ldap3::parse_filter(&sample).is_err() {
                return Err(ConfigError::new(key, "a filter of LDAP", filter));
            }
        }
        self.groups.validate()
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    // `Url` keeps the brackets of an IPv6 address.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The directory of a server.
pub(super) struct Directory {
    config: LdapConfig,
    bind_password: Option<String>,
    tls: Arc<ClientConfig>,
    places: Semaphore,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("url", &self.config.url)
            .finish_non_exhaustive()
    }
}

/// A user whose password is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundUser {
    /// Unix name, as the directory writes it.
    pub user: String,
    /// Groups, by name and by distinguished name.
    pub groups: Vec<String>,
}

impl Directory {
    /// Reads the password and the authorities.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(config: &LdapConfig) -> anyhow::Result<Self> {
        let password = config
            .bind_password_file
            .as_deref()
            .map(read_secret)
            .transpose()?;

        Ok(Self {
            bind_password: password,
            tls: Arc::new(tls(config.ca_file.as_deref())?),
            config: config.clone(),
            places: Semaphore::new(MAX_AT_ONCE),
        })
    }

    /// Returns the roles by group.
    pub fn groups(&self) -> &GroupRoles {
        &self.config.groups
    }

    /// Returns the user with this name and password; `None` if one of them is wrong.
    ///
    /// # Errors
    /// If the directory does not answer, or its answer is unusable.
    pub async fn sign_in(&self, user: &str, password: &str) -> anyhow::Result<Option<FoundUser>> {
        // A bind without a password succeeds for every name (RFC 4513, 5.1.2).
        if password.is_empty() || !is_user_name(user) {
            return Ok(None);
        }
        // Waiting for a place is part of the time limit: a slow directory must not hold the form back for longer.
        let asked = async {
            let _place = self.places.acquire().await?;
            self.ask(user, password).await
        };
        time::timeout(TIMEOUT, asked)
            .await
            .context("the directory takes too long")?
    }

    async fn ask(&self, user: &str, password: &str) -> anyhow::Result<Option<FoundUser>> {
        let mut search = self.connect_to_search().await?;
        let found = self.find(&mut search, user).await?;

        // An unknown user takes as long as a wrong password.
        let dn = found
            .as_ref()
            .map(|entry| entry.dn.clone())
            .unwrap_or_else(|| format!("cn=unknown,{}", self.config.base));

        // A second connection: the first one keeps the rights of `bind_dn`, which the search of groups needs.
        let mut bind = self.connect().await?;
        let bound = bind.simple_bind(&dn, password).await?;
        drop(bind.unbind().await);

        let Some(entry) = found else {
            return Ok(None);
        };

        match bound.rc {
            0 => {}
            INVALID_CREDENTIALS => return Ok(None),
            _ => {
                // Such as an expired password, or a locked account.
                tracing::info!(
                    user,
                    code = bound.rc,
                    text = bound.text,
                    "the directory refuses a user"
                );
                return Ok(None);
            }
        }
        // The name in the directory counts, not the typed one: a filter may match a mail address or ignore the case.
        let Some(user) = self.name_in(&entry) else {
            return Ok(None);
        };

        // Both sources of groups count, since directories use either of them.
        let mut groups = entry.attrs.get("memberOf").cloned().unwrap_or_default();
        groups.extend(self.groups_of(&mut search, &user, &entry.dn).await?);
        drop(search.unbind().await);
        Ok(Some(FoundUser { user, groups }))
    }

    /// Connects and looks for entries below the configured bases.
    ///
    /// # Errors
    /// If the directory does not answer, refuses `bind_dn`, or shows nothing below a base.
    pub async fn examine(&self) -> anyhow::Result<()> {
        let mut ldap = self.connect_to_search().await?;

        let bases = [
            ("base", Some(&self.config.base)),
            ("group_base", self.config.group_base.as_ref()),
        ];

        for (key, base) in bases {
            let Some(base) = base else {
                continue;
            };
            // One entry without attributes shows that the base exists and may be read, and costs the directory little.
            let entries = search(&mut ldap, base, "(objectClass=*)", &[NO_ATTRIBUTES], 1)
                .await?
                .with_context(|| format!("{key}: the directory has no {base}"))?;
            if entries.is_empty() {
                bail!("{key}: the directory shows no entry of {base}");
            }
        }
        drop(ldap.unbind().await);
        Ok(())
    }

    /// Connects and binds as `bind_dn`, if that is set.
    async fn connect_to_search(&self) -> anyhow::Result<Ldap> {
        let mut ldap = self.connect().await?;
        if let (Some(dn), Some(password)) = (&self.config.bind_dn, &self.bind_password) {
            ldap.simple_bind(dn, password)
                .await?
                .success()
                .context("the directory refuses bind_dn and its password")?;
        }
        Ok(ldap)
    }

    /// Finds the entry of a user. Several entries are as good as none.
    async fn find(&self, ldap: &mut Ldap, user: &str) -> anyhow::Result<Option<SearchEntry>> {
        // Names are checked before, and escaped all the same: a `*` would match every entry.
        let filter = self.config.user_filter.replace(USER, &ldap_escape(user));
        let attributes = [self.config.user_attribute.as_str(), "memberOf"];
        let base = &self.config.base;
        // Two entries are enough to see that the filter is ambiguous.
        let mut entries = search(ldap, base, &filter, &attributes, 2)
            .await?
            .context("the directory has no base")?;
        if entries.len() > 1 {
            tracing::warn!(
                user,
                "the directory has several entries for a user; check user_filter"
            );
            return Ok(None);
        }
        Ok(entries.pop())
    }

    /// Returns the Unix name in an entry. An entry with several is ambiguous.
    fn name_in(&self, entry: &SearchEntry) -> Option<String> {
        let attribute = &self.config.user_attribute;
        let mut values = entry
            .attrs
            .iter()
            // A directory may answer with another case than that of the configured name.
            .filter(|(name, _)| name.eq_ignore_ascii_case(attribute));
        match values.next()?.1.as_slice() {
            [name] if is_user_name(name) => Some(name.clone()),
            _ => None,
        }
    }

    async fn groups_of(
        &self,
        ldap: &mut Ldap,
        user: &str,
        dn: &str,
    ) -> anyhow::Result<Vec<String>> {
        let Some(base) = &self.config.group_base else {
            return Ok(Vec::new());
        };

        let filter = self.config.group_filter.replace(USER, &ldap_escape(user));
        let filter = filter.replace(DN, &ldap_escape(dn));
        let attribute = self.config.group_attribute.as_str();

        let names = search(ldap, base, &filter, &[attribute], MAX_GROUPS)
            .await?
            .context("the directory has no group_base")?
            .into_iter()
            // Both the name and the distinguished name of a group count, so the configuration may list either.
            .flat_map(|entry| {
                let names: Vec<String> = entry
                    .attrs
                    .into_iter()
                    .filter(|(name, _)| name.eq_ignore_ascii_case(attribute))
                    .flat_map(|(_, values)| values)
                    .collect();
                names.into_iter().chain([entry.dn])
            })
            .collect();
        Ok(names)
    }

    async fn connect(&self) -> anyhow::Result<Ldap> {
        let settings = LdapConnSettings::new()
            .set_conn_timeout(TIMEOUT)
            .set_config(Arc::clone(&self.tls))
            .set_starttls(self.config.start_tls);
        let (connection, ldap) = LdapConnAsync::with_settings(settings, &self.config.url)
            .await
            .with_context(|| format!("cannot connect to {}", self.config.url))?;

        // ldap3 sends and receives nothing unless a task drives its connection.
        tokio::spawn(async move {
            if let Err(error) = connection.drive().await {
                tracing::debug!(%error, "the connection to the directory failed");
            }
        });
        Ok(ldap)
    }
}

/// Returns the entries of a search; `None` if its base does not exist. Referrals are not followed:
/// they name servers that the configuration does not.
async fn search(
    ldap: &mut Ldap,
    base: &str,
    filter: &str,
    attributes: &[&str],
    limit: i32,
) -> anyhow::Result<Option<Vec<SearchEntry>>> {
    let seconds = i32::try_from(TIMEOUT.as_secs()).unwrap_or(i32::MAX);
    let options = SearchOptions::new().sizelimit(limit).timelimit(seconds);
    let ldap3::SearchResult(entries, result) = ldap
        .with_search_options(options)
        .search(base, Scope::Subtree, filter, attributes)
        .await?;

    // A search that finds more than asked for returns the code of the limit along with the entries.
    match result.rc {
        0 | SIZE_LIMIT => {
            let entries = entries
                .into_iter()
                .filter(|entry| !ResultEntry::is_ref(entry))
                .map(SearchEntry::construct)
                .collect();
            Ok(Some(entries))
        }
        NO_SUCH_OBJECT => Ok(None),
        code => bail!(
            "the directory refuses to search: {} (code {code})",
            result.text
        ),
    }
}

/// Reads a file with one secret.
pub(super) fn read_secret(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the secret in {}", path.display()))?;
    // Editors end a file with a line break; other spaces may belong to the secret.
    match text.trim_end_matches(['\r', '\n']) {
        "" => bail!("{} is empty", path.display()),
        secret => Ok(secret.to_owned()),
    }
}

/// TLS with the system's authorities and those in `ca_file`.
fn tls(ca_file: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // Certificates of the system that cannot be read are left out: one of them must not end all sign-ins.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        // A file without a certificate is a mistake, which an empty list would hide.
        let wrong = || format!("ca_file: {} has no certificate in PEM", path.display());
        let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
            .with_context(wrong)?
            .collect();
        let found = found.with_context(wrong)?;
        if found.is_empty() {
            bail!(wrong());
        }
        for certificate in found {
            roots.add(certificate).with_context(wrong)?;
        }
    }

    let ring = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
    Ok(builder?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_cross_the_network_in_clear() {
        let said = |toml: &str| {
            let config: LdapConfig = toml::from_str(&format!("base = 'dc=x'\n{toml}")).unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        // Plain LDAP to another machine, and a name that only begins like this machine's.
        assert!(said("url = 'ldap://ldap.uni.example'").is_err());
        assert!(said("url = 'ldap://10.0.0.1'").is_err());
        assert!(said("url = 'ldap://localhost.evil.example'").is_err());

        assert!(said("url = 'ldaps://ldap.uni.example'\nstart_tls = true").is_err());
        assert!(said("url = 'https://ldap.uni.example'").is_err());
        assert!(said("").is_err());
        // Encrypted, or without leaving this machine.
        assert!(said("url = 'ldaps://ldap.uni.example'").is_ok());
        assert!(said("url = 'ldap://ldap.uni.example'\nstart_tls = true").is_ok());
        assert!(said("url = 'ldap://127.0.0.1:389'").is_ok());
        assert!(said("url = 'ldap://[::1]'").is_ok());
        // A filter without a name, a filter that is malformed, and a name without its password file.
        let open = "url = 'ldap://127.0.0.1'\n";
        assert!(said(&format!("{open}user_filter = '(uid=alice)'")).is_err());
        assert!(said(&format!("{open}user_filter = '(uid={{user}}'")).is_err());
        assert!(said(&format!("{open}bind_dn = 'cn=takt'")).is_err());
    }

    #[test]
    fn names_cannot_change_a_filter() {
        assert_eq!(ldap_escape("*)(uid=*"), "\\2a\\29\\28uid=\\2a");
        assert!(!is_user_name("*)(uid=*"));
    }
}
