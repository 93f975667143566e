//! The access check: finds out who asks, and refuses requests whose route needs more.
//!
//! A viewer is known by a token (as a bearer token or as the password of basic authentication, with
//! any user name, which browsers can send), by a trusted proxy, by the cookie of a session, or by
//! the kernel: the peer of the Unix socket, or the owner of a loopback connection. Handlers get the
//! [`Viewer`] from this check alone.

mod change_password;
mod config;
mod directory;
mod error;
mod examine;
mod guarded;
mod kernel;
mod keyring;
mod known;
mod local;
mod munge;
mod oidc;
mod open_request;
mod password;
mod places;
mod proxy;
mod read_token;
mod senders;
mod sign_in;

pub use config::{AnonymousSetting, AuthConfig, GroupRoles, PrivacySetting};
pub use directory::LdapConfig;
pub use error::{ErrorBody, ErrorKind, RETRY_AFTER, with_retry};
pub use examine::{SignInDefect, SignInService, sign_in_defects};
pub use guarded::{GuardedRouter, NeedTable, RefusedPage, RefusedRequest};
pub use kernel::user_by_number;
pub use known::{Access, check_files};
pub use munge::MungeChallenge;
pub use oidc::OidcConfig;
pub use open_request::OpenRequestRights;
pub use places::{REQUEST_PLACES, RequestPlaces, holder_of, register_places};
pub use proxy::ProxyConfig;
pub use read_token::read_token;
pub use senders::{OTLP_PATH, WRITE_PATH};
pub use sign_in::{CommandToken, LINK_PATH, MUNGE_PATH, SignInLink};

use axum::extract::{Extension, FromRequestParts, Json, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, body, middleware};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use known::{Origin, PLAIN_COOKIE, SECURE_COOKIE};
use places::take_place;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use takt_access::{ActNote, Need, Refusal, Role, RouteNeeds, Viewer, Way, session};
use takt_model::UnixTime;
use takt_store::AuditRecord;
use tokio::time;

/// Maximum size of a refused body that is read.
const DISCARDED_BYTES: usize = 1 << 20;

/// Maximum time for reading it.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Maximum length of an address in the audit log.
const MAX_OBJECT_CHARS: usize = 500;

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
    /// Returns the peer of a connection between two addresses. The kernel names the owner of a
    /// loopback connection.
    pub fn of(address: SocketAddr, server: Option<SocketAddr>) -> Self {
        let is_loopback = address.ip().to_canonical().is_loopback();
        // The kernel looks the connection up by both ends, so the server's own address is needed.
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

/// The access check with the needs of all routes.
#[derive(Debug, Clone)]
struct Guard {
    access: Access,
    needs: Arc<NeedTable>,
    refused: Option<RefusedPage>,
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
    // The list is made once, as routes do not change while the server runs.
    let list: Arc<[ListedRoute]> = router
        .needs()
        .iter()
        .map(|(path, needs)| ListedRoute {
            path: path.clone(),
            read: role(needs.read),
            other: role(needs.other),
        })
        .collect();
    router.map(|router| router.layer(Extension(list)))
}

/// Returns the router with the access check before every route.
pub fn guarded(router: GuardedRouter, access: Access) -> Router {
    let router = router.merge(sign_in::router(access.clone()));
    let router = with_list(router);
    let (router, needs, refused) = router.into_parts();
    let guard = Guard {
        access,
        needs: Arc::new(needs),
        refused,
    };
    router.layer(middleware::from_fn_with_state(guard, check))
}

/// The middleware: refuses a request whose route needs more, and gives the others their [`Viewer`].
async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    // A program that pushes to a wrong path gets the right one instead of a refusal, which would look like a wrong
    // token.
    if request.extensions().get::<MatchedPath>().is_none()
        && let Some(path) = senders::meant(request.uri().path())
    {
        discard(request).await;
        let said = format!("no such path; samples are pushed to {path} (docs/push.md)\n");
        return (StatusCode::NOT_FOUND, said).into_response();
    }

    let need = guard.need(&request);
    let mut identified = guard.identify(&mut request).await;
    let act = ActNote::default();
    identified.viewer = identified.viewer.with_act(Arc::clone(&act));
    let allowed = allow(need, &identified.viewer, &request);

    // Unknown viewers must not fill the log.
    let is_noted = need.is_some_and(Need::is_change)
        && (allowed.is_ok() || identified.viewer.way() != Way::Unknown);
    let entry = is_noted.then(|| change_entry(&request, &identified.viewer, identified.peer));

    let response = match allowed {
        Ok(()) => guard.answer(request, need, identified, next).await,
        Err(refusal) => guard.refuse(request, need, &identified, refusal).await,
    };

    // A link that does nothing is not an act: guessed links must not fill the log either.
    let did_nothing = need == Some(Need::Signed) && act.get().is_none();
    if let Some(mut entry) = entry.filter(|_| !did_nothing) {
        entry.outcome = response.status().as_u16().to_string();
        if let Some(words) = act.get() {
            entry.object = words.chars().take(MAX_OBJECT_CHARS).collect();
        }
        guard.access.audit(entry).await;
    }
    response
}

