//! The access check: finds out who asks, and refuses requests whose route needs more.
//!
//! A viewer is known by a token (as a bearer token or as the password of basic authentication, with any user name, which
//! browsers can send), by the cookie of a session, or by the kernel: the peer of the Unix socket, or the owner of a loopback
//! connection. Handlers get the [`Viewer`] from this check alone.

mod config;
mod guarded;
mod kernel;
mod keyring;
mod local;
mod sign_in;
mod slurm;

pub use config::{AuthConfig, PrivacySetting};
pub use guarded::{GuardedRouter, NeedTable};
pub use sign_in::{LINK_PATH, SignInLink};
pub use slurm::SlurmFollower;

use super::{ErrorBody, ErrorKind};
use axum::Router;
use axum::extract::{Extension, FromRequestParts, Json, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use keyring::{Keyring, ValidToken};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use takt_access::{Need, Privacy, Refusal, Role, RoleBook, RouteNeeds, Viewer, Way};
use takt_store::{AuditRecord, Store};

/// Maximum size of a refused body that is read.
const DISCARDED_BYTES: usize = 1 << 20;

/// Maximum time for reading it.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Cookie of a session over https. A cookie with this prefix needs `Secure` and `Path=/` and has no `Domain`.
const SECURE_COOKIE: &str = "__Host-takt";

/// Cookie of a session over plain loopback.
const PLAIN_COOKIE: &str = "takt";

/// Maximum length of an address in the audit log.
const MAX_OBJECT_CHARS: usize = 500;

/// Time for which the name of a uid is kept.
const NAME_TIME: Duration = Duration::from_secs(300);

/// Maximum number of kept names.
const MAX_NAMES: usize = 4096;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client.
    pub address: SocketAddr,
    /// Owner of a loopback connection, or of the other end of the Unix socket.
    pub uid: Option<u32>,
    /// Whether the connection came through the Unix socket.
    pub is_socket: bool,
}

impl Peer {
    /// Returns the peer of a connection between two addresses. The kernel names the owner of a loopback connection.
    pub fn of(address: SocketAddr, server: Option<SocketAddr>) -> Self {
        let is_loopback = address.ip().to_canonical().is_loopback();
        let uid = server
            .filter(|_| is_loopback)
            .and_then(|server| kernel::owner(address, server));
        Self {
            address,
            uid,
            is_socket: false,
        }
    }
}

/// Tokens, roles and privacy of a server.
#[derive(Debug, Clone)]
pub struct Access {
    state: Arc<AccessState>,
}

#[derive(Debug)]
struct AccessState {
    token: String,
    read_token: Option<String>,
    keyring: Keyring,
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
}

/// Name of a uid, if it has one, and the time of the look-up.
type KeptName = (Option<Arc<str>>, Instant);

/// What can change while the server runs.
#[derive(Debug)]
struct LiveAccess {
    privacy: Privacy,
    roles: Arc<RoleBook>,
}

impl Access {
    /// `token` has the role `admin`, `read_token` the role `viewer`.
    pub fn new(config: &AuthConfig, token: &str, read_token: Option<&str>) -> Self {
        let state = AccessState {
            token: token.to_owned(),
            read_token: read_token.map(str::to_owned),
            keyring: Keyring::default(),
            external_url: RwLock::new(config.external_url.clone().unwrap_or_default()),
            is_default: *config == AuthConfig::default(),
            senders: RwLock::default(),
            own_uid: rustix::process::getuid().as_raw(),
            uid_min: kernel::uid_min(),
            live: RwLock::new(LiveAccess {
                privacy: config.privacy.level().unwrap_or_default(),
                roles: Arc::new(config.roles()),
            }),
            names: RwLock::default(),
        };
        Self {
            state: Arc::new(state),
        }
    }

    /// Uses another store, and this address if `auth.external_url` is not set.
    pub fn attach(&self, store: &Arc<Store>, address: SocketAddr) {
        self.state.keyring.attach(store);
        let mut url = self.state.external_url.write();
        let url = url.as_mut().unwrap_or_else(|error| error.get_mut());
        if url.is_empty() {
            **url = format!("http://{address}");
        }
    }

