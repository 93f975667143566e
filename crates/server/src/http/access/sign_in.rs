//! Signing in and out with a browser: `takt login` prints a link, whose code is in the fragment, so that no log and no
//! `Referer` has it. The page `/login` shows whom the link signs in, and a button sends the code.

use super::{Access, By, GuardedRouter, Peer, is_of_this_site};
use crate::answers::AnswerError;
use crate::http::{ErrorBody, ErrorKind};
use axum::extract::{Extension, Form, Json, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use takt_access::{Need, RouteNeeds, Way};

/// Path that makes a link; for `takt login`.
pub const LINK_PATH: &str = "/api/takt/v1/login";

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
}

/// The code of a link.
#[derive(Debug, Deserialize)]
struct CodeForm {
    code: String,
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
    let open = RouteNeeds::read(Need::Nothing);
    GuardedRouter::new()
        .route(LINK_PATH, RouteNeeds::read(Need::SignedIn), post(link))
        .route("/login/user", open, post(user_of_link))
        .route("/login/session", open, post(sign_in))
        .route("/logout", open, post(sign_out))
        .with_state(access)
}

/// Makes a link for the user at the other end of the Unix socket.
async fn link(State(access): State<Access>, By(viewer): By) -> Result<Json<SignInLink>, ErrorBody> {
    let refuse = |error: &str| ErrorBody {
        kind: ErrorKind::Forbidden,
        error: error.to_owned(),
    };
    if viewer.way() != Way::Socket {
        return Err(refuse("a link is made for a user of the Unix socket only"));
    }
    let user = viewer.user().filter(|user| *user != "root");
    let user = user.ok_or_else(|| refuse("root and system users get no browser session"))?;
    let failed = |error: String| ErrorBody {
        kind: ErrorKind::Failed,
        error,
    };
    let link = access.sign_in_link(user);
    let link = link.map_err(|error| failed(error.to_string()))?;
    let link = link.ok_or_else(|| refuse("too many links are open; wait two minutes"))?;
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
        }))
    }
}

/// Whom a code signs in. Does not use the code up.
async fn user_of_link(
    State(access): State<Access>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<CodeForm>,
) -> Response {
    if let Some(refused) = refusal(&access, peer, &headers) {
        return refused;
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
    if let Some(refused) = refusal(&access, peer, &headers) {
        return refused;
    }
    let Some(user) = access.keyring().take_code(&form.code, now()) else {
        access.note(None, peer, "sign_in", "link", "refused").await;
        return unknown_link();
    };
    let browser = text(&headers, header::USER_AGENT.as_str()).unwrap_or_default();
    let browser: String = browser.chars().take(MAX_BROWSER_CHARS).collect();
    let keys = access.clone();
    let of = user.to_string();
    let begun = tokio::task::spawn_blocking(move || {
        let address = peer.address.ip().to_canonical();
        let keyring = keys.keyring();
        keyring.begin_session(&of, "link", address, &browser, now())
    });
    match begun.await {
        Ok(Ok(cookie)) => {
            access
                .note(Some(&user), peer, "sign_in", "link", "session")
                .await;
            let cookie = access.cookie(&headers, &cookie);
            let headers = [
                (header::SET_COOKIE, cookie),
                (header::LOCATION, "/".to_owned()),
            ];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Ok(Err(error)) => AnswerError::failed(error).into_response(),
        Err(error) => AnswerError::failed(error).into_response(),
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
        let ended = tokio::task::spawn_blocking(move || {
            let user = keys.keyring().session(&cookie, now());
            keys.keyring()
                .end_session(&cookie, everywhere)
                .map(|()| user)
        });
        let user = match ended.await {
            Ok(Ok(user)) => user,
            Ok(Err(error)) => return AnswerError::failed(error).into_response(),
            Err(error) => return AnswerError::failed(error).into_response(),
        };
        access
            .note(user.as_deref(), peer, "sign_out", "session", "done")
            .await;
    }
    let headers = [
        (header::SET_COOKIE, access.no_cookie(&headers)),
        (header::LOCATION, "/login".to_owned()),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Refuses requests of other sites' pages, of programs, and too many of one address.
fn refusal(access: &Access, peer: Peer, headers: &HeaderMap) -> Option<Response> {
    if is_of_this_site(headers) != Some(true) {
        return Some(other_site());
    }
    let address = peer.address.ip().to_canonical();
    if access.keyring().may_attempt(address, now()) {
        return None;
    }
    let error = "too many attempts; wait a minute";
    Some((StatusCode::TOO_MANY_REQUESTS, error).into_response())
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

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
