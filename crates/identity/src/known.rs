//! Identifies the sender of a request: by token, session, proxy or the kernel.

use super::config::AuthConfig;
use super::directory::Directory;
use super::keyring::{Keyring, SessionUser, ValidToken};
use super::munge::Munge;
use super::oidc::Oidc;
use super::proxy::{Forwarded, Proxies, ProxyUser};
use super::{
    Peer, address_of, discard_error, equal, given_token, has_bearer, kernel, local, now,
    session_cookie,
};
use anyhow::Context;
use axum::http::HeaderMap;
use rustix::process;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use takt_access::session::{LONGEST_SECONDS, OUTSIDE_SECONDS};
use takt_access::{Privacy, Role, RoleBook, Viewer, Way};
use takt_store::{AuditRecord, Records, Store, spawn_blocking};
use tokio::sync::Semaphore;

/// Cookie of a session over https. A cookie with this prefix needs `Secure` and `Path=/` and has no
/// `Domain`.
pub(super) const SECURE_COOKIE: &str = "__Host-takt";

/// Cookie of a session over plain loopback.
pub(super) const PLAIN_COOKIE: &str = "takt";

/// Time for which the name of a uid, or the kind of a name, is kept.
const NAME_TIME: Duration = Duration::from_secs(300);

/// Maximum number of kept names.
const MAX_NAMES: usize = 4096;

/// Passwords that are hashed at once: each takes 19 MiB.
const MAX_HASHES: usize = 2;

/// Sign-ins with a password that wait or are hashed.
const MAX_WAITING: usize = 64;

/// Checks the files with secrets and the Unix users that the configuration names.
///
/// # Errors
/// If a file cannot be read, or a user does not exist.
pub fn check_files(config: &AuthConfig) -> anyhow::Result<()> {
    // The same constructor as the server's, so the check cannot differ from the start.
    Access::new(config, "", None).map(drop)
}

/// How a user has signed in with a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignInWay {
    Link,
    Password,
    Ldap,
    Oidc,
}

impl SignInWay {
    const ALL: [Self; 4] = [Self::Link, Self::Password, Self::Ldap, Self::Oidc];

    /// Returns the name in the store and in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Password => "password",
            Self::Ldap => "ldap",
            Self::Oidc => "oidc",
        }
    }

    /// Returns the way with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Returns the seconds after which a session ends in any case.
    pub fn longest_seconds(self) -> i64 {
        match self {
            Self::Link | Self::Password => LONGEST_SECONDS,
            Self::Ldap | Self::Oidc => OUTSIDE_SECONDS,
        }
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// The Unix socket; the uid of its other end.
    Socket(Option<u32>),
    /// This machine; the owner of the connection.
    Local(Option<u32>),
    /// A trusted proxy, with the user that it has signed in.
    Proxy(Option<ProxyUser>),
    /// Another machine, or a proxy that is not trusted.
    Elsewhere,
}

/// Tokens, roles and privacy of a server.
#[derive(Debug, Clone)]
pub struct Access {
    pub(super) state: Arc<AccessState>,
}

#[derive(Debug)]
pub(super) struct AccessState {
    token: String,
    read_token: Option<String>,
    keyring: Keyring,
    /// Role of those who are not signed in.
    anonymous: Role,
    /// Whether people sign in with passwords of `takt passwd`.
    pub passwords: bool,
    pub waiting: Semaphore,
    pub hashes: Semaphore,
    proxies: Option<Proxies>,
    pub oidc: Option<Oidc>,
    pub directory: Option<Directory>,
    pub munge: Option<Munge>,
    external_url: RwLock<String>,
    /// Whether `[auth]` is empty: then services of this machine may read at the level `open`.
    is_default: bool,
    /// Tokens of the programs that push samples, with their names.
    senders: RwLock<Vec<(String, Arc<str>)>>,
    /// Uid of this process.
    own_uid: u32,
    uid_min: u32,
    live: RwLock<LiveAccess>,
    names: RwLock<HashMap<u32, KeptName>>,
    /// Whether a name is one of the system, and the time of the look-up.
    system_names: RwLock<HashMap<String, (bool, Instant)>>,
}

