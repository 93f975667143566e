//! `[auth]` of `takt.toml`.

use super::directory::LdapConfig;
use super::oidc::OidcConfig;
use super::proxy::ProxyConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use takt_access::{Privacy, Role, RoleBook, SignInWays};
use takt_model::ConfigError;

/// Sign-in, roles, and what users see of each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Address of this server for browsers, such as `https://takt.lab.example`: for the links of
    /// `takt login` and for `[auth.oidc]`. Default: the listen address.
    pub external_url: Option<String>,
    /// Data that users see of each other: `open`, `usage`, `private`, or `slurm` for Slurm's
    /// PrivateData (`open` without Slurm).
    pub privacy: PrivacySetting,
    /// Role of those who are not signed in: `none`; `status` for the page `/status`, which has no
    /// names of people and jobs; or `viewer`, who sees everything.
    pub anonymous: AnonymousSetting,
    /// Unix users with the role `admin`, besides Slurm's administrators.
    pub admins: Vec<String>,
    /// Unix users with the role `support`, besides Slurm's operators.
    pub support: Vec<String>,
    /// Unix users with the role `viewer`: they see everything and change nothing.
    pub viewers: Vec<String>,
    /// Whether people sign in with passwords of `takt passwd`.
    pub passwords: bool,
    /// Whether `takt login` works from other machines with munge, which must run on both machines
    /// with the same key. Requires `external_url`.
    pub munge: bool,
    /// Reverse proxies whose headers Takt trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// Sign-in with OpenID Connect. Requires `external_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcConfig>,
    /// Sign-in with passwords of an LDAP directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ldap: Option<LdapConfig>,
}

/// Level of privacy in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrivacySetting {
    /// Slurm's `PrivateData`.
    #[default]
    Slurm,
    /// Users see each other's jobs, without job names and command lines.
    Open,
    /// Also hides measurements of jobs, and usage of single users.
    Usage,
    /// Users see their own jobs only.
    Private,
}

impl PrivacySetting {
    /// Returns the level. `None` if Slurm decides.
    pub fn level(self) -> Option<Privacy> {
        match self {
            Self::Slurm => None,
            Self::Open => Some(Privacy::Open),
            Self::Usage => Some(Privacy::Usage),
            Self::Private => Some(Privacy::Private),
        }
    }
}

/// Role of those who are not signed in, in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnonymousSetting {
    /// No role.
    #[default]
    None,
    /// The status screen.
    Status,
    /// Everything, without changes.
    Viewer,
}

impl AnonymousSetting {
    /// Returns the role.
    pub fn role(self) -> Role {
        match self {
            Self::None => Role::Anonymous,
            Self::Status => Role::Status,
            Self::Viewer => Role::Viewer,
        }
    }
}

/// Groups that give a role. The highest role counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupRoles {
    /// Groups whose members have the role `admin`.
    pub admin: Vec<String>,
    /// Groups whose members have the role `support`.
    pub support: Vec<String>,
    /// Groups whose members have the role `viewer`.
    pub viewer: Vec<String>,
    /// Groups whose members may sign in, besides those above. Empty: everybody may.
    pub user: Vec<String>,
}

impl GroupRoles {
    /// Returns the role of a member of these groups; `None` if the member may not sign in.
    pub fn role<'g>(&self, groups: impl IntoIterator<Item = &'g String> + Clone) -> Option<Role> {
        let is_in = |listed: &[String]| {
            groups
                .clone()
                .into_iter()
                .any(|group| listed.contains(group))
        };
        // In the order of power: a member of several groups gets the highest role.
        if is_in(&self.admin) {
            Some(Role::Admin)
        } else if is_in(&self.support) {
            Some(Role::Support)
        } else if is_in(&self.viewer) {
            Some(Role::Viewer)
        } else {
            (self.user.is_empty() || is_in(&self.user)).then_some(Role::User)
        }
    }

    /// Returns the groups that are listed here, of a user's groups.
    pub fn listed(&self, groups: Vec<String>) -> Vec<String> {
        groups
            .into_iter()
            .filter(|group| {
                // Groups that give no role are dropped, since the groups are stored with the session.
                [&self.admin, &self.support, &self.viewer, &self.user]
                    .iter()
                    .any(|list| list.contains(group))
            })
            .collect()
    }

    /// Returns whether no group is listed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the names.
    ///
    /// # Errors
    /// If a name is empty or has more than one line.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let lists = [&self.admin, &self.support, &self.viewer, &self.user];
        // The store separates the groups of a session by line breaks.
        let is_wrong = |name: &&String| name.trim().is_empty() || name.contains('\n');
        match lists.into_iter().flatten().find(is_wrong) {
            Some(name) => Err(ConfigError::new(
                "groups",
                "names of groups",
                format!("{name:?}"),
            )),
            None => Ok(()),
        }
    }
}