    /// Admits the programs that push samples, by their tokens and names.
    pub fn admit_senders(&self, tokens: Vec<(String, Arc<str>)>) {
        let mut senders = self.state.senders.write();
        let senders = senders.as_mut().unwrap_or_else(|error| error.get_mut());
        **senders = tokens;
    }

    /// Returns the name of the sender with this token.
    fn sender_of(&self, token: &str) -> Option<Arc<str>> {
        let senders = self.state.senders.read();
        let senders = senders.unwrap_or_else(PoisonError::into_inner);
        let mut senders = senders.iter();
        let found = senders.find(|(known, _)| equal(token.as_bytes(), known.as_bytes()));
        found.map(|(_, name)| Arc::clone(name))
    }

    fn keyring(&self) -> &Keyring {
        &self.state.keyring
    }

    /// Returns the address of this server for browsers, without a slash at the end.
    fn external_url(&self) -> String {
        let url = self.state.external_url.read();
        let url = url.unwrap_or_else(PoisonError::into_inner);
        url.trim_end_matches('/').to_owned()
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

    fn live(&self) -> (Privacy, Arc<RoleBook>) {
        let live = self.state.live.read();
        let live = live.unwrap_or_else(PoisonError::into_inner);
        (live.privacy, Arc::clone(&live.roles))
    }

    /// Returns the role of one of the two configured tokens in the headers.
    fn token_role(&self, headers: &HeaderMap) -> Option<Role> {
        self.role_of(given_token(headers)?.as_bytes())
    }

    async fn valid_token(&self, text: String) -> Option<ValidToken> {
        let access = self.clone();
        let valid = move || access.keyring().token(&text, now());
        tokio::task::spawn_blocking(valid).await.ok().flatten()
    }

    async fn session_user(&self, cookie: &str) -> Option<String> {
        let access = self.clone();
        let cookie = cookie.to_owned();
        let user = move || access.keyring().session(&cookie, now());
        tokio::task::spawn_blocking(user).await.ok().flatten()
    }

    /// Returns the viewer at the other end of the Unix socket. Root and the user who runs the server are administrators.
    async fn socket_viewer(&self, uid: Option<u32>, privacy: Privacy, roles: &RoleBook) -> Viewer {
        if uid == Some(0) {
            return Viewer::new(Role::Admin, Way::Socket, privacy).with_user("root");
        }
        let name = self.name_of(uid).await;
        if uid == Some(self.state.own_uid) {
            let viewer = Viewer::new(Role::Admin, Way::Socket, privacy);
            return match name {
                Some(name) => viewer.with_user(name),
                None => viewer,
            };
        }
        match name {
            Some(name) => roles.viewer(&name, Way::Socket, privacy),
            None => self.local_viewer(uid, None, privacy, roles),
        }
    }

    /// Writes a sign-in or a sign-out to the audit log.
    async fn note(
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

    async fn audit(&self, entry: AuditRecord) {
        let access = self.clone();
        let written = tokio::task::spawn_blocking(move || access.keyring().audit(&entry));
        discard_error(written.await);
    }

    /// Returns the header that sets the cookie of a session. Over https its name keeps other hosts from setting it.
    fn cookie(&self, headers: &HeaderMap, value: &str) -> String {
        let seconds = takt_access::session::LONGEST_SECONDS;
        let (name, secure) = self.cookie_name(headers);
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
    }

    /// Returns the header that deletes the cookie of a session.
    fn no_cookie(&self, headers: &HeaderMap) -> String {
        let (name, secure) = self.cookie_name(headers);
        format!("{name}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0{secure}")
    }

    fn cookie_name(&self, headers: &HeaderMap) -> (&'static str, &'static str) {
        let is_https = self.external_url().starts_with("https://") && local::is_forwarded(headers);
        if is_https {
            (SECURE_COOKIE, "; Secure")
        } else {
            (PLAIN_COOKIE, "")
        }
    }

    fn role_of(&self, token: &[u8]) -> Option<Role> {
        let reader = self.state.read_token.as_deref();
        let is_reader = reader.is_some_and(|reader| equal(token, reader.as_bytes()));
        if equal(token, self.state.token.as_bytes()) {
            Some(Role::Admin)
        } else {
            is_reader.then_some(Role::Viewer)
        }
    }

    /// Finds out who sends a request.
    async fn viewer(&self, headers: &HeaderMap, is_local: bool, peer: Peer) -> Viewer {
        let (privacy, roles) = self.live();
        if let Some(role) = self.token_role(headers) {
            return Viewer::new(role, Way::Token, privacy);
        }
        let sender = given_token(headers).and_then(|token| self.sender_of(&token));
        if let Some(sender) = sender {
            return Viewer::sender(sender, privacy);
        }
        if let Some(token) = given_token(headers)
            && let Some(token) = self.valid_token(token).await
        {
            return match token.owner {
                None => Viewer::new(token.role, Way::Token, privacy),
                // The owner's present role counts, so that who loses a role loses it for tokens, too.
                Some(owner) => roles
                    .viewer(&owner, Way::Token, privacy)
                    .with_role_at_most(token.role),
            };
        }
        if let Some(cookie) = session_cookie(headers)
            && let Some(user) = self.session_user(cookie).await
        {
            return roles.viewer(&user, Way::Session, privacy);
        }
        if peer.is_socket {
            return self.socket_viewer(peer.uid, privacy, &roles).await;
        }
        if is_local {
            let name = self.name_of(peer.uid).await;
            self.local_viewer(peer.uid, name.as_deref(), privacy, &roles)
        } else {
            Viewer::anonymous(privacy)
        }
    }

    /// Returns the viewer behind a loopback connection, or an unknown one.
    pub async fn viewer_of(&self, peer: Peer) -> Viewer {
        let is_local = peer.address.ip().to_canonical().is_loopback();
        self.viewer(&HeaderMap::new(), is_local, peer).await
    }

    /// Returns the viewer of a loopback connection.
    fn local_viewer(
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
    async fn name_of(&self, uid: Option<u32>) -> Option<Arc<str>> {
        let uid = uid.filter(|uid| kernel::is_person(*uid, self.state.uid_min))?;
        if let Some(name) = self.kept_name(uid) {
            return name;
        }
        let found = tokio::task::spawn_blocking(move || kernel::user_name(uid));
        let name: Option<Arc<str>> = found.await.ok().flatten().map(Into::into);
        let names = self.state.names.write();
        let mut names = names.unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(uid, (name.clone(), Instant::now()));
        name
    }
}

impl Access {
    /// Returns a name that was looked up lately. `Some(None)`: the uid has no name.
    fn kept_name(&self, uid: u32) -> Option<Option<Arc<str>>> {
        let names = self.state.names.read();
        let names = names.unwrap_or_else(PoisonError::into_inner);
        let (name, at) = names.get(&uid)?;
        (at.elapsed() < NAME_TIME).then(|| name.clone())
    }
}

/// The access check with the needs of all routes.
#[derive(Debug, Clone)]
struct Guard {
    access: Access,
    needs: Arc<NeedTable>,
}

/// Path of the list of routes.
const ROUTES_PATH: &str = "/api/takt/v1/routes";

/// A route in the list of routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRoute {
    /// Path in the router's form: `/nodes/{node}`.
    pub path: String,
    /// Least role for GET; `null` if everybody may.
    pub read: Option<Role>,
    /// Least role for other methods; `null` if everybody may.
    pub other: Option<Role>,
}

/// Adds a route that lists all routes with the least role that always may use them.
fn with_list(router: GuardedRouter) -> GuardedRouter {
    let router = router.route(
        ROUTES_PATH,
        RouteNeeds::get(Need::Role(Role::Admin)),
        get(async |Extension(list): Extension<Arc<[ListedRoute]>>| Json(list)),
    );
    let role = |need: Need| Some(need.role()).filter(|role| *role > Role::Anonymous);
    let listed = router.needs().iter().map(|(path, needs)| ListedRoute {
        path: path.clone(),
        read: role(needs.read),
        other: role(needs.other),
    });
    let list: Arc<[ListedRoute]> = listed.collect();
    router.map(|router| router.layer(Extension(list)))
}

/// Returns the router with the access check before every route.
pub fn guarded(router: GuardedRouter, access: Access) -> Router {
    let router = router.merge(sign_in::router(access.clone()));
    let router = with_list(router);
    let (router, needs) = router.into_parts();
    let needs = Arc::new(needs);
    let guard = Guard { access, needs };
    router.layer(axum::middleware::from_fn_with_state(guard, check))
}

/// The middleware: refuses a request whose route needs more, and gives the others their [`Viewer`].
async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let peer = peer.unwrap_or_else(|| Peer {
        address: SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
        uid: None,
        is_socket: false,
    });
    let is_local = local::is_local(&request, peer.address.ip());
    let headers = request.headers().clone();
    let viewer = guard.access.viewer(&headers, is_local, peer).await;
    let allowed = match guard.need(&request) {
        Some(need) => viewer.check(need),
        None => {
            let path = request.uri().path();
            tracing::error!(path, "the route has no needs; it answers nobody");
            Err(Refusal::Role(Role::Admin))
        }
    };
    let is_change = guard.need(&request).is_some_and(Need::is_change);
    let allowed = allowed.and_then(|()| {
        if is_change {
            check_site(&viewer, request.headers())
        } else {
            Ok(())
        }
    });
    let mut entry = is_change.then(|| change_entry(&request, &viewer, peer));
    let response = match allowed {
        Ok(()) => {
            request.extensions_mut().insert(viewer);
            next.run(request).await
        }
        Err(refusal) => {
            discard(request).await;
            // Strangers must not fill the log.
            entry = entry.filter(|_| viewer.role() > Role::Anonymous);
            refused(refusal, &viewer)
        }
    };
    if let Some(mut entry) = entry {
        entry.outcome = response.status().as_u16().to_string();
        guard.access.audit(entry).await;
    }
    response
}

/// The entry of the audit log for a request that changes something, without its outcome.
fn change_entry(request: &Request, viewer: &Viewer, peer: Peer) -> AuditRecord {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or_else(|| request.uri().path(), MatchedPath::as_str);
    let object = request.uri().path_and_query();
    let object = object.map_or("", |object| object.as_str());
    AuditRecord {
        at: now(),
        user: viewer.user().map(str::to_owned),
        role: viewer.role_name().to_owned(),
        way: viewer.way().name().to_owned(),
        address: address_of(peer),
        action: format!("{} {path}", request.method()),
        object: object.chars().take(MAX_OBJECT_CHARS).collect(),
        outcome: String::new(),
    }
}

fn address_of(peer: Peer) -> String {
    if peer.is_socket {
        "socket".to_owned()
    } else {
        peer.address.ip().to_canonical().to_string()
    }
}

/// Checks that no other site's page has sent a change. A browser adds the cookie, and the connection's owner is known, whoever
/// has made the request; so these ways need a browser's word that the page is ours. A browser also adds the password of basic
/// authentication.
fn check_site(viewer: &Viewer, headers: &HeaderMap) -> Result<(), Refusal> {
    match (is_of_this_site(headers), viewer.way()) {
        (Some(true), _) => Ok(()),
        (Some(false), _) => Err(Refusal::OtherSite),
        (None, Way::Session | Way::Loopback) => Err(Refusal::Token),
        (None, _) => Ok(()),
    }
}

/// Whether a page of this server has sent the request; `None` if no browser has sent it.
fn is_of_this_site(headers: &HeaderMap) -> Option<bool> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let site = headers.get("sec-fetch-site");
    let site = site.map(|site| site.to_str().unwrap_or("unreadable"));
    takt_access::session::is_same_site(site, text(header::ORIGIN), text(header::HOST))
}

