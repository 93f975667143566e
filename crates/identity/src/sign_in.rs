//! Signing in and out with a browser.
//!
//! `takt login` prints a link, whose code is in the fragment, so that no log and no `Referer` has
//! it. The page `/login` shows the user that the link signs in, and a button sends the code. The page also
//! has a form for a name and a password, and a link to the provider of OpenID Connect, where these
//! are configured. A browser that fails to sign in goes back to the page, whose address names the
//! reason.

use super::change_password::{CHANGE_PATH, change_password};
use super::keyring::NewSession;
use super::known::SignInWay;
use super::munge::MungeChallenge;
use super::oidc::{BACK_PATH, Back, FLOW_SECONDS};
use super::password::{Identity, PasswordOutcome};
use super::{Access, By, GuardedRouter, Peer, is_of_this_site, now};
use crate::{ErrorBody, ErrorKind};
use axum::extract::{Extension, Form, Json, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use takt_access::session::{is_user_name, next_path};
use takt_access::{Need, Role, RouteNeeds, Way};
use takt_model::UnixTime;
use takt_store::spawn_blocking;

/// Path that makes a link; for `takt login`.
pub const LINK_PATH: &str = "/api/takt/v1/login";

/// Path that makes a link for a credential of munge; for `takt login` on other machines.
pub const MUNGE_PATH: &str = "/api/takt/v1/login/munge";

/// Addition to the name of the session's cookie, for a sign-in under way at the provider of OpenID
/// Connect.
const OIDC_COOKIE: &str = "-oidc";

/// Maximum length of a kept `User-Agent`.
const MAX_BROWSER_CHARS: usize = 200;

/// A link that signs a browser in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLink {
    /// User whom the link signs in.
    pub user: String,
    /// Address with the code.
    pub url: String,
    /// Seconds for which the link is valid.
    pub seconds: i64,
    /// Token of the commands on the user's machine, if munge has proved the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<CommandToken>,
}

/// A token with which the commands of a user ask from another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandToken {
    /// The token.
    pub token: String,
    /// End of its validity.
    pub until: UnixTime,
}

/// The code of a link.
#[derive(Debug, Deserialize)]
struct CodeForm {
    code: String,
}

/// The form with a name and a password.
#[derive(Deserialize)]
struct PasswordForm {
    user: String,
    password: String,
    /// Path to which the browser goes.
    #[serde(default)]
    next: String,
}

/// Parameters of the link to the provider of OpenID Connect.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Next {
    /// Path to which the browser goes.
    next: String,
}

/// A credential of munge.
#[derive(Debug, Deserialize)]
struct CredentialForm {
    credential: String,
    /// The user's machine, which gives the token of its commands a name. Empty: no token.
    #[serde(default)]
    machine: String,
}

/// The form of the button that signs out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SignOutForm {
    /// Not empty: ends all sessions of the user.
    everywhere: String,
}

/// The routes.
pub(super) fn router(access: Access) -> GuardedRouter {
    // A person who signs in is still unknown, so the routes are open. The handlers of forms refuse other sites.
    let open = RouteNeeds::read(Need::Nothing);
    GuardedRouter::new()
        .route(LINK_PATH, RouteNeeds::read(Need::SignedIn), post(link))
        .route(MUNGE_PATH, open, get(challenge).post(link_by_munge))
        .route("/login/password", open, post(by_password))
        .route(
            "/login/oidc",
            RouteNeeds::get(Need::Nothing),
            get(to_provider),
        )
        .route(
            BACK_PATH,
            RouteNeeds::get(Need::Nothing),
            get(from_provider),
        )
        .route("/login/user", open, post(user_of_link))
        .route("/login/session", open, post(sign_in))
        .route("/logout", open, post(sign_out))
        .route(
            CHANGE_PATH,
            RouteNeeds::change(Role::User),
            post(change_password),
        )
        .with_state(access)
}

/// Makes a link for the user at the other end of the Unix socket.
async fn link(State(access): State<Access>, By(viewer): By) -> Result<Json<SignInLink>, ErrorBody> {
    // A token or a session cannot make a link: it would outlive them.
    if viewer.way() != Way::Socket {
        return Err(forbidden(
            "a link is made for a user of the Unix socket only",
        ));
    }
    let user = viewer
        .user()
        .filter(|user| *user != "root")
        .ok_or_else(|| forbidden("root and system users get no browser session"))?;
    new_link(&access, user)
}