/// The sender of a request, with what the check knew about it: it can be repeated while the answer stays open.
struct IdentifiedViewer {
    viewer: Viewer,
    /// The client; for a request of a trusted proxy, the proxy's client.
    peer: Peer,
    headers: HeaderMap,
    origin: Origin,
}

/// Checks that the viewer may do what the request asks for.
fn allow(need: Option<Need>, viewer: &Viewer, request: &Request) -> Result<(), Refusal> {
    // A route that was added without needs must not be open by accident.
    let Some(need) = need else {
        let path = request.uri().path();
        tracing::error!(path, "the route has no needs; it answers nobody");
        return Err(Refusal::Role(Role::Admin));
    };
    viewer.check(need)?;
    if need.is_change() {
        return check_site(need, viewer, request.headers());
    }

    // Reading in the name of a viewer changes nothing, but costs the server as much as the viewer's own request.
    if is_embedded_elsewhere(request.headers()) && is_known_by_browser(viewer.way()) {
        return Err(Refusal::OtherSite);
    }
    Ok(())
}

/// Whether a page of another site has made a browser send the request for a part of itself, such as a picture: the page
/// cannot read the answer, and the question costs as much as any. Who follows a link sees where it leads.
fn is_embedded_elsewhere(headers: &HeaderMap) -> bool {
    let is = |name, value| headers.get(name).is_some_and(|given| given == value);
    is("sec-fetch-site", "cross-site") && !is("sec-fetch-dest", "document")
}

/// Whether a browser says who the viewer is, whichever page has made the request.
fn is_known_by_browser(way: Way) -> bool {
    matches!(way, Way::Session | Way::Loopback | Way::Proxy)
}

/// Returns where a request comes from that no trusted proxy has sent. A proxy that is not trusted
/// connects to the socket or from loopback as itself, not as its client.
fn origin(request: &Request, peer: Peer) -> Origin {
    if peer.is_socket {
        if local::is_direct(request) {
            // A proxy connects to the socket as its own Unix user, who is not the client.
            Origin::Socket(peer.uid)
        } else {
            Origin::Elsewhere
        }
    } else if local::is_local(request, peer.address.ip()) {
        Origin::Local(peer.uid)
    } else {
        Origin::Elsewhere
    }
}

/// The entry of the audit log for a request that changes something, without its outcome.
fn change_entry(request: &Request, viewer: &Viewer, peer: Peer) -> AuditRecord {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| request.uri().path(), MatchedPath::as_str);
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

/// Checks that no other site's page has sent a change. A browser adds the cookie, and the
/// connection's owner is known, whoever has made the request; so these ways need a browser's word
/// that the page is ours. A browser also adds the password of basic authentication.
///
/// A signed link proves itself; there only a foreign page is refused, which a browser always names.
fn check_site(need: Need, viewer: &Viewer, headers: &HeaderMap) -> Result<(), Refusal> {
    match (is_of_this_site(headers), viewer.way()) {
        (Some(true), _) => Ok(()),
        (Some(false), _) => Err(Refusal::OtherSite),
        (None, _) if need == Need::Signed => Ok(()),
        (None, way) if is_known_by_browser(way) => Err(Refusal::Token),
        (None, _) => Ok(()),
    }
}

/// Whether a page of this server has sent the request; `None` if no browser has sent it.
fn is_of_this_site(headers: &HeaderMap) -> Option<bool> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let site = headers.get("sec-fetch-site");
    let site = site.map(|site| site.to_str().unwrap_or("unreadable"));
    session::is_same_site(site, text(header::ORIGIN), text(header::HOST))
}

