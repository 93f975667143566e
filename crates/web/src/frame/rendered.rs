//! Rendered pages: compressed, with a version for each section, kept for a moment.
//!
//! Many browsers follow the same page. Each version is rendered and compressed once.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use takt_access::Viewer;
use takt_api::accepts_gzip;
use takt_store::WorkError;
use tokio::sync::OnceCell;

/// A smaller body is not compressed: it fits into one packet.
const LEAST_COMPRESSED: usize = 1400;

/// A hash of content. It only detects changes: a collision gives an attacker nothing.
pub(super) fn hash(content: &[u8]) -> u64 {
    // The keys of this hasher are fixed.
    #[expect(
        deprecated,
        reason = "SipHash with fixed keys: equal content has an equal hash in every process"
    )]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// A body and its compressed form.
#[derive(Debug, Clone)]
pub(super) struct Body {
    content_type: &'static str,
    plain: Bytes,
    gzip: Option<Bytes>,
    etag: HeaderValue,
}

impl Body {
    pub fn new(content_type: &'static str, plain: Vec<u8>) -> Self {
        // Compressed once, for all clients that take it.
        let gzip = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&plain).ok()?;
            encoder.finish().ok().map(Bytes::from)
        };

        let etag = format!("\"{:016x}\"", hash(&plain));
        Self {
            content_type,
            gzip: if plain.len() < LEAST_COMPRESSED {
                None
            } else {
                gzip()
            },
            etag: HeaderValue::try_from(etag).unwrap_or(HeaderValue::from_static("\"\"")),
            plain: plain.into(),
        }
    }

    /// The response: 304 if the client has this version.
    pub fn response(&self, headers: &HeaderMap) -> Response {
        let known = headers.get_all(header::IF_NONE_MATCH).iter();
        // Proxies weaken an ETag when they compress a body themselves.
        let etag = self.etag.to_str().unwrap_or_default();
        let is_known = known
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|one| one.trim().trim_start_matches("W/") == etag);
        let common = [
            (header::ETAG, self.etag.clone()),
            // A cache in between must not give a compressed body to a client that cannot read it.
            (header::VARY, HeaderValue::from_static("Accept-Encoding")),
        ];

        if is_known {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }

        let content_type = [(header::CONTENT_TYPE, self.content_type)];
        match &self.gzip {
            Some(gzip) if accepts_gzip(headers) => {
                let encoding = [(header::CONTENT_ENCODING, "gzip")];
                (common, content_type, encoding, gzip.clone()).into_response()
            }
            _ => (common, content_type, self.plain.clone()).into_response(),
        }
    }
}

/// A rendered page.
#[derive(Debug)]
pub(super) struct Rendered {
    pub status: StatusCode,
    pub body: Body,
    /// Versions of the live sections, by their id.
    pub versions: BTreeMap<String, String>,
    /// Whether the page is a whole document with inline style.
    pub is_document: bool,
    /// Address of another page that is shown instead.
    pub location: Option<String>,
}

/// Attribute of a section that is renewed while the page is open.
const LIVE: &str = " data-live";

impl Rendered {
    /// Reads the sections of a page and gives each its version: `data-live` becomes
    /// `data-live="VERSION"`. Templates are ours and escape what they insert, so the marks are.
    pub fn page(status: StatusCode, html: &str) -> Self {
        let mut versions = BTreeMap::new();
        let mut out = String::with_capacity(html.len() + 200);
        let mut rest = html;

        while let Some(begin) = rest.find("<section ") {
            let (before, section) = rest.split_at(begin);
            let end = section.find("</section>").unwrap_or(section.len());
            let (section, after) = section.split_at(end);
            out.push_str(before);
            rest = after;
            // The mark has to be in the section's own tag: a text in it may have the same words.
            let head = section.find('>').map_or(section, |end| &section[..end]);
            match (head.find(LIVE), id(head)) {
                (Some(at), Some(id)) => {
                    // 40 bits are enough to see a change, and short in each page.
                    let version = format!("{:x}", hash(section.as_bytes()) >> 24);
                    let (front, back) = section.split_at(at + LIVE.len());
                    out.push_str(front);
                    out.push_str(&format!("=\"{version}\""));
                    out.push_str(back);
                    versions.insert(id.to_owned(), version);
                }
                _ => out.push_str(section),
            }
        }

        out.push_str(rest);
        Self {
            status,
            body: Body::new("text/html; charset=utf-8", out.into_bytes()),
            versions,
            is_document: false,
            location: None,
        }
    }

    /// The response: 304 if the client has this version of a page without an error.
    pub fn response(&self, headers: &HeaderMap) -> Response {
        if let Some(location) = &self.location {
            return (self.status, [(header::LOCATION, location.clone())]).into_response();
        }

        if self.status == StatusCode::OK {
            return self.body.response(headers);
        }
        // A known version would turn the error into 304.
        let mut headers = headers.clone();
        headers.remove(header::IF_NONE_MATCH);
        (self.status, self.body.response(&headers)).into_response()
    }

    /// A whole document with inline style.
    pub fn document(html: String) -> Self {
        Self {
            body: Body::new("text/html; charset=utf-8", html.into_bytes()),
            is_document: true,
            ..Self::page(StatusCode::OK, "")
        }
    }