/// Name of a uid, if it has one, and the time of the look-up.
type KeptName = (Option<Arc<str>>, Instant);

/// Settings that can change while the server runs.
#[derive(Debug)]
struct LiveAccess {
    privacy: Privacy,
    roles: Arc<RoleBook>,
}

impl Access {
    /// `token` has the role `admin`, `read_token` the role `viewer`. Reads the files with secrets.
    ///
    /// # Errors
    /// If a file cannot be read, or the Unix user of a proxy does not exist.
    pub fn new(config: &AuthConfig, token: &str, read_token: Option<&str>) -> anyhow::Result<Self> {
        let own_uid = process::getuid().as_raw();
        let url = config.external_url.as_deref().unwrap_or_default();
        let proxies = config.proxy.as_ref().map(Proxies::new).transpose();
        let oidc = config.oidc.as_ref().map(|oidc| Oidc::new(oidc, url));
        let directory = config.ldap.as_ref().map(Directory::new).transpose();

        let state = AccessState {
            anonymous: config.anonymous.role(),
            passwords: config.passwords,
            waiting: Semaphore::new(MAX_WAITING),
            hashes: Semaphore::new(MAX_HASHES),
            proxies: proxies.context("proxy")?,
            oidc: oidc.transpose().context("oidc")?,
            directory: directory.context("ldap")?,
            munge: config.munge.then(|| Munge::new(url, own_uid)),
            system_names: RwLock::default(),
            token: token.to_owned(),
            read_token: read_token.map(str::to_owned),
            keyring: Keyring::default(),
            external_url: RwLock::new(config.external_url.clone().unwrap_or_default()),
            // Any setting of `[auth]` is a decision about access, and ends the trust in services of this machine.
            is_default: *config == AuthConfig::default(),
            senders: RwLock::default(),
            own_uid,
            uid_min: kernel::uid_min(),
            live: RwLock::new(LiveAccess {
                privacy: config.privacy.level().unwrap_or_default(),
                roles: Arc::new(config.roles()),
            }),
            names: RwLock::default(),
        };

        Ok(Self {
            state: Arc::new(state),
        })
    }

    /// Uses another store, and this address if `auth.external_url` is not set.
    pub fn attach(&self, store: &Arc<Store>, address: SocketAddr) {
        self.state.keyring.attach(store);

        let mut url = self.state.external_url.write();
        let url = url.as_mut().unwrap_or_else(|error| error.get_mut());
        // A configured address stays: the listen address is not what browsers use behind a proxy.
        if url.is_empty() {
            **url = format!("http://{address}");
        }
    }

    pub(super) fn keyring(&self) -> &Keyring {
        &self.state.keyring
    }

    /// Returns the address of this server for browsers, without a slash at the end.
    pub(super) fn external_url(&self) -> String {
        let url = self.state.external_url.read();
        url.unwrap_or_else(PoisonError::into_inner)
            .trim_end_matches('/')
            .to_owned()
    }

    /// Admits the programs that push samples, by their tokens and names.
    pub fn admit_senders(&self, tokens: Vec<(String, Arc<str>)>) {
        let mut senders = self.state.senders.write();
        let senders = senders.as_mut().unwrap_or_else(|error| error.get_mut());
        **senders = tokens;
    }

    /// Returns the name of the sender with this token.
    fn sender_of(&self, token: &str) -> Option<Arc<str>> {
        let senders = self
            .state
            .senders
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        senders
            .iter()
            .find(|(known, _)| equal(token.as_bytes(), known.as_bytes()))
            .map(|(_, name)| Arc::clone(name))
    }

    /// Uses other roles, and another level of privacy, from now on.
    pub fn follow(&self, privacy: Privacy, roles: RoleBook) {
        let mut live = self.state.live.write();
        let live = live.as_mut().unwrap_or_else(|error| error.get_mut());
        live.privacy = privacy;
        live.roles = Arc::new(roles);
    }

    /// Returns whether users may not see each other's usage.
    pub fn hides_usage(&self) -> bool {
        self.live().0 > Privacy::Open
    }

