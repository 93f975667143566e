//! Checks of names and passwords: those of `takt passwd`, then those of the directory.

use super::config::GroupRoles;
use super::known::{Access, SignInWay};
use super::now;
use anyhow::Context;
use std::net::IpAddr;
use takt_access::password::is_correct;
use takt_access::session::is_user_name;
use takt_model::UnixTime;
use takt_store::Records;

/// Maximum length of a name in counts of wrong passwords.
const MAX_NAME_CHARS: usize = 64;

/// Key of a user of `sql.password_file` in counts of wrong passwords. Users who sign in with a
/// browser have other keys.
fn sql_account(user: &str) -> String {
    let name: String = user.chars().take(MAX_NAME_CHARS).collect();
    format!("sql:{name}")
}

/// Result of a sign-in with a name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PasswordOutcome {
    /// The password is right.
    Right(Identity),
    /// The name or the password is wrong.
    Wrong,
    /// The password is right, and no group of the user may sign in.
    NoGroup,
    /// Too many wrong passwords.
    TooMany,
    /// Too many sign-ins at once.
    Busy,
}

/// A user who may sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub user: String,
    pub way: SignInWay,
    /// Groups that give a role.
    pub groups: Vec<String>,
}

impl Identity {
    /// Returns the identity with the groups that count; `None` if no group may sign in.
    pub fn of(
        user: String,
        way: SignInWay,
        groups: Vec<String>,
        roles: &GroupRoles,
    ) -> Option<Self> {
        roles.role(&groups)?;
        let groups = roles.listed(groups);
        Some(Self { user, way, groups })
    }
}

impl Access {
    /// Checks a name and a password from an address.
    ///
    /// # Errors
    /// If the store is being opened, or the directory does not answer.
    pub(super) async fn check_password(
        &self,
        name: &str,
        password: &str,
        address: IpAddr,
        now: UnixTime,
    ) -> anyhow::Result<PasswordOutcome> {
        // All places to wait are taken: one more sign-in would only hold its connection and its body.
        let Ok(_waiting) = self.state.waiting.try_acquire() else {
            return Ok(PasswordOutcome::Busy);
        };
        // A directory may ignore the case of a name.
        let account: String = name.to_lowercase().chars().take(MAX_NAME_CHARS).collect();

        let keys = self.keyring();
        // Counted before the check, so that attempts at the same time cannot pass the limit together.
        if !keys.with_throttle(|throttle| throttle.begin(&account, address, now)) {
            return Ok(PasswordOutcome::TooMany);
        }

        let outcome = self.outcome(name, password).await;
        // An error of a service is not the user's mistake, and does not count.
        if !matches!(outcome, Ok(PasswordOutcome::Wrong)) {
            keys.with_throttle(|throttle| throttle.take_back(&account, address));
        }
        if matches!(outcome, Ok(PasswordOutcome::Right(_))) {
            keys.with_throttle(|throttle| throttle.trust(&account, address, now));
        }
        outcome
    }

    /// Returns whether a SQL client may try a password: there were not too many wrong ones.
    pub fn admits_sql_password(&self, user: &str, address: IpAddr) -> bool {
        let account = sql_account(user);
        // Only asked here: SQL clients report the result of each password by `note_sql_password`.
        self.keyring().with_throttle(|throttle| {
            let is_free = throttle.begin(&account, address, now());
            if is_free {
                throttle.take_back(&account, address);
            }
            is_free
        })
    }

    /// Counts a wrong password of a SQL client, or notes that an address knows the right one.
    pub fn note_sql_password(&self, user: &str, address: IpAddr, is_right: bool) {
        let account = sql_account(user);
        self.keyring().with_throttle(|throttle| {
            if is_right {
                throttle.trust(&account, address, now());
            } else {
                let _ = throttle.begin(&account, address, now());
            }
        });
    }

    async fn outcome(&self, name: &str, password: &str) -> anyhow::Result<PasswordOutcome> {
        // A user with a password of `takt passwd` is not looked up in the directory, or a wrong password would count
        // there, too.
        if self.state.passwords {
            let kept = self.is_own_password(name, password).await?;
            match kept {
                Some(true) => {
                    return Ok(PasswordOutcome::Right(Identity {
                        user: name.to_owned(),
                        way: SignInWay::Password,
                        groups: Vec::new(),
                    }));
                }
                Some(false) => return Ok(PasswordOutcome::Wrong),
                None => {}
            }
        }

        let Some(directory) = &self.state.directory else {
            return Ok(PasswordOutcome::Wrong);
        };
        let Some(found) = directory.sign_in(name, password).await.context("ldap")? else {
            return Ok(PasswordOutcome::Wrong);
        };
        // A directory may have an entry for root or a service, which must get no session.
        if self.is_system_user(&found.user).await {
            return Ok(PasswordOutcome::Wrong);
        }

        let groups = directory.groups();
        let identity = Identity::of(found.user, SignInWay::Ldap, found.groups, groups);
        Ok(identity.map_or(PasswordOutcome::NoGroup, PasswordOutcome::Right))
    }

    /// Returns whether the password of `takt passwd` is this one; `None` if the user has no such
    /// password, which takes as long to find out.
    async fn is_own_password(&self, name: &str, password: &str) -> anyhow::Result<Option<bool>> {
        // One permit for each hash: 19 MiB of memory for each of many requests would be too much.
        let _hashing = self.state.hashes.acquire().await?;
        let access = self.clone();
        let name = name.to_owned();
        let password = password.to_owned();
        takt_store::spawn_blocking(move || {
            let store = access.keyring().open_store()?;
            let records = Records::of(store.database());
            // A name that cannot sign in is hashed against the decoy, so it takes as long as any other.
            let hash = if is_user_name(&name) {
                records.password_hash(&name)?
            } else {
                None
            };
            let is_right = is_correct(&password, hash.as_deref());
            anyhow::Ok(hash.map(|_| is_right))
        })
        .await?
    }
}
