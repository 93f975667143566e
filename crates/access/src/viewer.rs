//! The person or program that asks, and what it may see.

use crate::{Need, Privacy, Refusal, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Name in place of a user that the viewer may not see. Unix names contain no space.
pub const OTHER_USER: &str = "another user";

/// Name in place of an account that the viewer may not see.
pub const OTHER_ACCOUNT: &str = "another account";

/// How the server knows who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The server itself, or a command that has opened the files.
    Files,
    /// Unknown.
    Unknown,
    /// The kernel: the owner of a loopback connection. Such a viewer changes own settings, and alerts with the role for it.
    Loopback,
    /// The kernel: the peer of the Unix socket.
    Socket,
    /// A token.
    Token,
    /// A session that a browser's cookie names.
    Session,
    /// The header of a trusted proxy.
    Proxy,
}

impl Way {
    /// Returns the name in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Unknown => "unknown",
            Self::Loopback => "loopback",
            Self::Socket => "socket",
            Self::Token => "token",
            Self::Session => "session",
            Self::Proxy => "proxy",
        }
    }
}

/// Owner of a job or of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Unix user.
    pub user: &'a str,
    /// Account that is charged. Empty if unknown.
    pub account: &'a str,
}

impl<'a> Owner<'a> {
    /// Returns the owner with a user and an account.
    pub fn new(user: &'a str, account: &'a str) -> Self {
        Self { user, account }
    }
}

/// The person or program that asks. Answers contain what the viewer may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Viewer {
    user: Option<Arc<str>>,
    role: Role,
    /// Accounts that the user coordinates, with the accounts below them.
    accounts: Arc<BTreeSet<String>>,
    way: Way,
    privacy: Privacy,
    /// Name of the sender in `[[push.senders]]`.
    sender: Option<Arc<str>>,
    caller: Caller,
}

/// What a request has changed, in words for the audit log. Whoever carries the change out writes it, once.
pub type ActNote = Arc<OnceLock<String>>;

/// The name under which the requests of a viewer count together, and what this request changes. They say nothing of what
/// the viewer may see: viewers that differ in them alone are equal, and share answers.
#[derive(Debug, Clone, Default)]
struct Caller {
    name: Option<Arc<str>>,
    act: ActNote,
}

impl PartialEq for Caller {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H>(&self, _: &mut H)
    where
        H: Hasher,
    {
    }
}

impl Viewer {
    /// Returns the server itself, or a command that has opened the files: sees and changes everything.
    pub fn server() -> Self {
        Self::new(Role::Admin, Way::Files, Privacy::Open)
    }

    /// Returns an unknown viewer without rights.
    pub fn anonymous(privacy: Privacy) -> Self {
        Self::new(Role::Anonymous, Way::Unknown, privacy)
    }

    /// Returns a viewer without a user and without accounts.
    pub fn new(role: Role, way: Way, privacy: Privacy) -> Self {
        Self {
            user: None,
            role,
            accounts: Arc::default(),
            way,
            privacy,
            sender: None,
            caller: Caller::default(),
        }
    }

    /// Returns a program that pushes samples. It sees nothing.
    pub fn sender(name: impl Into<Arc<str>>, privacy: Privacy) -> Self {
        Self {
            sender: Some(name.into()),
            ..Self::new(Role::Anonymous, Way::Token, privacy)
        }
    }

    /// Returns the name of the sender, if the viewer may push samples.
    pub fn sender_name(&self) -> Option<&str> {
        self.sender.as_deref()
    }

    /// Sets the name under which the requests count: of the user, the sender, or the address.
    #[must_use]
    pub fn with_caller(mut self, name: impl Into<Arc<str>>) -> Self {
        self.caller.name = Some(name.into());
        self
    }

    /// Sets where [`note_act`](Self::note_act) writes.
    #[must_use]
    pub fn with_act(mut self, act: ActNote) -> Self {
        self.caller.act = act;
        self
    }

    /// Returns where [`note_act`](Self::note_act) writes.
    pub fn act(&self) -> &ActNote {
        &self.caller.act
    }

    /// Notes for the audit log what the viewer's request has changed. Only the first note of a request counts.
    pub fn note_act(&self, words: String) {
        let _ = self.caller.act.set(words);
    }