    pub(super) fn live(&self) -> (Privacy, Arc<RoleBook>) {
        let live = self
            .state
            .live
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (live.privacy, Arc::clone(&live.roles))
    }

    /// Returns the role of one of the two configured tokens in the headers.
    pub(super) fn token_role(&self, headers: &HeaderMap) -> Option<Role> {
        self.role_of(given_token(headers)?.as_bytes())
    }

    async fn valid_token(&self, text: String) -> Option<ValidToken> {
        let access = self.clone();
        let valid = move || access.keyring().token(&text, now());
        spawn_blocking(valid).await.ok().flatten()
    }

    async fn session_user(&self, cookie: &str) -> Option<SessionUser> {
        let access = self.clone();
        let cookie = cookie.to_owned();
        let user = move || access.keyring().session(&cookie, now());
        spawn_blocking(user).await.ok().flatten()
    }

    /// Returns the viewer at the other end of the Unix socket. Root and the user who runs the
    /// server are administrators.
    async fn socket_viewer(&self, uid: Option<u32>, privacy: Privacy, roles: &RoleBook) -> Viewer {
        if uid == Some(0) {
            return Viewer::new(Role::Admin, Way::Socket, privacy).with_user("root");
        }

        let name = self.name_of(uid).await;
        // The server usually runs as a system user, and `name_of` has names of people only.
        if uid == Some(self.state.own_uid) {
            let viewer = Viewer::new(Role::Admin, Way::Socket, privacy);
            return match name {
                Some(name) => viewer.with_user(name),
                None => viewer,
            };
        }
        // A uid below `UID_MIN` has no name here. It is treated as a service of this machine.
        match name {
            Some(name) => roles.viewer(&name, Way::Socket, privacy),
            None => self.local_viewer(uid, None, privacy, roles),
        }
    }

    /// Writes a sign-in or a sign-out to the audit log.
    pub(super) async fn note(
        &self,
        user: Option<&str>,
        peer: Peer,
        action: &str,
        object: &str,
        outcome: &str,
    ) {
        let entry = AuditRecord {
            at: now(),
            user: user.map(str::to_owned),
            role: String::new(),
            way: String::new(),
            address: address_of(peer),
            action: action.to_owned(),
            object: object.to_owned(),
            outcome: outcome.to_owned(),
        };
        self.audit(entry).await;
    }

    pub(super) async fn audit(&self, entry: AuditRecord) {
        let access = self.clone();
        let written = spawn_blocking(move || access.keyring().audit(&entry));
        discard_error(written.await);
    }

    /// Returns the header that sets the cookie of a session. Over https its name keeps other hosts
    /// from setting it.
    pub(super) fn cookie(&self, headers: &HeaderMap, value: &str) -> String {
        let seconds = LONGEST_SECONDS;
        let (name, secure) = self.cookie_name(headers);
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
    }

    /// Returns the header that deletes the cookie of a session.
    pub(super) fn no_cookie(&self, headers: &HeaderMap) -> String {
        let (name, secure) = self.cookie_name(headers);
        format!("{name}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0{secure}")
    }

    pub(super) fn cookie_name(&self, headers: &HeaderMap) -> (&'static str, &'static str) {
        // A direct request comes over plain HTTP even if a proxy speaks https, and may lose a `Secure` cookie.
        let is_https = self.external_url().starts_with("https://") && local::is_forwarded(headers);
        if is_https {
            (SECURE_COOKIE, "; Secure")
        } else {
            (PLAIN_COOKIE, "")
        }
    }

    fn role_of(&self, token: &[u8]) -> Option<Role> {
        let reader = self.state.read_token.as_deref();
        // Both comparisons always happen, so their time does not say which token came close.
        let is_reader = reader.is_some_and(|reader| equal(token, reader.as_bytes()));
        if equal(token, self.state.token.as_bytes()) {
            Some(Role::Admin)
        } else {
            is_reader.then_some(Role::Viewer)
        }
    }