/// The token in the headers: a bearer token, or the password of basic authentication.
fn given_token(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;

    let (scheme, secret) = given.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(secret.to_owned());
    }

    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let basic = BASE64_STANDARD.decode(secret).ok()?;
    String::from_utf8(basic)
        .ok()?
        .split_once(':')
        .map(|(_, password)| password.to_owned())
}

/// Whether the headers have a bearer token.
fn has_bearer(headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let scheme = given.and_then(|given| given.to_str().ok()?.split_once(' '));
    scheme.is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
}

/// The value of the session's cookie.
fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_with(headers, "")
}

/// The value of the cookie whose name is that of the session's with an addition.
fn cookie_with<'h>(headers: &'h HeaderMap, addition: &str) -> Option<&'h str> {
    // HTTP/2 may split the cookies over several headers.
    let cookies = headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let is_it = |name: &str| {
        let names = [SECURE_COOKIE, PLAIN_COOKIE];
        name.strip_suffix(addition)
            .is_some_and(|name| names.contains(&name))
    };
    pairs
        .find(|(name, value)| is_it(name) && !value.is_empty())
        .map(|(_, value)| value)
}

fn now() -> UnixTime {
    jiff::Timestamp::now().into()
}

/// Logs an error that the client cannot do anything about.
fn discard_error<T, E>(result: Result<T, E>)
where
    E: std::error::Error,
{
    if let Err(error) = result {
        let error = takt_model::error_chain(&error);
        tracing::error!(error, "cannot store a change of access control");
    }
}

impl Guard {
    /// Returns the need of a request. `None` for a route that is not in the table.
    fn need(&self, request: &Request) -> Option<Need> {
        let Some(path) = request.extensions().get::<MatchedPath>() else {
            // Unknown viewers must not learn that the path does not exist.
            return Some(Need::SignedIn);
        };
        let RouteNeeds { read, other } = *self.needs.get(path.as_str())?;
        // HEAD has the answer of GET without its body, so it needs the same.
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        Some(if reads { read } else { other })
    }

    /// Finds out who sends a request, and removes the headers that only trusted proxies send.
    async fn identify(&self, request: &mut Request) -> IdentifiedViewer {
        // Without a peer (it came through no listener of this server), a request counts as one from elsewhere.
        let unknown = Peer {
            address: SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
            uid: None,
            is_socket: false,
        };
        let peer = request.extensions().get().copied().unwrap_or(unknown);

        let forwarded = self.access.forwarded(peer, request.headers());
        let names_user = self.access.remove_proxy_headers(request.headers_mut());
        let (peer, origin) = match forwarded {
            Some(forwarded) => {
                let client = peer.forwarded(forwarded.client);
                request.extensions_mut().insert(client);
                (client, Origin::Proxy(forwarded.user))
            }
            // A name from an untrusted address: the request may come through a proxy on this machine, so its owner is
            // not the client.
            None if names_user => (peer, Origin::Elsewhere),
            None => (peer, origin(request, peer)),
        };

        let headers = request.headers().clone();
        IdentifiedViewer {
            viewer: self.access.viewer(&headers, origin.clone()).await,
            peer,
            headers,
            origin,
        }
    }

    /// Answers a request that is allowed, if its class has a place.
    async fn answer(
        &self,
        mut request: Request,
        need: Option<Need>,
        identified: IdentifiedViewer,
        next: Next,
    ) -> Response {
        let IdentifiedViewer { viewer, peer, .. } = &identified;
        if let Err(refusal) = take_place(&request, need, viewer, *peer) {
            discard(request).await;
            return refusal.into_response();
        }

        let caller = holder_of(viewer, *peer).to_string();
        let viewer = viewer.clone().with_caller(caller);
        request.extensions_mut().insert(viewer);
        // Only reading answers stay open. A change is done when it is answered.
        if let Some(need) = need.filter(|need| !need.is_change()) {
            request.extensions_mut().insert(OpenRequestRights {
                access: self.access.clone(),
                headers: identified.headers,
                origin: identified.origin,
                need,
                viewer: identified.viewer,
            });
        }
        next.run(request).await
    }