impl AuthConfig {
    /// Returns the users that are named, each with the key.
    pub fn named_users(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("auth.admins", &self.admins),
            ("auth.support", &self.support),
            ("auth.viewers", &self.viewers),
        ]
        .into_iter()
        .flat_map(|(key, names)| names.iter().map(move |name| (key, name.as_str())))
    }

    /// Returns the files with secrets, each with its key.
    pub fn secret_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let proxy = self.proxy.as_ref();
        let oidc = self.oidc.as_ref();
        let ldap = self.ldap.as_ref();
        [
            (
                "auth.proxy.secret_file",
                proxy.and_then(|proxy| proxy.secret_file.as_deref()),
            ),
            (
                "auth.oidc.client_secret_file",
                oidc.and_then(|oidc| oidc.client_secret_file.as_deref()),
            ),
            (
                "auth.ldap.bind_password_file",
                ldap.and_then(|ldap| ldap.bind_password_file.as_deref()),
            ),
        ]
        .into_iter()
        .filter_map(|(key, file)| Some((key, file?)))
    }

    /// Returns the file paths, so that the caller can resolve relative paths.
    pub fn files(&mut self) -> impl Iterator<Item = &mut Option<PathBuf>> {
        let mut files = Vec::new();
        if let Some(proxy) = &mut self.proxy {
            files.push(&mut proxy.secret_file);
        }
        if let Some(oidc) = &mut self.oidc {
            files.extend([&mut oidc.client_secret_file, &mut oidc.ca_file]);
        }
        if let Some(ldap) = &mut self.ldap {
            files.extend([&mut ldap.bind_password_file, &mut ldap.ca_file]);
        }
        files.into_iter()
    }

    /// Checks that types cannot express.
    ///
    /// # Errors
    /// If a list of users has an empty name, a key requires another one, or a table is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_keys()?;
        // Each error gets the name of its table, as the keys of two tables have the same names.
        let tables = [
            ("proxy", self.proxy.as_ref().map(ProxyConfig::validate)),
            ("oidc", self.oidc.as_ref().map(OidcConfig::validate)),
            ("ldap", self.ldap.as_ref().map(LdapConfig::validate)),
        ];
        for (name, checked) in tables {
            checked
                .unwrap_or(Ok(()))
                .map_err(|error| error.in_section(name))?;
        }
        Ok(())
    }

    fn validate_keys(&self) -> Result<(), ConfigError> {
        if let Some(url) = &self.external_url
            && !url.starts_with("https://")
            && !url.starts_with("http://")
        {
            let expected = "a URL such as https://takt.lab.example";
            return Err(ConfigError::new("external_url", expected, url));
        }
        // Links to this server are built from the address: without it, munge would have no audience and OpenID
        // Connect no way back.
        let needs_url = [(self.munge, "munge"), (self.oidc.is_some(), "[auth.oidc]")];
        if let Some((_, key)) = needs_url.iter().find(|(is_used, _)| *is_used)
            && self.external_url.is_none()
        {
            let expected = format!("the address of this server, which {key} requires");
            return Err(ConfigError::new("external_url", expected, "nothing"));
        }

        let lists = [
            ("admins", &self.admins),
            ("support", &self.support),
            ("viewers", &self.viewers),
        ];
        for (key, users) in lists {
            if users.iter().any(|user| user.trim().is_empty()) {
                return Err(ConfigError::new(key, "Unix user names", "an empty name"));
            }
        }
        Ok(())
    }

    /// Returns the configured roles.
    pub fn roles(&self) -> RoleBook {
        let mut book = RoleBook::default();
        let lists = [
            (&self.admins, Role::Admin),
            (&self.support, Role::Support),
            (&self.viewers, Role::Viewer),
        ];
        // A user in several lists keeps the highest role, whatever their order.
        for (users, role) in lists {
            users.iter().for_each(|user| book.grant(user, role));
        }
        book
    }

    /// Returns the ways to sign in that the page `/login` offers.
    pub fn sign_in_ways(&self) -> SignInWays {
        SignInWays {
            passwords: self.passwords || self.ldap.is_some(),
            oidc: self.oidc.as_ref().map(OidcConfig::shown_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_role_of_the_groups_counts() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let groups = GroupRoles {
            admin: list(&["hpc-admins"]),
            support: list(&["helpdesk"]),
            ..GroupRoles::default()
        };
        let role = |names: &[&str]| groups.role(&list(names) as &Vec<String>);
        assert_eq!(role(&["helpdesk", "hpc-admins"]), Some(Role::Admin));
        assert_eq!(role(&["helpdesk"]), Some(Role::Support));
        // Names of groups are compared exactly: another case, or a name with the same beginning, is another group.
        assert_eq!(
            role(&["HPC-ADMINS", "hpc-admins2", "hpc"]),
            Some(Role::User)
        );
        assert_eq!(role(&[]), Some(Role::User));

        let closed = GroupRoles {
            // With `user` set, members of no listed group may not sign in.
            user: list(&["hpc"]),
            ..groups.clone()
        };
        assert_eq!(closed.role(&list(&["students"]) as &Vec<String>), None);
        assert_eq!(
            closed.role(&list(&["hpc"]) as &Vec<String>),
            Some(Role::User)
        );

        let many = list(&["students", "helpdesk"]);
        assert_eq!(groups.listed(many), ["helpdesk"]);
    }
}
