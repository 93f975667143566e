//! The style file and the script: one file each, with a hash of the content in the name, so that
//! browsers keep them.

use super::rendered::{Body, hash};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// A file that never changes under its name.
pub(super) struct Asset {
    /// Address of the file.
    pub path: String,
    body: Body,
}

impl Asset {
    fn new(name: &str, ending: &str, content_type: &'static str, text: &'static str) -> Self {
        let path = format!("/static/{name}.{:016x}.{ending}", hash(text.as_bytes()));
        Self {
            path,
            body: Body::new(content_type, text.as_bytes().to_vec()),
        }
    }

    /// The file as a response.
    pub fn response(&self, headers: &HeaderMap) -> Response {
        // The hash of the content is in the name, so a file of this name never changes.
        let kept = [(header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
        (kept, self.body.response(headers)).into_response()
    }
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "takt",
        "css",
        "text/css; charset=utf-8",
        include_str!("../static/takt.css"),
    )
});

pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../static/takt.js");
    Asset::new("takt", "js", "text/javascript; charset=utf-8", text)
});

/// The script of `/login`.
pub(super) static LOGIN: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../static/login.js");
    Asset::new("login", "js", "text/javascript; charset=utf-8", text)
});

/// The icon of the browser's tab.
pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "takt",
        "svg",
        "image/svg+xml",
        include_str!("../static/takt.svg"),
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    /// The budget of reference/pages.md: no page needs more script than this.
    #[test]
    fn the_script_is_smaller_than_eight_kilobytes() {
        let text = include_str!("../static/takt.js");
        assert!(text.len() < 8_000, "{} bytes", text.len());
    }

    /// Files that are part of the pages load nothing from elsewhere.
    #[test]
    fn no_file_names_another_host() {
        // The security policy refuses such a file in any case; the test finds it before a browser does.
        for text in [
            include_str!("../static/takt.js"),
            include_str!("../static/takt.css"),
            include_str!("layout.html"),
            include_str!("parts.html"),
        ] {
            assert!(!text.contains("://"), "{text}");
        }
        assert!(STYLE.path.starts_with("/static/takt."));
    }
}
