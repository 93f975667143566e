//! The form of the page `/me` with which a signed-in user changes the own password.
//!
//! A session alone is not enough, since it may be stolen: the form asks for the old password, whose
//! wrong guesses count as those of a sign-in. A new password ends the sessions that began with the
//! old one, and this browser gets a new session.

use super::known::SignInWay;
use super::password::{Identity, PasswordOutcome};
use super::sign_in::begin;
use super::{Access, By, Peer, now};
use crate::ErrorBody;
use axum::extract::{Extension, Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use takt_access::password::check;
use takt_access::{Viewer, Way};
use takt_questions::password::{Setter, set_password};

/// Path of the form.
pub(super) const CHANGE_PATH: &str = "/me/password";

/// The old password, and the new one twice.
#[derive(Deserialize)]
pub(super) struct ChangeForm {
    old: String,
    new: String,
    again: String,
}

/// Changes the password and sends the browser back to `/me`, whose address names the result.
pub(super) async fn change_password(
    State(access): State<Access>,
    By(viewer): By,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<ChangeForm>,
) -> Response {
    // The form is for a browser that has signed in: a token must not change the password of its owner.
    let user = viewer.user().filter(|_| viewer.way() == Way::Session);
    let Some(user) = user else {
        return back("session");
    };

    match changed(&access, &viewer, user, peer, form).await {
        Ok(Ok(identity)) => {
            begin(&access, peer, &headers, identity, "/me?password=set", None).await
        }
        Ok(Err(reason)) => back(reason),
        Err(error) => ErrorBody::failed(error).into_response(),
    }
}

/// Returns the user with the new password, or the word for the reason of a refusal.
async fn changed(
    access: &Access,
    viewer: &Viewer,
    user: &str,
    peer: Peer,
    form: ChangeForm,
) -> anyhow::Result<Result<Identity, &'static str>> {
    // Both checks cost nothing, so they come before the old password, whose check is counted and takes a hash.
    if form.new != form.again {
        return Ok(Err("again"));
    }
    if check(user, &form.new).is_err() {
        return Ok(Err("weak"));
    }

    let address = peer.address.ip().to_canonical();
    let checked = access.check_password(user, &form.old, address, now());
    let identity = match checked.await? {
        PasswordOutcome::Right(identity) => identity,
        PasswordOutcome::NoGroup => return Ok(Err("elsewhere")),
        PasswordOutcome::Wrong => {
            access
                .note(Some(user), peer, "set_password", user, "refused")
                .await;
            return Ok(Err("wrong"));
        }
        PasswordOutcome::TooMany => return Ok(Err("wait")),
        PasswordOutcome::Busy => return Ok(Err("busy")),
    };
    // The password of a directory is changed there.
    if identity.way != SignInWay::Password || identity.user != user {
        return Ok(Err("elsewhere"));
    }

    // A new hash takes 19 MiB and tens of milliseconds, as the check of one, so it waits for the same permits.
    let _hashing = access.state.hashes.acquire().await?;

    let keys = access.clone();
    let setter = Setter::of(viewer);
    let user = user.to_owned();
    takt_store::spawn_blocking(move || {
        let store = keys.keyring().open_store()?;
        set_password(store.database(), &setter, &user, Some(&form.new))
    })
    .await??;
    Ok(Ok(identity))
}

fn back(result: &str) -> Response {
    let to = format!("/me?password={result}");
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}
