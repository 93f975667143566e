//! Passwords of people: set and remove.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use jiff::Timestamp;
use nix::unistd::User;
use serde::{Deserialize, Serialize};
use std::fmt;
use takt_access::password::{check, hash};
use takt_access::session::is_user_name;
use takt_access::{Need, Role, Viewer, Way};
use takt_model::UnixTime;
use takt_store::{AuditRecord, Database, Records};

/// Sets or removes the password with which a user signs in.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PasswordOrder {
    /// Unix user. Default: the viewer.
    pub user: Option<String>,
    /// New password; `None` removes the password.
    pub password: Option<String>,
    /// Whether the user may be one whom the server's machine does not know.
    pub may_be_unknown: bool,
}

impl fmt::Debug for PasswordOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordOrder")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The user whose password was set or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordAnswer {
    /// Unix user.
    pub user: String,
    /// Whether the user had a password before.
    pub had_password: bool,
}

impl Question for PasswordOrder {
    const PATH: &'static str = "/api/takt/v1/passwords";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::User);
    type Answer = PasswordAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<PasswordAnswer, AnswerError> {
        let refused = |why: &str| AnswerError::Usage(why.to_owned());

        let own = viewer.user().map(str::to_owned);
        // The own user is the default, for a person who signs in.
        let user = self
            .user
            .clone()
            .or(own)
            .ok_or_else(|| refused("name a user"))?;

        if !may_set(viewer, &user) {
            return Err(refused(
                "only an admin, or the user on the server's machine, sets a password",
            ));
        }

        if !is_user_name(&user) {
            return Err(refused(
                "expected the name of a person; root has no password here",
            ));
        }

        // Removing needs no switch and no known user: a left-over password has to go.
        if let Some(password) = &self.password {
            if !config.keeps_passwords {
                return Err(refused("set auth.passwords = true in takt.toml first"));
            }
            if !viewer.is_user(&user) && !self.may_be_unknown {
                refuse_stranger(&user, User::from_name(&user)).map_err(AnswerError::Usage)?;
            }

            check(&user, password).map_err(AnswerError::usage)?;
        }

        let setter = Setter::of(viewer);
        let had_password = set_password(database, &setter, &user, self.password.as_deref())
            .map_err(AnswerError::failed)?;
        Ok(PasswordAnswer { user, had_password })
    }
}

/// The person or program that sets a password, for the audit log.
#[derive(Debug, Clone)]
pub struct Setter {
    name: String,
    role: &'static str,
    way: &'static str,
}

impl Setter {
    /// Returns the viewer as the audit log names it.
    pub fn of(viewer: &Viewer) -> Self {
        Self {
            name: viewer.user().unwrap_or(viewer.role_name()).to_owned(),
            role: viewer.role_name(),
            way: viewer.way().name(),
        }
    }
}

/// Stores the hash of a user's password, or removes the password, and notes this in the audit log.
/// Returns whether the user had a password. The password was checked before.
///
/// # Errors
/// If the system has no random numbers, or the store fails.
pub fn set_password(
    database: &Database,
    by: &Setter,
    user: &str,
    password: Option<&str>,
) -> anyhow::Result<bool> {
    let hash = password.map(hash).transpose()?;

    let now = UnixTime::from(Timestamp::now());
    let records = Records::of(database);
    let had_password = records.set_password(user, hash.as_deref(), &by.name, now)?;

    let action = if hash.is_some() {
        "set_password"
    } else {
        "remove_password"
    };
    records.audit(&AuditRecord {
        at: now,
        user: Some(by.name.clone()),
        role: by.role.to_owned(),
        way: by.way.to_owned(),
        address: String::new(),
        action: action.to_owned(),
        object: user.to_owned(),
        outcome: "done".to_owned(),
    })?;
    Ok(had_password)
}

/// Returns whether a viewer may set a user's password. A stolen session or token must not become a
/// password; the kernel's word at the Unix socket is the user's own.
fn may_set(viewer: &Viewer, user: &str) -> bool {
    // Loopback proves no person: every user of the machine reaches it.
    match viewer.role() {
        Role::Admin => viewer.way() != Way::Loopback,
        _ => viewer.way() == Way::Socket && viewer.is_user(user),
    }
}