    async fn refuse(
        &self,
        request: Request,
        need: Option<Need>,
        identified: &IdentifiedViewer,
        refusal: Refusal,
    ) -> Response {
        // A node with a wrong token pushes every few seconds, so the log gets a line at most once a minute.
        if need == Some(Need::Push) {
            senders::note_refused(identified.peer.address.ip());
        }

        let IdentifiedViewer { viewer, peer, .. } = identified;
        let is_page = leads_to_sign_in(refusal, &request);
        let refused_page = self.refused.as_ref();
        let refused_page = refused_page.filter(|_| is_shown_refused(refusal, viewer, &request));
        let method = request.method().clone();
        let path = request.uri().path_and_query();
        let path = path.map_or_else(|| "/".to_owned(), ToString::to_string);
        let name = request.uri().path().to_owned();
        let body = discard(request).await;

        if let Some(page) = refused_page {
            let caller = holder_of(viewer, *peer).to_string();
            let request = RefusedRequest {
                viewer: viewer.clone().with_caller(caller),
                path: name,
                reason: reason(refusal, viewer),
            };
            return page.show(request).await;
        }
        if !is_page {
            return refused(refusal, viewer);
        }
        let next = if method == Method::GET {
            path
        } else {
            filled_again(&path, &body)
        };
        // The address may contain `&` and `#`, which would end the parameter.
        let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let to = [(header::LOCATION, format!("/login?next={next}"))];
        (StatusCode::SEE_OTHER, to).into_response()
    }
}

/// Whether the answer to a refused request is the sign-in page: a browser opens a page or sends its form, and its user is not
/// signed in. A person cannot use an answer in JSON.
fn leads_to_sign_in(refusal: Refusal, request: &Request) -> bool {
    // Scripts set another mode: they cannot show a sign-in page.
    let mode = request.headers().get("sec-fetch-mode");
    let is_page = mode.is_some_and(|mode| mode == "navigate");
    let is_of_page = matches!(*request.method(), Method::GET | Method::POST);
    matches!(refusal, Refusal::SignIn | Refusal::Token) && is_page && is_of_page
}

/// Whether the answer to a refused request is a page that says why: a browser opens an address, and its user is known and may
/// not see it. Scripts of pages, and other programs, read JSON.
fn is_shown_refused(refusal: Refusal, viewer: &Viewer, request: &Request) -> bool {
    let header = |name| request.headers().get(name);
    // Browsers name the mode only to servers with TLS and on their own machine.
    let is_opened = match header("sec-fetch-mode") {
        Some(mode) => mode == "navigate",
        None => header("accept")
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("text/html")),
    };
    let is_of_page = matches!(*request.method(), Method::GET | Method::POST);
    matches!(refusal, Refusal::Role(_)) && !is_nameless(viewer) && is_opened && is_of_page
}

/// Whether a token without a user was given: another one may help.
fn is_nameless(viewer: &Viewer) -> bool {
    viewer.way() == Way::Token && viewer.user().is_none()
}

/// Longest form whose fields are kept while its sender signs in.
const KEPT_FORM_BYTES: usize = 2000;

/// Returns the page of a refused form, with the form's fields in its address if the form allows it: its first field is
/// `return`. Other forms may contain a secret, which must not stand in an address.
fn filled_again(path: &str, body: &[u8]) -> String {
    let page = path.split_once('?').map_or(path, |(page, _)| page);
    let fields = str::from_utf8(body)
        .ok()
        .filter(|text| text.len() <= KEPT_FORM_BYTES)
        .and_then(|text| text.strip_prefix("return=&"));
    match fields {
        Some(fields) => format!("{page}?{fields}"),
        None => page.to_owned(),
    }
}

/// Why a request is refused, with the role of a viewer who has too low a one.
fn reason(refusal: Refusal, viewer: &Viewer) -> String {
    match (refusal, viewer.user()) {
        (Refusal::Role(_), Some(user)) => {
            format!("{refusal}; {user} has the role {}", viewer.role_name())
        }
        (Refusal::Role(_), None) => format!("{refusal}; you have the role {}", viewer.role_name()),
        _ => refusal.to_string(),
    }
}

/// The answer to a refused request.
fn refused(refusal: Refusal, viewer: &Viewer) -> Response {
    let is_unknown = matches!(refusal, Refusal::SignIn | Refusal::Token | Refusal::Sender)
        || is_nameless(viewer);
    let error = reason(refusal, viewer);
    if is_unknown {
        let kind = ErrorKind::Unauthorized;
        // Browsers ask for a name and a password, and accept a token as the password.
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"takt\"")];
        (challenge, ErrorBody { kind, error }).into_response()
    } else {
        let kind = ErrorKind::Forbidden;
        ErrorBody { kind, error }.into_response()
    }
}

