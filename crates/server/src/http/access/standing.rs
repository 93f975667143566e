//! The rights behind an answer that does not end: a token may be revoked, a session end, and a role or the privacy change.

use super::known::{Access, Origin};
use crate::http::ErrorBody;
use crate::http::ErrorKind;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use takt_access::{Need, Viewer};

/// Finds the viewer of an open request again. A handler whose answer goes on asks before each part of it.
#[derive(Debug, Clone)]
pub struct Standing {
    pub(super) access: Access,
    pub(super) headers: HeaderMap,
    pub(super) origin: Origin,
    pub(super) need: Need,
    pub(super) viewer: Viewer,
}

impl Standing {
    /// Returns whether the viewer has the rights of the beginning. If any has changed, the answer should end: the client's
    /// next request gets the new ones.
    pub async fn holds(&self) -> bool {
        let now = self.access.viewer(&self.headers, self.origin.clone()).await;
        now == self.viewer && now.check(self.need).is_ok()
    }
}

impl<S> FromRequestParts<S> for Standing
where
    S: Send + Sync,
{
    type Rejection = ErrorBody;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ErrorBody> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| ErrorBody {
                kind: ErrorKind::Failed,
                error: "the route has no access check".to_owned(),
            })
    }
}
