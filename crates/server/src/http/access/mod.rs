//! The access check: finds out who asks, and refuses requests whose route needs more.
//!
//! A viewer is known by a token (as a bearer token or as the password of basic authentication, with any user name, which
//! browsers can send), or by the kernel: the owner of a loopback connection. Handlers get the [`Viewer`] from this check alone.

mod config;
mod guarded;
mod kernel;
mod local;
mod slurm;

pub use config::{AuthConfig, PrivacySetting};
pub use guarded::{GuardedRouter, NeedTable};
pub use slurm::SlurmFollower;

use super::{ErrorBody, ErrorKind};
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use takt_access::{Need, Privacy, Refusal, Role, RoleBook, RouteNeeds, Viewer, Way};

/// Maximum size of a refused body that is read.
const DISCARDED_BYTES: usize = 1 << 20;

/// Maximum time for reading it.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Time for which the name of a uid is kept.
const NAME_TIME: Duration = Duration::from_secs(300);

/// Maximum number of kept names.
const MAX_NAMES: usize = 4096;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client.
    pub address: SocketAddr,
    /// Owner of a loopback connection.
    pub uid: Option<u32>,
}

impl Peer {
    /// Returns the peer of a connection between two addresses. The kernel names the owner of a loopback connection.
    pub fn of(address: SocketAddr, server: Option<SocketAddr>) -> Self {
        let is_loopback = address.ip().to_canonical().is_loopback();
        let uid = server
            .filter(|_| is_loopback)
            .and_then(|server| kernel::owner(address, server));
        Self { address, uid }
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
    /// Whether `[auth]` is empty: then services of this machine may read at the level `open`.
    is_default: bool,
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
            is_default: *config == AuthConfig::default(),
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

    /// Uses other roles, and another level of privacy, from now on.
    pub fn follow(&self, privacy: Privacy, roles: RoleBook) {
        let mut live = self.state.live.write();
        let live = live.as_mut().unwrap_or_else(|error| error.get_mut());
        live.privacy = privacy;
        live.roles = Arc::new(roles);
    }

    fn live(&self) -> (Privacy, Arc<RoleBook>) {
        let live = self.state.live.read();
        let live = live.unwrap_or_else(PoisonError::into_inner);
        (live.privacy, Arc::clone(&live.roles))
    }

    /// Returns the role of the token in the headers. `None` without a valid token.
    fn token_role(&self, headers: &HeaderMap) -> Option<Role> {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        if let Some(token) = given.strip_prefix("Bearer ") {
            return self.role_of(token.as_bytes());
        }
        let basic = BASE64_STANDARD.decode(given.strip_prefix("Basic ")?).ok()?;
        let colon = basic.iter().position(|&byte| byte == b':')?;
        self.role_of(&basic[colon + 1..])
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

/// Returns the router with the access check before every route.
pub fn guarded(router: GuardedRouter, access: Access) -> Router {
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
    if let Err(refusal) = allowed {
        discard(request).await;
        return refused(refusal, &viewer);
    }
    request.extensions_mut().insert(viewer);
    next.run(request).await
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
    let is_unknown = matches!(refusal, Refusal::SignIn | Refusal::Token)
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