/// The token in the headers: a bearer token, or the password of basic authentication.
fn given_token(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    if let Some(token) = given.strip_prefix("Bearer ") {
        return Some(token.to_owned());
    }
    let basic = BASE64_STANDARD.decode(given.strip_prefix("Basic ")?).ok()?;
    let basic = String::from_utf8(basic).ok()?;
    basic
        .split_once(':')
        .map(|(_, password)| password.to_owned())
}

/// The value of the session's cookie.
fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, value)| [SECURE_COOKIE, PLAIN_COOKIE].contains(name) && !value.is_empty())
        .map(|(_, value)| value)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Logs an error that the client cannot do anything about.
fn discard_error<T, E: std::error::Error>(result: Result<T, E>) {
    if let Err(error) = result {
        let error = takt_model::error_chain(&error);
        tracing::error!(error, "cannot store a change of access control");
    }
}

impl Guard {
    /// Returns the need of a request. `None` for a route that is not in the table.
    fn need(&self, request: &Request) -> Option<Need> {
        let Some(path) = request.extensions().get::<MatchedPath>() else {
            // A path that does not exist. Strangers do not learn that.
            return Some(Need::SignedIn);
        };
        let RouteNeeds { read, other } = *self.needs.get(path.as_str())?;
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        Some(if reads { read } else { other })
    }
}