    /// Returns what a trusted proxy says of a request.
    pub(super) fn forwarded(&self, peer: Peer, headers: &HeaderMap) -> Option<Forwarded> {
        let proxies = self.state.proxies.as_ref()?;
        let read = proxies.read(peer, headers);
        // Only noted for debugging: anyone can send the header, and must not fill the log.
        if read.is_none() && proxies.names_user(headers) {
            let client = address_of(peer);
            tracing::debug!(
                client,
                "a header with a user comes from an untrusted address"
            );
        }
        read
    }

    /// Removes the headers that only proxies send. Returns whether one named a user.
    pub(super) fn remove_proxy_headers(&self, headers: &mut HeaderMap) -> bool {
        let proxies = self.state.proxies.as_ref();
        proxies.is_some_and(|proxies| proxies.remove_headers(headers))
    }

    /// Finds out who sends a request.
    pub(super) async fn viewer(&self, headers: &HeaderMap, origin: Origin) -> Viewer {
        let (privacy, roles) = self.live();
        let viewer = match self.known_viewer(headers, origin, privacy, &roles).await {
            Some(viewer) => viewer,
            None => Viewer::anonymous(privacy),
        };
        // A known viewer sees at least what anonymous viewers see.
        viewer.with_role_at_least(self.state.anonymous)
    }

    async fn known_viewer(
        &self,
        headers: &HeaderMap,
        origin: Origin,
        privacy: Privacy,
        roles: &RoleBook,
    ) -> Option<Viewer> {
        // Tokens come first: a request with one is meant as that viewer, whatever the connection says.
        if let Some(role) = self.token_role(headers) {
            return Some(Viewer::new(role, Way::Token, privacy));
        }

        let sender = given_token(headers).and_then(|token| self.sender_of(&token));
        if let Some(sender) = sender {
            return Some(Viewer::sender(sender, privacy));
        }

        if let Some(token) = given_token(headers)
            && let Some(token) = self.valid_token(token).await
        {
            return Some(match token.owner {
                None => Viewer::new(token.role, Way::Token, privacy),
                // The owner's present role counts, so that who loses a role loses it for tokens,
                // too.
                Some(owner) => roles
                    .viewer(&owner, Way::Token, privacy)
                    .with_role_at_most(token.role),
            });
        }
        // A request with a wrong token is not answered as that of another viewer.
        if has_bearer(headers) && !matches!(origin, Origin::Proxy(_)) {
            return None;
        }

        if let Origin::Proxy(Some(user)) = origin {
            return self.proxy_viewer(user, privacy, roles).await;
        }

        if let Some(cookie) = session_cookie(headers)
            && let Some(session) = self.session_user(cookie).await
        {
            return self.session_viewer(&session, privacy, roles);
        }
        match origin {
            Origin::Socket(uid) => Some(self.socket_viewer(uid, privacy, roles).await),
            Origin::Local(uid) => {
                let name = self.name_of(uid).await;
                Some(self.local_viewer(uid, name.as_deref(), privacy, roles))
            }
            Origin::Proxy(_) | Origin::Elsewhere => None,
        }
    }

    /// Returns the viewer of a session. A session of a way that is not configured any more is
    /// nobody's.
    fn session_viewer(
        &self,
        session: &SessionUser,
        privacy: Privacy,
        roles: &RoleBook,
    ) -> Option<Viewer> {
        let state = &self.state;
        let viewer = roles.viewer(&session.user, Way::Session, privacy);
        let groups = match session.way {
            SignInWay::Link => return Some(viewer),
            SignInWay::Password => return state.passwords.then_some(viewer),
            SignInWay::Oidc => state.oidc.as_ref()?.groups(),
            SignInWay::Ldap => state.directory.as_ref()?.groups(),
        };
        // Groups were those at the sign-in. Their roles are those of the present configuration.
        let role = groups.role(&session.groups)?;
        Some(viewer.with_role_at_least(role))
    }