/// Makes a number for a credential of munge.
async fn challenge(State(access): State<Access>) -> Result<Json<MungeChallenge>, ErrorBody> {
    let munge = access.state.munge.as_ref().ok_or_else(no_munge)?;
    munge.challenge(now()).map(Json).map_err(failed)
}

/// Makes a link for the user that a credential of munge proves.
async fn link_by_munge(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    Form(form): Form<CredentialForm>,
) -> Result<Json<SignInLink>, ErrorBody> {
    let munge = access.state.munge.as_ref().ok_or_else(no_munge)?;
    // Each attempt starts a program, so the limit is that of guessing codes.
    if !access
        .keyring()
        .may_attempt(peer.address.ip().to_canonical(), now())
    {
        return Err(forbidden(
            "too many attempts from this machine; wait a minute",
        ));
    }
    let uid = match munge.uid(form.credential.trim(), now()).await {
        Ok(uid) => uid,
        Err(error) => {
            access.note(None, peer, "sign_in", "munge", "refused").await;
            return Err(forbidden(&format!("{error:#}")));
        }
    };

    let user = access.name_of(Some(uid)).await;
    let Some(user) = user.filter(|user| is_user_name(user)) else {
        access.note(None, peer, "sign_in", "munge", "refused").await;
        return Err(forbidden(
            "root, system users and users unknown to the server get no browser session",
        ));
    };

    let Json(mut link) = new_link(&access, &user)?;
    let machine = form.machine.trim().to_owned();
    // A client that sends no machine gets a link only.
    if !machine.is_empty() {
        let keys = access.clone();
        let made = spawn_blocking(move || keys.keyring().command_token(&user, &machine, now()));
        link.token = Some(
            made.await
                .map_err(|error| failed(error.into()))?
                .map_err(failed)?,
        );
    }

    access
        .note(Some(&link.user), peer, "sign_in", "munge", "link")
        .await;
    Ok(Json(link))
}

fn new_link(access: &Access, user: &str) -> Result<Json<SignInLink>, ErrorBody> {
    let link = access
        .sign_in_link(user)
        .map_err(failed)?
        .ok_or_else(|| forbidden("too many links are open; wait two minutes"))?;
    Ok(Json(link))
}

impl Access {
    /// Makes a link that signs a browser in as `user`. Returns `None` if the user has too many open
    /// links.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn sign_in_link(&self, user: &str) -> anyhow::Result<Option<SignInLink>> {
        let code = self.keyring().new_code(user, now())?;
        let base = self.external_url();
        Ok(code.map(|code| SignInLink {
            user: user.to_owned(),
            url: format!("{base}/login#{code}"),
            seconds: takt_access::session::CODE_SECONDS,
            token: None,
        }))
    }
}

fn no_munge() -> ErrorBody {
    forbidden("munge is off; set auth.munge = true in the server's takt.toml")
}

fn forbidden(error: &str) -> ErrorBody {
    ErrorBody {
        kind: ErrorKind::Forbidden,
        error: error.to_owned(),
    }
}

fn failed(error: anyhow::Error) -> ErrorBody {
    ErrorBody {
        kind: ErrorKind::Failed,
        error: format!("{error:#}"),
    }
}

/// Begins a session with a name and a password.
async fn by_password(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<PasswordForm>,
) -> Response {
    // Login CSRF: another site's page must not sign its reader in as the attacker.
    if is_of_this_site(&headers) != Some(true) {
        return other_site();
    }

    let name = form.user.trim();
    let address = peer.address.ip().to_canonical();
    let checked = access.check_password(name, &form.password, address, now());
    let reason = match checked.await {
        Ok(PasswordOutcome::Right(identity)) => {
            let next = next_path(&form.next);
            return begin(&access, peer, &headers, identity, next, None).await;
        }
        Ok(PasswordOutcome::Wrong) => "password",
        Ok(PasswordOutcome::NoGroup) => "group",
        Ok(PasswordOutcome::TooMany) => "wait",
        Ok(PasswordOutcome::Busy) => "busy",
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "cannot check a password");
            "service"
        }
    };

    if matches!(reason, "password" | "group") {
        // The name of a stranger may be a password in the wrong field.
        let known = is_user_name(name) && access.is_known_user(name).await.unwrap_or(false);
        let user = known.then_some(name);
        access
            .note(user, peer, "sign_in", "password", "refused")
            .await;
    }
    back_to_form(reason, &form.next)
}