    /// A reply that leads to another page.
    pub fn moved(location: String) -> Self {
        Self {
            location: Some(location),
            ..Self::page(StatusCode::SEE_OTHER, "")
        }
    }
}

fn id(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("id=\"")?;
    rest.split_once('"').map(|(id, _)| id)
}

/// Time for which a rendered page is used again.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of pages that are kept.
const MOST: usize = 256;

type Entry = Arc<OnceCell<Arc<Rendered>>>;

/// Time of rendering, number of changes of the records before it, reader, address, and the page.
type CachedPage = (Instant, u64, Viewer, String, Entry);

/// Rendered pages of the last seconds, by address and reader: what one reader may see, another may
/// not.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache(Arc<Mutex<Vec<CachedPage>>>);

impl Cache {
    /// The page at this address for this reader; renders it at most once at a time. `changes` is the
    /// number of changes of the records.
    ///
    /// # Errors
    /// The error of `render`. It is not kept.
    pub async fn page(
        &self,
        changes: u64,
        viewer: &Viewer,
        address: &str,
        render: impl AsyncFnOnce() -> Result<Rendered, WorkError>,
    ) -> Result<Arc<Rendered>, WorkError> {
        // Several readers of one address wait for the same rendering.
        let entry = self.entry(changes, viewer, address);
        let rendered = entry.get_or_try_init(async || render().await.map(Arc::new));
        rendered.await.map(Arc::clone)
    }

    /// Forgets all pages, because something has been changed.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn entry(&self, changes: u64, viewer: &Viewer, address: &str) -> Entry {
        let now = Instant::now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A page of a former state of the records is of no use any more.
        kept.retain(|(since, before, ..)| now.duration_since(*since) < FRESH && *before == changes);
        let found = kept
            .iter()
            .find(|(_, _, reader, known, _)| reader == viewer && known == address);
        if let Some((.., entry)) = found {
            return Arc::clone(entry);
        }

        // The oldest page, as the newest are behind it.
        if kept.len() >= MOST {
            kept.remove(0);
        }

        let entry = Entry::default();
        let page = Arc::clone(&entry);
        kept.push((now, changes, viewer.clone(), address.to_owned(), page));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::task;

    const PAGE: &str = "<p>a</p><section id=\"one\" data-live><p>1</p></section>\
        <section id=\"still\">x</section><section class=\"c\" id=\"two\" data-live>2</section>z";

    #[test]
    fn only_live_sections_have_versions_and_only_changed_ones_new() {
        let first = Rendered::page(StatusCode::OK, PAGE);
        assert_eq!(first.versions.keys().collect::<Vec<_>>(), ["one", "two"]);
        // One section changes, and the other has to keep its version.
        let second = Rendered::page(StatusCode::OK, &PAGE.replace("<p>1", "<p>7"));
        assert_ne!(first.versions["one"], second.versions["one"]);
        assert_eq!(first.versions["two"], second.versions["two"]);

        let html = std::str::from_utf8(&first.body.plain).unwrap();
        let marked = html.replace(&format!("=\"{}\"", first.versions["one"]), "");
        assert_eq!(
            marked.replace(&format!("=\"{}\"", first.versions["two"]), ""),
            PAGE
        );
    }

    #[test]
    fn a_client_with_this_version_gets_no_body() {
        let body = Body::new("text/plain", vec![b'a'; 5000]);

        let etag = body.etag.clone();
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]);
        assert_eq!(body.response(&known).status(), StatusCode::NOT_MODIFIED);
        let other =
            HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("\"x\""))]);
        assert_eq!(body.response(&other).status(), StatusCode::OK);

        let gzip =
            HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert_eq!(
            body.response(&gzip).headers()[header::CONTENT_ENCODING],
            "gzip"
        );
    }

    #[test]
    fn an_error_keeps_its_status_and_an_unchanged_page_is_304() {
        for (status, expected) in [
            (StatusCode::OK, StatusCode::NOT_MODIFIED),
            // A browser may have the body of an error from before, with the same ETag.
            (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        ] {
            let page = Rendered::page(status, PAGE);
            let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, page.body.etag.clone())]);
            assert_eq!(page.response(&known).status(), expected);
            assert_eq!(page.response(&HeaderMap::new()).status(), status);
        }
    }

    #[tokio::test]
    async fn a_page_is_rendered_once_for_many_readers_and_anew_after_a_change() {
        let cache = Cache::default();
        let rendered = AtomicUsize::new(0);
        let render = async || {
            rendered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            task::yield_now().await;
            Ok(Rendered::page(StatusCode::OK, PAGE))
        };

        let viewer = Viewer::server();
        let page = |changes| cache.page(changes, &viewer, "/", render);
        let _ = tokio::join!(page(7), page(7), page(7));
        assert_eq!(rendered.load(std::sync::atomic::Ordering::Relaxed), 1);
        // A form was sent, then a record changed.
        cache.clear();
        page(7).await.unwrap();
        assert_eq!(rendered.load(std::sync::atomic::Ordering::Relaxed), 2);
        page(8).await.unwrap();
        assert_eq!(rendered.load(std::sync::atomic::Ordering::Relaxed), 3);

        // A refusal is not kept.
        let refused = cache
            .page(9, &viewer, "/", async || Err(WorkError::Busy))
            .await;
        assert!(refused.is_err());
        page(9).await.unwrap();
    }
}