    /// Returns the viewer that a trusted proxy names.
    async fn proxy_viewer(
        &self,
        user: ProxyUser,
        privacy: Privacy,
        roles: &RoleBook,
    ) -> Option<Viewer> {
        // A proxy that passes on any name must not make anyone root or a service.
        if self.is_system_user(&user.name).await {
            return None;
        }
        let groups = &self.state.proxies.as_ref()?.groups;
        let role = groups.role(&user.groups)?;
        let viewer = roles.viewer(&user.name, Way::Proxy, privacy);
        Some(viewer.with_role_at_least(role))
    }

    /// Returns the viewer behind a loopback connection, or an unknown one.
    pub async fn viewer_of(&self, peer: Peer) -> Viewer {
        // Only the connection is known here, so the headers of a proxy cannot count.
        let is_local = peer.address.ip().to_canonical().is_loopback();
        let origin = if is_local {
            Origin::Local(peer.uid)
        } else {
            Origin::Elsewhere
        };
        self.viewer(&HeaderMap::new(), origin).await
    }

    /// Returns the viewer of a loopback connection.
    pub(super) fn local_viewer(
        &self,
        uid: Option<u32>,
        name: Option<&str>,
        privacy: Privacy,
        roles: &RoleBook,
    ) -> Viewer {
        let state = &self.state;
        let person = uid.filter(|uid| kernel::is_person(*uid, state.uid_min));
        match (person, name) {
            // The user who runs the server can read its files anyway.
            (Some(uid), Some(name)) if uid == state.own_uid => {
                Viewer::new(Role::Admin, Way::Loopback, privacy).with_user(name)
            }
            (Some(_), Some(name)) => roles.viewer(name, Way::Loopback, privacy),
            // Grafana and other services of this machine.
            _ if state.is_default && privacy == Privacy::Open => {
                Viewer::new(Role::Viewer, Way::Loopback, privacy)
            }
            _ => Viewer::anonymous(privacy),
        }
    }

    /// Returns the Unix name of a person's uid.
    pub(super) async fn name_of(&self, uid: Option<u32>) -> Option<Arc<str>> {
        let uid = uid.filter(|uid| kernel::is_person(*uid, self.state.uid_min))?;

        if let Some(name) = self.kept_name(uid) {
            return name;
        }
        let name: Option<Arc<str>> = spawn_blocking(move || kernel::user_name(uid))
            .await
            .ok()
            .flatten()
            .map(Into::into);

        let mut names = self
            .state
            .names
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Cleared as a whole: a name is soon looked up again, and an order of use need not be kept.
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(uid, (name.clone(), Instant::now()));
        name
    }
}

impl Access {
    /// Returns whether a name is root's or a system user's. A name that this machine does not know
    /// is not.
    pub(super) async fn is_system_user(&self, name: &str) -> bool {
        let kept = self.state.system_names.read();
        let kept = kept
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .copied();
        if let Some((is_system, at)) = kept
            && at.elapsed() < NAME_TIME
        {
            return is_system;
        }

        let uid_min = self.state.uid_min;
        let of = name.to_owned();
        let uid = spawn_blocking(move || kernel::uid_of(&of))
            .await
            .ok()
            .flatten();
        let is_system = uid.is_some_and(|uid| !kernel::is_person(uid, uid_min));

        let mut names = self
            .state
            .system_names
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(name.to_owned(), (is_system, Instant::now()));
        is_system
    }

    /// Returns whether a name is a person's on this machine, or of a job.
    pub(super) async fn is_known_user(&self, name: &str) -> anyhow::Result<bool> {
        let access = self.clone();
        let name = name.to_owned();
        spawn_blocking(move || {
            // A name that this machine knows is judged by its uid: a job of root does not make root a person.
            if let Some(uid) = kernel::uid_of(&name) {
                return Ok(kernel::is_person(uid, access.state.uid_min));
            }
            let store = access.keyring().open_store()?;
            Ok(Records::of(store.database()).is_known_user(&name)?)
        })
        .await?
    }

    /// Returns a name that was looked up lately. `Some(None)`: the uid has no name.
    fn kept_name(&self, uid: u32) -> Option<Option<Arc<str>>> {
        let names = self
            .state
            .names
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let (name, at) = names.get(&uid)?;
        (at.elapsed() < NAME_TIME).then(|| name.clone())
    }
}