/// Reads a small body of a refused request. A client that is still sending when the connection
/// closes sees a broken connection instead of the refusal. Empty if the body is large, slow or broken.
async fn discard(request: Request) -> body::Bytes {
    // A limit of size and time: an unknown client must not keep the server reading.
    let read = body::to_bytes(request.into_body(), DISCARDED_BYTES);
    // Whatever was read or not, the refusal follows.
    match time::timeout(DISCARD_TIME, read).await {
        Ok(Ok(body)) => body,
        _ => body::Bytes::new(),
    }
}

/// The viewer that [`check`] has found, as the argument of a handler. Fails on a route outside the
/// check.
#[derive(Debug, Clone)]
pub struct By(pub Viewer);

impl<S> FromRequestParts<S> for By
where
    S: Send + Sync,
{
    type Rejection = ErrorBody;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ErrorBody> {
        found_by_check(parts).map(By)
    }
}

/// Returns what [`check`] has added to the request. Fails on a route outside the check.
fn found_by_check<T>(parts: &Parts) -> Result<T, ErrorBody>
where
    T: Clone + Send + Sync + 'static,
{
    let found = parts.extensions.get::<T>();
    found.cloned().ok_or_else(|| ErrorBody {
        kind: ErrorKind::Failed,
        error: "the route has no access check".to_owned(),
    })
}