/// The answer to a refused request.
fn refused(refusal: Refusal, viewer: &Viewer) -> Response {
    let is_unknown = matches!(refusal, Refusal::SignIn | Refusal::Token | Refusal::Sender)
        || (viewer.way() == Way::Token && viewer.user().is_none());
    let error = match (refusal, viewer.user()) {
        (Refusal::Role(_), Some(user)) => {
            format!("{refusal}; {user} has the role {}", viewer.role_name())
        }
        (Refusal::Role(_), None) => format!("{refusal}; you have the role {}", viewer.role_name()),
        _ => refusal.to_string(),
    };
    if is_unknown {
        let kind = ErrorKind::Unauthorized;
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"takt\"")];
        (challenge, ErrorBody { kind, error }).into_response()
    } else {
        let kind = ErrorKind::Forbidden;
        ErrorBody { kind, error }.into_response()
    }
}

/// Reads a small body of a refused request. A client that is still sending when the connection closes
/// sees a broken connection instead of the refusal.
async fn discard(request: Request) {
    let read = axum::body::to_bytes(request.into_body(), DISCARDED_BYTES);
    // Whatever was read or not, the refusal follows.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

/// The viewer that [`check`] has found, as the argument of a handler. Fails on a route outside the check.
#[derive(Debug, Clone)]
pub struct By(pub Viewer);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = ErrorBody;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ErrorBody> {
        let viewer = parts.extensions.get::<Viewer>().cloned();
        viewer.map(By).ok_or_else(|| ErrorBody {
            kind: ErrorKind::Failed,
            error: "the route has no access check".to_owned(),
        })
    }
}