/// Refuses a user whom the system's user databases do not have, or about whom they cannot say anything: a misspelt name
/// would get a password.
fn refuse_stranger(user: &str, found: nix::Result<Option<User>>) -> Result<(), String> {
    let why = match found {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => format!("the server's machine knows no user {user}"),
        Err(error) => format!(
            "the user databases of the server's machine (NSS) cannot say whether there is a user {user}: {}",
            error.desc()
        ),
    };
    Err(format!(
        "{why}; --unknown-user sets a password all the same"
    ))
}

/// Returns whether the system's user databases have a user of this name, or cannot say. Blocks: a directory service may be asked.
pub fn knows_user(name: &str) -> bool {
    !matches!(User::from_name(name), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::database;
    use takt_access::Privacy;
    use takt_access::password::is_correct;

    fn with_passwords() -> AnswerConfig {
        AnswerConfig {
            keeps_passwords: true,
            ..AnswerConfig::default()
        }
    }

    #[test]
    fn a_user_of_whom_the_machine_cannot_say_anything_is_refused() {
        let refused = |found| refuse_stranger("alcie", found).unwrap_err();
        assert_eq!(
            refused(Ok(None)),
            "the server's machine knows no user alcie; --unknown-user sets a password all the same"
        );
        assert_eq!(
            refused(Err(nix::errno::Errno::EIO)),
            "the user databases of the server's machine (NSS) cannot say whether there is a user alcie: \
             I/O error; --unknown-user sets a password all the same"
        );
        let root = User::from_name("root");
        assert!(root.is_err() || refuse_stranger("root", root).is_ok());
    }

    #[test]
    fn users_set_their_own_password_at_the_socket_only() {
        let (_root, database) = database();

        let config = with_passwords();
        let set = |viewer: &Viewer, user: Option<&str>, password: Option<&str>| {
            let order = PasswordOrder {
                user: user.map(str::to_owned),
                password: password.map(str::to_owned),
                may_be_unknown: true,
            };
            order
                .answer(viewer, &database, &config)
                .map_err(|error| error.to_string())
        };

        let alice = |way| Viewer::new(Role::User, way, Privacy::Open).with_user("alice");
        let good = Some("correct horse");

        assert_eq!(set(&alice(Way::Socket), None, good).unwrap().user, "alice");
        let stored = Records::of(&database).password_hash("alice").unwrap();
        assert!(is_correct("correct horse", stored.as_deref()));
        // Only the socket proves the user: a stolen session or token must not become a password.
        for way in [Way::Session, Way::Token, Way::Loopback, Way::Proxy] {
            set(&alice(way), None, good).unwrap_err();
        }
        set(&alice(Way::Socket), Some("bob"), good).unwrap_err();
        set(&alice(Way::Socket), Some("bob"), None).unwrap_err();
        // Operators do not set passwords either.
        let support = Viewer::new(Role::Support, Way::Socket, Privacy::Open).with_user("olga");
        set(&support, Some("alice"), good).unwrap_err();

        let admin = Viewer::new(Role::Admin, Way::Token, Privacy::Open);
        assert!(!set(&admin, Some("bob"), good).unwrap().had_password);
        assert!(set(&admin, Some("bob"), None).unwrap().had_password);
        // root has no password here, and the others are no names of Unix users.
        for user in ["root", "", "a b"] {
            set(&admin, Some(user), good).unwrap_err();
        }

        set(&admin, None, good).unwrap_err();
        assert!(
            set(&admin, Some("bob"), Some("short"))
                .unwrap_err()
                .contains("at least 10")
        );

        let off = PasswordOrder {
            user: Some("bob".to_owned()),
            password: good.map(str::to_owned),
            may_be_unknown: true,
        };
        off.answer(&admin, &database, &AnswerConfig::default())
            .unwrap_err();
        // A password must not appear in a log.
        assert!(!format!("{off:?}").contains("horse"));
    }

    #[test]
    fn a_misspelt_user_gets_no_password() {
        let (_root, database) = database();
        let config = with_passwords();
        let admin = Viewer::new(Role::Admin, Way::Token, Privacy::Open);
        let order = |may_be_unknown| PasswordOrder {
            user: Some("no-such-user".to_owned()),
            password: Some("correct horse".to_owned()),
            may_be_unknown,
        };

        let refused = order(false).answer(&admin, &database, &config).unwrap_err();
        assert!(refused.to_string().contains("knows no user no-such-user"));
        let records = Records::of(&database);
        assert_eq!(records.password_hash("no-such-user").unwrap(), None);
        order(true).answer(&admin, &database, &config).unwrap();
    }
}