/// Sends the browser to the provider of OpenID Connect.
async fn to_provider(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Query(asked): Query<Next>,
) -> Response {
    let Some(oidc) = &access.state.oidc else {
        return back_to_form("service", &asked.next);
    };

    let address = peer.address.ip().to_canonical();
    // The path is checked before it is kept: the way back uses it without a check.
    match oidc.start(next_path(&asked.next), address, now()).await {
        Ok(Some(start)) => {
            let headers = [
                (
                    header::SET_COOKIE,
                    oidc_cookie(&access, &headers, &start.cookie, FLOW_SECONDS),
                ),
                (header::LOCATION, start.url),
                (header::CACHE_CONTROL, "no-store".to_owned()),
            ];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Ok(None) => back_to_form("wait", &asked.next),
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot begin a sign-in with OpenID Connect"
            );
            back_to_form("service", &asked.next)
        }
    }
}

/// Begins a session with the answer of the provider of OpenID Connect.
async fn from_provider(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Response {
    let reason = match identity_of(&access, &headers, back).await {
        Ok(Ok((identity, next))) => {
            // The flow is used up, so its cookie is of no more use.
            let no_flow = oidc_cookie(&access, &headers, "", 0);
            return begin(&access, peer, &headers, identity, &next, Some(no_flow)).await;
        }
        Ok(Err(reason)) => reason,
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                "a sign-in with OpenID Connect failed"
            );
            "provider"
        }
    };

    access.note(None, peer, "sign_in", "oidc", "refused").await;
    back_to_form(reason, "")
}

/// Returns the user that the provider has signed in and the path to which the browser goes, or why
/// the user may not sign in.
async fn identity_of(
    access: &Access,
    headers: &HeaderMap,
    back: Back,
) -> anyhow::Result<Result<(Identity, String), &'static str>> {
    let Some(oidc) = &access.state.oidc else {
        return Ok(Err("service"));
    };
    // The cookie binds the answer to the browser that has begun.
    let cookie = super::cookie_with(headers, OIDC_COOKIE).unwrap_or_default();
    let signed_in = oidc.finish(cookie, back, now()).await?;
    let user = signed_in.user;
    // Providers know many people who have no user on the cluster, such as all members of a university.
    if !is_user_name(&user) || !access.is_known_user(&user).await? {
        tracing::info!(
            user,
            "the provider of OpenID Connect names a user that the cluster does not know"
        );
        return Ok(Err("unknown"));
    }

    let identity = Identity::of(user, SignInWay::Oidc, signed_in.groups, oidc.groups());
    Ok(identity
        .map(|identity| (identity, signed_in.next))
        .ok_or("group"))
}

/// Returns the header that sets the cookie of a sign-in under way. It comes back with the
/// provider's redirection, which is a request from another site: `Lax` allows that.
fn oidc_cookie(access: &Access, headers: &HeaderMap, value: &str, seconds: i64) -> String {
    let (name, secure) = access.cookie_name(headers);
    format!(
        "{name}{OIDC_COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
    )
}