/// Compares in constant time.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn access(config: &AuthConfig) -> Access {
        Access::new(config, "secret-secret-secret", Some("reader-reader-reader"))
    }

    #[test]
    fn a_token_must_be_whole() {
        let access = access(&AuthConfig::default());
        let role = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            access.token_role(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        assert_eq!(role("Bearer secret-secret-secret"), Some(Role::Admin));
        assert_eq!(
            role("Basic YWRtaW46c2VjcmV0LXNlY3JldC1zZWNyZXQ="),
            Some(Role::Admin)
        );
        assert_eq!(role("Basic YWRtaW46"), None);
        assert_eq!(role("Bearer secret"), None);
        assert_eq!(role("secret-secret-secret"), None);
        assert_eq!(access.token_role(&HeaderMap::new()), None);
        assert_eq!(role("Bearer reader-reader-reader"), Some(Role::Viewer));
    }

    #[test]
    fn loopback_identifies_people_and_trusts_services_without_configuration_only() {
        let role = |config: &AuthConfig, uid: Option<u32>, name: Option<&str>| {
            let access = access(config);
            let (privacy, roles) = access.live();
            access.local_viewer(uid, name, privacy, &roles).role()
        };
        let person = Some(4_000_001);
        let default = AuthConfig::default();
        assert_eq!(role(&default, person, Some("alice")), Role::User);
        assert_eq!(role(&default, Some(0), None), Role::Viewer);
        assert_eq!(role(&default, None, None), Role::Viewer);
        let private = AuthConfig {
            privacy: PrivacySetting::Private,
            admins: vec!["alice".to_owned()],
            ..AuthConfig::default()
        };
        assert_eq!(role(&private, person, Some("alice")), Role::Admin);
        assert_eq!(role(&private, Some(0), Some("root")), Role::Anonymous);
        assert_eq!(role(&private, Some(33), Some("www-data")), Role::Anonymous);
        assert_eq!(role(&private, person, None), Role::Anonymous);
        assert_eq!(role(&private, None, None), Role::Anonymous);
        let open = AuthConfig {
            privacy: PrivacySetting::Open,
            ..AuthConfig::default()
        };
        assert_eq!(role(&open, Some(0), None), Role::Anonymous);
    }
}
