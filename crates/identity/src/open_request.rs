//! Rights of a viewer whose answer stays open, such as the stream of a live page. Meanwhile a token may be revoked, a session
//! may end, and a role or the level of privacy may change.

use super::found_by_check;
use super::known::{Access, Origin};
use crate::ErrorBody;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use takt_access::{Need, Viewer};

/// The rights with which a request began. A handler whose answer stays open checks them before each part of the answer.
#[derive(Debug, Clone)]
pub struct OpenRequestRights {
    pub(super) access: Access,
    pub(super) headers: HeaderMap,
    pub(super) origin: Origin,
    pub(super) need: Need,
    pub(super) viewer: Viewer,
}

impl OpenRequestRights {
    /// Returns whether the viewer still has the same rights. If not, the answer should end; the client's next request gets
    /// the new rights.
    pub async fn holds(&self) -> bool {
        let now = self.access.viewer(&self.headers, self.origin.clone()).await;
        now == self.viewer && now.check(self.need).is_ok()
    }
}

impl<S> FromRequestParts<S> for OpenRequestRights
where
    S: Send + Sync,
{
    type Rejection = ErrorBody;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ErrorBody> {
        found_by_check(parts)
    }
}