    /// Returns the name under which the requests count together.
    pub fn caller(&self) -> Arc<str> {
        self.caller.name.clone().unwrap_or_default()
    }

    /// Sets the user, by the Unix name.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Lowers the role to at most this one.
    #[must_use]
    pub fn with_role_at_most(mut self, role: Role) -> Self {
        self.role = self.role.min(role);
        self
    }

    /// Raises the role to at least this one.
    #[must_use]
    pub fn with_role_at_least(mut self, role: Role) -> Self {
        self.role = self.role.max(role);
        self
    }

    /// Sets the coordinated accounts, with the accounts below them.
    #[must_use]
    pub fn with_accounts(mut self, accounts: impl Into<Arc<BTreeSet<String>>>) -> Self {
        self.accounts = accounts.into();
        self
    }

    /// Returns the Unix name. `None` for anonymous viewers and programs.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the coordinated accounts, with the accounts below them.
    pub fn accounts(&self) -> &BTreeSet<String> {
        &self.accounts
    }

    /// Returns how the server knows who asks.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Returns how much users see of each other.
    pub fn privacy(&self) -> Privacy {
        self.privacy
    }

    /// Returns the name of the role, `coordinator` for a user who coordinates accounts.
    pub fn role_name(&self) -> &'static str {
        if self.role == Role::User && !self.accounts.is_empty() {
            "coordinator"
        } else {
            self.role.name()
        }
    }

    /// Returns whether the role sees everything of all users.
    pub fn sees_all(&self) -> bool {
        self.role >= Role::Viewer
    }

    /// Returns whether the viewer is this user.
    pub fn is_user(&self, user: &str) -> bool {
        self.user() == Some(user)
    }

    /// Returns whether the viewer sees everything of an owner: the own, those in coordinated accounts, or all.
    pub fn sees_details(&self, owner: Owner<'_>) -> bool {
        self.sees_all() || self.is_user(owner.user) || self.accounts.contains(owner.account)
    }

    /// Returns whether the viewer sees that a job exists: its id, state, partition, size, times and owner.
    pub fn sees_job(&self, owner: Owner<'_>) -> bool {
        self.is_known_below(Privacy::Private) || self.sees_details(owner)
    }

    /// Returns whether the viewer sees the measurements of a job, its efficiency, and its hints.
    pub fn sees_measurements(&self, owner: Owner<'_>) -> bool {
        self.is_known_below(Privacy::Usage) || self.sees_details(owner)
    }

    /// Returns whether the viewer sees the sums of a user.
    pub fn sees_usage(&self, owner: Owner<'_>) -> bool {
        self.is_known_below(Privacy::Usage) || self.sees_details(owner)
    }

    /// Returns whether the viewer sees the sum of an account. `members` are the viewer's own accounts.
    pub fn sees_account(&self, account: &str, members: &BTreeSet<String>) -> bool {
        self.sees_all()
            || self.is_known_below(Privacy::Private)
            || self.accounts.contains(account)
            || members.contains(account)
    }

    /// Returns whether the viewer may ask for samples, and send SQL: these contain the names and command lines of all users.
    pub fn sees_samples(&self) -> bool {
        self.is_known_below(Privacy::Usage) || self.sees_all()
    }

    fn is_known_below(&self, level: Privacy) -> bool {
        self.role >= Role::User && self.privacy < level
    }

    /// Returns the user, or [`OTHER_USER`] if the viewer may not see whose usage it is.
    pub fn shown_user<'a>(&self, owner: Owner<'a>) -> &'a str {
        if self.sees_usage(owner) {
            owner.user
        } else {
            OTHER_USER
        }
    }

    /// Checks the need of a route.
    ///
    /// # Errors
    /// If the viewer is unknown, has a lesser role, or came a way that changes nothing.
    pub fn check(&self, need: Need) -> Result<(), Refusal> {
        let is_met = match need {
            Need::Nothing | Need::Signed => true,
            Need::SignedIn => self.role >= Role::User,
            Need::Samples => self.sees_samples(),
            Need::AllUsers => self.sees_all(),
            Need::Push if self.sender.is_none() => return Err(Refusal::Sender),
            Need::Push => true,
            Need::Role(role) => self.role >= role,
            // A program's token has no user, and so nothing of its own to change, except with the role `admin`.
            Need::Change(Role::User) => {
                self.role == Role::Admin || (self.user.is_some() && self.role >= Role::User)
            }
            // Refused before the role is compared: with a token, the same person may get further.
            Need::Change(role) if !self.changes_by_way(role) => return Err(Refusal::Token),
            Need::Change(role) => self.role >= role,
        };

        // An unknown viewer is asked to sign in, and does not learn which role the route needs.
        if is_met {
            Ok(())
        } else if self.way == Way::Unknown {
            Err(Refusal::SignIn)
        } else {
            Err(Refusal::Role(need.role()))
        }
    }

    /// Whether the way proves enough for a change that needs this role. The kernel's word on a loopback connection is
    /// enough for alerts, if it names a person: acknowledging at night must not need a second login. What deletes records or
    /// changes the server needs a session or a token.
    fn changes_by_way(&self, role: Role) -> bool {
        self.way != Way::Loopback || (role <= Role::Support && self.user.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const OTHER: Owner<'_> = Owner {
        user: "bob",
        account: "biology",
    };
    const OWN: Owner<'_> = Owner {
        user: "alice",
        account: "physics",
    };
    const LEVELS: [Privacy; 3] = [Privacy::Open, Privacy::Usage, Privacy::Private];

    fn alice(privacy: Privacy) -> Viewer {
        Viewer::new(Role::User, Way::Socket, privacy).with_user("alice")
    }

    /// The table of docs/access.md, one row per kind of fact, for the jobs of others.
    #[test]
    fn users_see_of_others_what_the_table_says() {
        type Rule = fn(&Viewer, Owner<'_>) -> bool;
        // The columns are the levels `open`, `usage` and `private`.
        let table: [(&str, Rule, [bool; 3]); 5] = [
            ("job", |v, o| v.sees_job(o), [true, true, false]),
            ("details", |v, o| v.sees_details(o), [false, false, false]),
            (
                "measurements",
                |v, o| v.sees_measurements(o),
                [true, false, false],
            ),
            ("usage", |v, o| v.sees_usage(o), [true, false, false]),
            ("samples", |v, _| v.sees_samples(), [true, false, false]),
        ];
        for (name, sees, expected) in table {
            assert_eq!(
                LEVELS.map(|level| sees(&alice(level), OTHER)),
                expected,
                "{name}"
            );
            // Samples have no owner, so being the owner or a coordinator opens nothing.
            if name != "samples" {
                assert!(
                    LEVELS.iter().all(|level| sees(&alice(*level), OWN)),
                    "{name}: own"
                );
                let coordinator =
                    |level| alice(level).with_accounts(BTreeSet::from(["biology".to_owned()]));
                assert!(
                    LEVELS.iter().all(|level| sees(&coordinator(*level), OTHER)),
                    "{name}: coordinator"
                );
            }

            for role in [Role::Viewer, Role::Support, Role::Admin] {
                let viewer = |level| Viewer::new(role, Way::Token, level);
                assert!(
                    LEVELS.iter().all(|level| sees(&viewer(*level), OTHER)),
                    "{name}: {role}"
                );
            }
            assert!(
                LEVELS
                    .iter()
                    .all(|level| !sees(&Viewer::anonymous(*level), OTHER)),
                "{name}: anonymous"
            );
        }
    }

    #[test]
    fn sums_of_accounts_are_hidden_at_the_strictest_level_only() {
        let member = BTreeSet::from(["biology".to_owned()]);
        let sees =
            |level, members: &BTreeSet<String>| alice(level).sees_account("biology", members);
        assert_eq!(
            LEVELS.map(|level| sees(level, &BTreeSet::new())),
            [true, true, false]
        );
        assert!(sees(Privacy::Private, &member));
    }

    #[test]
    fn an_account_without_a_name_is_nobodys() {
        // An unknown account is an empty text, which must not equal the accounts of a coordinator.
        let viewer = alice(Privacy::Private).with_accounts(BTreeSet::from(["a".to_owned()]));
        assert!(!viewer.sees_details(Owner::new("bob", "")));
        assert!(!Viewer::anonymous(Privacy::Open).is_user(""));
    }

    #[test]
    fn senders_push_and_see_nothing() {
        let sender = Viewer::sender("rack-a", Privacy::Open);
        assert_eq!(sender.check(Need::Push), Ok(()));
        for need in [
            Need::SignedIn,
            Need::Samples,
            Need::AllUsers,
            Need::Role(Role::User),
            Need::Change(Role::User),
        ] {
            assert!(sender.check(need).is_err(), "{need:?}");
        }
        // The role that may do everything else still has no sender's name for the series.
        let admin = Viewer::new(Role::Admin, Way::Token, Privacy::Open);
        assert_eq!(admin.check(Need::Push), Err(Refusal::Sender));
    }

    #[test]
    fn changes_need_a_role_and_more_than_a_loopback_connection() {
        let check = |role, way, need| {
            let viewer = Viewer::new(role, way, Privacy::Open).with_user("alice");
            viewer.check(need)
        };

        let change = Need::Change(Role::Admin);
        assert_eq!(check(Role::Admin, Way::Socket, change), Ok(()));
        assert_eq!(check(Role::Admin, Way::Token, change), Ok(()));
        assert_eq!(
            check(Role::Admin, Way::Loopback, change),
            Err(Refusal::Token)
        );
        assert_eq!(
            check(Role::Support, Way::Socket, change),
            Err(Refusal::Role(Role::Admin))
        );

        let alerts = Need::Change(Role::Support);
        assert_eq!(check(Role::Admin, Way::Loopback, alerts), Ok(()));
        assert_eq!(check(Role::Support, Way::Loopback, alerts), Ok(()));
        assert_eq!(
            check(Role::User, Way::Loopback, alerts),
            Err(Refusal::Role(Role::Support))
        );
        assert_eq!(
            Viewer::new(Role::Admin, Way::Loopback, Privacy::Open).check(alerts),
            Err(Refusal::Token),
            "a connection without a known owner changes no alerts"
        );

        let own = Need::Change(Role::User);
        assert_eq!(check(Role::User, Way::Loopback, own), Ok(()));
        assert_eq!(
            Viewer::new(Role::Viewer, Way::Token, Privacy::Open).check(own),
            Err(Refusal::Role(Role::User)),
            "a program has no settings of its own"
        );
        assert_eq!(
            Viewer::anonymous(Privacy::Open).check(change),
            Err(Refusal::SignIn)
        );
    }

    #[test]
    fn the_status_screen_shows_nothing_of_people() {
        // A screen in a hall sends no token, so it may be asked to sign in.
        let screen = Viewer::new(Role::Status, Way::Unknown, Privacy::Open);
        assert_eq!(screen.check(Need::Role(Role::Status)), Ok(()));
        for need in [
            Need::SignedIn,
            Need::Samples,
            Need::AllUsers,
            Need::Change(Role::User),
        ] {
            assert_eq!(screen.check(need), Err(Refusal::SignIn), "{need:?}");
        }
        assert!(!screen.sees_job(OTHER) && !screen.sees_usage(OTHER));

        let token = Viewer::new(Role::Status, Way::Token, Privacy::Open);
        let refused = Err(Refusal::Role(Role::User));
        assert_eq!(token.check(Need::SignedIn), refused);
    }

    #[test]
    fn anonymous_viewers_reach_open_routes_only() {
        let nobody = Viewer::anonymous(Privacy::Open);
        assert_eq!(nobody.check(Need::Nothing), Ok(()));
        for need in [Need::SignedIn, Need::Samples, Need::AllUsers] {
            assert_eq!(nobody.check(need), Err(Refusal::SignIn), "{need:?}");
        }
    }

    #[test]
    fn viewers_at_different_addresses_share_answers() {
        let at = |address| Viewer::anonymous(Privacy::Open).with_caller(address);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(at);
        // The caller is part of neither equality nor hash: it would split the cache of answers by address.
        assert_ne!(one.caller(), other.caller());
        assert_eq!(one, other);
        assert!(HashSet::from([one]).contains(&other));
    }
}
