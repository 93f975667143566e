//! `[auth]` of `takt.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use takt_access::{Privacy, Role, RoleBook};
use takt_model::ConfigError;

/// Sign-in, roles, and what users see of each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Address of this server for browsers, such as `https://takt.lab.example`: for the links of
    /// `takt login`. Default: the listen address.
    pub external_url: Option<String>,
    /// What users see of each other: `open`, `usage`, `private`, or `slurm` for Slurm's
    /// PrivateData (`open` without Slurm).
    pub privacy: PrivacySetting,
    /// Unix users with the role `admin`, besides Slurm's administrators.
    pub admins: Vec<String>,
    /// Unix users with the role `support`, besides Slurm's operators.
    pub support: Vec<String>,
    /// Unix users with the role `viewer`: they see everything and change nothing.
    pub viewers: Vec<String>,
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

impl AuthConfig {
    /// Checks that types cannot express.
    ///
    /// # Errors
    /// If a list of users has an empty name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(url) = &self.external_url
            && !url.starts_with("https://")
            && !url.starts_with("http://")
        {
            let expected = "a URL such as https://takt.lab.example";
            return Err(ConfigError::new("external_url", expected, url));
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
        for (users, role) in lists {
            users.iter().for_each(|user| book.grant(user, role));
        }
        book
    }
}
