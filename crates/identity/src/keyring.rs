//! Tokens, sessions and codes of links, as the access check needs them.

use super::discard_error;
use super::known::SignInWay;
use super::sign_in::CommandToken;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use takt_access::session::{
    CODE_SECONDS, IDLE_SECONDS, LONGEST_SECONDS, MAX_CODES, is_valid, is_within,
};
use takt_access::{
    AttemptLimit, NoRandomNumbers, Role, Throttle, hash, is_token, new_secret, new_token,
};
use takt_model::UnixTime;
use takt_store::{AuditRecord, Records, SessionRecord, Store, StoreError, TokenRecord};

/// Seconds between two notes of the use of a token or session.
const NOTE_SECONDS: i64 = 60;

/// Maximum length of the name of a machine in the name of its token.
const MAX_MACHINE_CHARS: usize = 64;

/// Tokens, sessions and codes of links.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The open store. It is closed and opened again if the database fails.
    store: Weak<Store>,
    /// Number of changes in the store up to which `tokens` and `sessions` are known; `None`: not
    /// read.
    known: Option<u64>,
    /// Tokens by their hash.
    tokens: HashMap<String, TokenRecord>,
    /// Sessions by their hash.
    sessions: HashMap<String, SessionRecord>,
    /// Codes of links by their hash.
    codes: HashMap<String, LinkCode>,
    /// Attempts to sign in.
    attempts: AttemptLimit,
    /// Wrong passwords.
    throttle: Throttle,
}

/// A code that signs a browser in once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LinkCode {
    user: Arc<str>,
    made_at: UnixTime,
}

/// The user of a valid session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionUser {
    pub user: String,
    pub way: SignInWay,
    pub groups: Vec<String>,
}

/// A session that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewSession {
    pub user: String,
    pub way: SignInWay,
    pub groups: Vec<String>,
    pub address: IpAddr,
    pub browser: String,
}

/// A valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValidToken {
    pub name: String,
    pub owner: Option<String>,
    pub role: Role,
}

impl Keyring {
    /// Uses another store from now on.
    pub fn attach(&self, store: &Arc<Store>) {
        let mut state = self.lock();
        state.store = Arc::downgrade(store);
        state.known = None;
    }