/// Compares in constant time.
fn equal(a: &[u8], b: &[u8]) -> bool {
    // The length of a token is no secret; the place of the first difference would be one.
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use takt_access::Privacy;

    fn access(config: &AuthConfig) -> Access {
        Access::new(config, "secret-secret-secret", Some("reader-reader-reader")).unwrap()
    }

    #[test]
    fn a_page_of_another_site_asks_nothing_in_the_name_of_its_reader() {
        let embedded = |site: &'static str, part: &'static str| {
            let headers = [("sec-fetch-site", site), ("sec-fetch-dest", part)];
            let headers = headers.map(|(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            });
            is_embedded_elsewhere(&HeaderMap::from_iter(headers))
        };
        // A picture and a frame are loaded without a click of the user.
        assert!(embedded("cross-site", "image"));
        assert!(embedded("cross-site", "iframe"));
        assert!(embedded("cross-site", "empty"), "a script");

        assert!(!embedded("cross-site", "document"), "a link in a mail");
        assert!(!embedded("same-origin", "empty"));
        assert!(!is_embedded_elsewhere(&HeaderMap::new()), "a program");
        assert!(!is_known_by_browser(Way::Token));
    }

    #[test]
    fn a_browser_that_is_not_signed_in_is_led_to_sign_in() {
        let request = |method: &str, mode: Option<&'static str>| {
            let mut request = Request::new(body::Body::empty());
            *request.method_mut() = method.parse().unwrap();
            if let Some(mode) = mode {
                let mode = HeaderValue::from_static(mode);
                request.headers_mut().insert("sec-fetch-mode", mode);
            }
            request
        };
        let leads = |refusal, method, mode| leads_to_sign_in(refusal, &request(method, mode));
        let page = Some("navigate");

        assert!(leads(Refusal::SignIn, "GET", page));
        assert!(leads(Refusal::SignIn, "POST", page));
        assert!(leads(Refusal::Token, "POST", page));

        // Programs and scripts read the refusal; a second login would not raise a role.
        assert!(!leads(Refusal::SignIn, "GET", None));
        assert!(!leads(Refusal::SignIn, "GET", Some("cors")));
        assert!(!leads(Refusal::Role(Role::Support), "POST", page));
        assert!(!leads(Refusal::OtherSite, "POST", page));
    }

    #[test]
    fn a_browser_gets_a_page_that_says_why_it_may_not_see_something() {
        let request = |headers: &[(&'static str, &'static str)]| {
            let mut request = Request::new(body::Body::empty());
            for (name, value) in headers {
                let value = HeaderValue::from_static(value);
                request.headers_mut().insert(*name, value);
            }
            request
        };
        let ann = Viewer::new(Role::User, Way::Session, Privacy::Private).with_user("ann");
        let nobody = Viewer::new(Role::User, Way::Token, Privacy::Private);
        let role = Refusal::Role(Role::Viewer);
        let opened = request(&[("sec-fetch-mode", "navigate")]);
        assert!(is_shown_refused(role, &ann, &opened));
        let plain_http = request(&[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]);
        assert!(is_shown_refused(role, &ann, &plain_http));

        let script = request(&[("sec-fetch-mode", "cors"), ("accept", "text/html")]);
        assert!(!is_shown_refused(role, &ann, &script));
        assert!(!is_shown_refused(
            role,
            &ann,
            &request(&[("accept", "*/*")])
        ));
        assert!(!is_shown_refused(role, &ann, &request(&[])));
        assert!(
            !is_shown_refused(role, &nobody, &opened),
            "asks for another token"
        );
        assert!(!is_shown_refused(Refusal::OtherSite, &ann, &opened));
        assert_eq!(
            reason(role, &ann),
            "this needs the role viewer; ann has the role user"
        );
    }

    #[test]
    fn only_a_form_that_allows_it_is_kept_in_an_address() {
        let kept = b"return=&do=close&comment=fan+replaced";

        assert_eq!(
            filled_again("/alerts?x=1", kept),
            "/alerts?do=close&comment=fan+replaced"
        );
        // `return` must be the first field, so a form with a password cannot have it by accident.
        let secret = b"old=one&return=&new=two";
        assert_eq!(filled_again("/me/password", secret), "/me/password");

        let long = format!("return=&comment={}", "x".repeat(KEPT_FORM_BYTES));
        assert_eq!(filled_again("/alerts", long.as_bytes()), "/alerts");
        assert_eq!(filled_again("/alerts", b"return=&\xff"), "/alerts");
    }

    /// A request with a wrong token was answered as one of the machine, so that the mistake stayed unnoticed.
    #[tokio::test]
    async fn a_wrong_token_is_refused_on_the_servers_machine_too() {
        let access = access(&AuthConfig::default());

        let role = async |value: Option<&'static str>| {
            let value = value.map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value)));
            let headers = HeaderMap::from_iter(value);
            access.viewer(&headers, Origin::Local(None)).await.role()
        };
        assert_eq!(role(Some("Bearer wrong")).await, Role::Anonymous);
        let of_machine = role(None).await;
        assert!(of_machine > Role::Anonymous);
        // A proxy in front may send its own user and password on.
        assert_eq!(role(Some("Basic YW5uOnNlY3JldA==")).await, of_machine);
    }

    #[test]
    fn a_token_must_be_whole() {
        let access = access(&AuthConfig::default());
        let role = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            access.token_role(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        assert_eq!(role("Bearer secret-secret-secret"), Some(Role::Admin));
        // Schemes are compared without case (RFC 7235).
        assert_eq!(role("bearer secret-secret-secret"), Some(Role::Admin));
        assert_eq!(
            role("Basic YWRtaW46c2VjcmV0LXNlY3JldC1zZWNyZXQ="),
            Some(Role::Admin)
        );
        // Basic authentication with an empty password, a cut token, and a token without a scheme.
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
        // Without a configuration, a service of this machine such as Grafana reads everything.
        assert_eq!(role(&default, person, Some("alice")), Role::User);
        assert_eq!(role(&default, Some(0), None), Role::Viewer);
        assert_eq!(role(&default, None, None), Role::Viewer);

        let private = AuthConfig {
            privacy: PrivacySetting::Private,
            admins: vec!["alice".to_owned()],
            ..AuthConfig::default()
        };
        // Any setting of `[auth]` ends that trust, while people keep their roles.
        assert_eq!(role(&private, person, Some("alice")), Role::Admin);
        assert_eq!(role(&private, Some(0), Some("root")), Role::Anonymous);
        assert_eq!(role(&private, Some(33), Some("www-data")), Role::Anonymous);
        assert_eq!(role(&private, person, None), Role::Anonymous);
        assert_eq!(role(&private, None, None), Role::Anonymous);
        // Even a setting that is the default in effect counts as one.
        let open = AuthConfig {
            privacy: PrivacySetting::Open,
            ..AuthConfig::default()
        };
        assert_eq!(role(&open, Some(0), None), Role::Anonymous);
    }
}