/// Sends the browser back to the form, which explains the reason.
fn back_to_form(reason: &str, next: &str) -> Response {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("failed", reason);
    // Checked on the way back, too: a form may have been sent with any path.
    let next = next_path(next);
    if next != "/" {
        query.append_pair("next", next);
    }
    let to = format!("/login?{}", query.finish());
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Returns the user that a code signs in. Does not use the code up.
async fn user_of_link(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<CodeForm>,
) -> Response {
    if is_of_this_site(&headers) != Some(true) {
        return other_site();
    }
    // The limit is shared with `sign_in`, since both say whether a code is right.
    if !may_attempt(&access, peer) {
        let error = "too many attempts; wait a minute";
        return (StatusCode::TOO_MANY_REQUESTS, error).into_response();
    }
    match access.keyring().user_of_code(&form.code, now()) {
        Some(user) => Json(serde_json::json!({ "user": &*user })).into_response(),
        None => unknown_link(),
    }
}

/// Begins a session with a code.
async fn sign_in(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<CodeForm>,
) -> Response {
    if is_of_this_site(&headers) != Some(true) {
        return other_site();
    }
    if !may_attempt(&access, peer) {
        return back_to_form("minute", "");
    }

    let Some(user) = access.keyring().take_code(&form.code, now()) else {
        access.note(None, peer, "sign_in", "link", "refused").await;
        return back_to_form("link", "");
    };

    let identity = Identity {
        user: user.to_string(),
        way: SignInWay::Link,
        groups: Vec::new(),
    };
    begin(&access, peer, &headers, identity, "/", None).await
}

/// Begins a session and sends the browser to the path `next`. The session that the browser had
/// ends. `also` is another cookie to set.
pub(super) async fn begin(
    access: &Access,
    peer: Peer,
    headers: &HeaderMap,
    identity: Identity,
    next: &str,
    also: Option<String>,
) -> Response {
    let browser = text(headers, header::USER_AGENT.as_str()).unwrap_or_default();
    let session = NewSession {
        user: identity.user.clone(),
        way: identity.way,
        groups: identity.groups,
        address: peer.address.ip().to_canonical(),
        browser: browser.chars().take(MAX_BROWSER_CHARS).collect(),
    };

    let keys = access.clone();
    let old = super::session_cookie(headers).map(str::to_owned);
    let begun = spawn_blocking(move || {
        // Otherwise a browser that signs in each day would leave a valid session behind each time.
        if let Some(old) = old {
            keys.keyring().end_session(&old, false)?;
        }
        keys.keyring().begin_session(session, now())
    });
    match begun.await {
        Ok(Ok(cookie)) => {
            let way = identity.way.name();
            access
                .note(Some(&identity.user), peer, "sign_in", way, "session")
                .await;
            let cookie = access.cookie(headers, &cookie);
            let cookies = [cookie].into_iter().chain(also);
            let cookies = cookies.map(|cookie| (header::SET_COOKIE, cookie));
            let to = [(header::LOCATION, next.to_owned())];
            let cookies: Vec<_> = cookies.collect();
            (StatusCode::SEE_OTHER, to, AppendHeaders(cookies)).into_response()
        }
        Ok(Err(error)) => ErrorBody::failed(error).into_response(),
        Err(error) => ErrorBody::failed(error).into_response(),
    }
}

/// Ends the session of the browser.
async fn sign_out(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<SignOutForm>,
) -> Response {
    if is_of_this_site(&headers) != Some(true) {
        return other_site();
    }

    if let Some(cookie) = super::session_cookie(&headers) {
        let keys = access.clone();
        let cookie = cookie.to_owned();
        let everywhere = !form.everywhere.is_empty();
        // The user is read first: an ended session has none for the audit log.
        let ended = spawn_blocking(move || {
            let user = keys.keyring().session(&cookie, now());
            keys.keyring()
                .end_session(&cookie, everywhere)
                .map(|()| user)
        });
        let user = match ended.await {
            Ok(Ok(user)) => user,
            Ok(Err(error)) => return ErrorBody::failed(error).into_response(),
            Err(error) => return ErrorBody::failed(error).into_response(),
        };
        access
            .note(
                user.map(|known| known.user).as_deref(),
                peer,
                "sign_out",
                "session",
                "done",
            )
            .await;
    }
    // The cookie is deleted even if its session had ended.
    let headers = [
        (header::SET_COOKIE, access.no_cookie(&headers)),
        (header::LOCATION, "/login".to_owned()),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Whether this machine may try a code now.
fn may_attempt(access: &Access, peer: Peer) -> bool {
    let address = peer.address.ip().to_canonical();
    access.keyring().may_attempt(address, now())
}

fn other_site() -> Response {
    let error = takt_access::Refusal::OtherSite.to_string();
    let kind = ErrorKind::Forbidden;
    ErrorBody { kind, error }.into_response()
}

fn unknown_link() -> Response {
    let error = "the link is unknown, used or older than two minutes; run takt login again";
    ErrorBody {
        kind: ErrorKind::Input,
        error: error.to_owned(),
    }
    .into_response()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