    /// Returns the store, while it is open.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.lock().store.upgrade()
    }

    /// Returns the valid token with this text. Blocks on the database after a change.
    pub fn token(&self, text: &str, now: UnixTime) -> Option<ValidToken> {
        // A mistyped token costs no look-up, and an unknown one no query.
        if !is_token(text) {
            return None;
        }

        let mut state = self.current()?;
        let token = state.tokens.get_mut(&hash(text))?;
        let is_over = token.expires_at.is_some_and(|end| end <= now);
        if is_over || token.revoked_at.is_some() {
            return None;
        }

        let role = token.role.parse().ok()?;
        // The database is written at most once a minute for a token, and without the lock that all requests take.
        let is_noted = token.used_at.is_some_and(|at| now < at + NOTE_SECONDS);
        token.used_at = Some(now);
        let valid = ValidToken {
            name: token.name.clone(),
            owner: token.owner.clone(),
            role,
        };

        let id = token.id;
        let store = state.store.upgrade();
        drop(state);
        if let Some(store) = store.filter(|_| !is_noted) {
            discard_error(Records::of(store.database()).note_token_use(id, now));
        }
        Some(valid)
    }

    /// Returns the user of the session with this cookie. Blocks on the database after a change.
    pub fn session(&self, cookie: &str, now: UnixTime) -> Option<SessionUser> {
        let hash = hash(cookie);
        let mut state = self.current()?;
        let session = state.sessions.get_mut(&hash)?;
        // Sessions of a way that this version does not know count as ended.
        let way = SignInWay::of(&session.way)?;
        let longest = way.longest_seconds();
        if !is_valid(session.created_at, session.seen_at, longest, now) {
            return None;
        }

        let is_noted = now < session.seen_at + NOTE_SECONDS;
        // `max`: a clock that was set back must not make the session look idle.
        session.seen_at = session.seen_at.max(now);
        let user = SessionUser {
            user: session.user.clone(),
            way,
            groups: session.groups.clone(),
        };

        let store = state.store.upgrade();
        drop(state);
        if let Some(store) = store.filter(|_| !is_noted) {
            discard_error(Records::of(store.database()).note_session_use(&hash, now));
        }
        Some(user)
    }

    /// Makes a code for a link that signs `user` in. `Ok(None)` if too many codes of the user are
    /// valid.
    pub fn new_code(&self, user: &str, now: UnixTime) -> Result<Option<String>, NoRandomNumbers> {
        let code = new_secret()?;

        let mut state = self.lock();
        state
            .codes
            // Expired codes go first, as they must not count against the user.
            .retain(|_, code| is_within(code.made_at, CODE_SECONDS, now));
        let of_user = state.codes.values().filter(|code| *code.user == *user);
        if of_user.count() >= MAX_CODES {
            return Ok(None);
        }

        let made = LinkCode {
            user: user.into(),
            made_at: now,
        };
        state.codes.insert(hash(&code), made);
        Ok(Some(code))
    }

    /// Returns the user of a code, which stays valid.
    pub fn user_of_code(&self, code: &str, now: UnixTime) -> Option<Arc<str>> {
        let state = self.lock();
        let found = state.codes.get(&hash(code))?;
        is_within(found.made_at, CODE_SECONDS, now).then(|| Arc::clone(&found.user))
    }

    /// Uses a code up and returns its user.
    pub fn take_code(&self, code: &str, now: UnixTime) -> Option<Arc<str>> {
        // Removed in the same step as found: of two browsers with the same code, one gets the user.
        let found = self.lock().codes.remove(&hash(code))?;
        is_within(found.made_at, CODE_SECONDS, now).then_some(found.user)
    }

    /// Begins a session and returns its cookie. Blocks on the database.
    ///
    /// # Errors
    /// If the store is closed or fails.
    pub fn begin_session(&self, session: NewSession, now: UnixTime) -> anyhow::Result<String> {
        let cookie = new_secret()?;
        // Only the hash is stored, so a copy of the database signs in with no session.
        let session = SessionRecord {
            hash: hash(&cookie),
            user: session.user,
            way: session.way.name().to_owned(),
            created_at: now,
            seen_at: now,
            address: session.address.to_string(),
            browser: session.browser,
            groups: session.groups,
        };

        let store = self.open_store()?;
        let database = store.database();
        // Idle sessions leave the table here. `surely_passed` keeps a clock that jumps ahead from ending all of them.
        let seen_after = database.surely_passed(now) - IDLE_SECONDS;
        Records::of(database).add_session(&session, seen_after)?;
        Ok(cookie)
    }

    /// Ends the session with this cookie, or all sessions of its user. Blocks on the database.
    ///
    /// # Errors
    /// If the store is closed or fails.
    pub fn end_session(&self, cookie: &str, everywhere: bool) -> anyhow::Result<()> {
        let store = self.open_store()?;
        Ok(Records::of(store.database()).end_sessions(&hash(cookie), everywhere)?)
    }

    /// Makes the token of a user's commands on a machine; the one before ends. It has the user's present role, as the
    /// user has on the Unix socket. Blocks on the database.
    ///
    /// # Errors
    /// If the store is closed or fails, or the kernel gives no random numbers.
    pub fn command_token(
        &self,
        user: &str,
        machine: &str,
        now: UnixTime,
    ) -> anyhow::Result<CommandToken> {
        let store = self.open_store()?;
        let records = Records::of(store.database());
        let machine: String = machine.chars().take(MAX_MACHINE_CHARS).collect();

        let name = format!("takt login on {machine}");
        // One token for a user on a machine: without this, each `takt login` would leave another valid token.
        let is_older = |token: &TokenRecord| {
            token.name == name && token.owner.as_deref() == Some(user) && token.revoked_at.is_none()
        };
        for older in records.tokens()?.into_iter().filter(is_older) {
            records.revoke_token(older.id, now)?;
        }

        let token = new_token()?;
        let until = now + LONGEST_SECONDS;
        records.add_token(TokenRecord {
            id: 0,
            hash: hash(&token),
            name,
            owner: Some(user.to_owned()),
            // The role of a token is an upper limit. The owner's present role decides.
            role: Role::Admin.name().to_owned(),
            created_by: user.to_owned(),
            created_at: now,
            expires_at: Some(until),
            used_at: None,
            revoked_at: None,
        })?;
        Ok(CommandToken { token, until })
    }

    /// Writes to the audit log. Blocks on the database.
    pub fn audit(&self, entry: &AuditRecord) {
        if let Some(store) = self.store() {
            discard_error(Records::of(store.database()).audit(entry));
        }
    }

    /// Counts an attempt to sign in. Returns false if the address has made too many.
    pub fn may_attempt(&self, address: IpAddr, now: UnixTime) -> bool {
        self.lock().attempts.allows(address, now)
    }

    /// Counts and forgets wrong passwords.
    pub fn with_throttle<T>(&self, ask: impl FnOnce(&mut Throttle) -> T) -> T {
        ask(&mut self.lock().throttle)
    }

    /// Returns the store.
    ///
    /// # Errors
    /// If the store is being opened.
    pub fn open_store(&self) -> anyhow::Result<Arc<Store>> {
        self.store()
            .ok_or_else(|| anyhow::anyhow!("the store is being opened; try again"))
    }

    /// Returns the state with the tokens and sessions of the store.
    fn current(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        let store = state.store.upgrade()?;

        let records = Records::of(store.database());
        // Read before the tables: a change in between leads to another reading.
        let changes = records.access_changes();
        if state.known != Some(changes) {
            match read(&records) {
                Ok((tokens, sessions)) => {
                    state.tokens = tokens;
                    state.sessions = sessions;
                    state.known = Some(changes);
                }
                Err(error) => {
                    let error = takt_model::error_chain(&error);
                    tracing::error!(error, "cannot read tokens and sessions");
                    return None;
                }
            }
        }
        Some(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Keys = (HashMap<String, TokenRecord>, HashMap<String, SessionRecord>);

fn read(records: &Records<'_>) -> Result<Keys, StoreError> {
    let tokens = records.tokens()?.into_iter();
    // All sessions: `session` judges their age, with the limit of their way.
    let sessions = records.sessions(UnixTime(0))?.into_iter();
    Ok((
        tokens.map(|token| (token.hash.clone(), token)).collect(),
        sessions
            .map(|session| (session.hash.clone(), session))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::session::{ATTEMPT_SECONDS, MAX_ATTEMPTS};

    #[test]
    fn a_code_signs_in_once_and_for_two_minutes() {
        let keys = Keyring::default();

        let code = keys.new_code("alice", UnixTime(0)).unwrap().unwrap();
        assert_eq!(
            keys.user_of_code(&code, UnixTime(100)).as_deref(),
            Some("alice")
        );

        assert_eq!(keys.user_of_code(&code, UnixTime(CODE_SECONDS)), None);
        assert_eq!(
            keys.take_code(&code, UnixTime(119)).as_deref(),
            Some("alice")
        );
        assert_eq!(keys.take_code(&code, UnixTime(119)), None, "used up");
        // Exactly two minutes are too late.
        let late = keys.new_code("alice", UnixTime(0)).unwrap().unwrap();
        assert_eq!(keys.take_code(&late, UnixTime(CODE_SECONDS)), None);
        assert_eq!(keys.take_code("guess", UnixTime(0)), None);
    }

    #[test]
    fn a_user_has_few_codes() {
        let keys = Keyring::default();
        let codes = (0..=MAX_CODES).map(|_| keys.new_code("alice", UnixTime(0)).unwrap().is_some());
        assert_eq!(codes.filter(|made| *made).count(), MAX_CODES);
        assert!(keys.new_code("bob", UnixTime(0)).unwrap().is_some());
        assert!(
            keys.new_code("alice", UnixTime(CODE_SECONDS))
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn guessing_has_a_limit_for_each_address() {
        let keys = Keyring::default();
        let one = IpAddr::from([10, 0, 0, 1]);
        // Twice as many as allowed.
        let tries = (0..20)
            .filter(|_| keys.may_attempt(one, UnixTime(0)))
            .count();
        assert_eq!(tries, MAX_ATTEMPTS);
        assert!(keys.may_attempt(IpAddr::from([10, 0, 0, 2]), UnixTime(0)));
        assert!(keys.may_attempt(one, UnixTime(ATTEMPT_SECONDS)));
    }
}
