//! Live pages: a stream of section versions (server-sent events). The script fetches what changed.

use super::Page;
use super::routes::{Frame, Request};
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderValue, Uri, header};
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use axum::routing::{MethodRouter, get};
use futures_util::stream;
use std::convert::Infallible;
use std::time::Duration;
use takt_access::Viewer;
use takt_identity::{By, OpenRequestRights};
use tokio::time::{self, Instant, Interval, MissedTickBehavior};

/// Pause between two looks at a page.
const PAUSE: Duration = Duration::from_secs(15);

/// Lifetime of a stream. The browser connects again.
const LIFETIME: Duration = Duration::from_secs(3600);

struct Followed {
    frame: Frame,
    page: &'static Page,
    request: Request,
    rights: OpenRequestRights,
    ticks: Interval,
    ends: Instant,
}

pub(super) fn handler(page: &'static Page, frame: Frame) -> MethodRouter {
    get(
        async move |By(viewer): By,
                    rights: OpenRequestRights,
                    uri: Uri,
                    RawQuery(query): RawQuery,
                    Path(parameters): Path<Vec<(String, String)>>| {
            let path = uri.path();
            // The page's own path, which the templates have in links.
            let path = path.strip_prefix("/live").unwrap_or("/");
            let mut ticks = time::interval(PAUSE);
            // After a slow look, the next one comes a whole pause later, and not at once.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let followed = Followed {
                frame: frame.clone(),
                page,
                request: Request {
                    viewer,
                    path: path.to_owned(),
                    query: query.unwrap_or_default(),
                    parameters,
                },
                rights,
                ticks,
                ends: Instant::now() + LIFETIME,
            };

            let mut response = Sse::new(stream::unfold(followed, next)).into_response();
            // nginx would keep the events until its buffer is full.
            let no_buffer = HeaderValue::from_static("no");
            response
                .headers_mut()
                .insert("x-accel-buffering", no_buffer);
            let kept = HeaderValue::from_static("no-store");
            response.headers_mut().insert(header::CACHE_CONTROL, kept);
            response
        },
    )
}

/// Waits for the next look, and tells the versions of the page's sections.
async fn next(mut followed: Followed) -> Option<(Result<Event, Infallible>, Followed)> {
    tokio::select! {
        _ = followed.ticks.tick() => {}
        () = followed.frame.site.stop.cancelled() => return None,
    }
    // Who has lost a right gets no further word; the browser connects again with what is left.
    if Instant::now() > followed.ends || !followed.rights.holds().await {
        return None;
    }

    let rendered = followed
        .frame
        .rendered(followed.page, followed.request.clone())
        .await;
    let event = match rendered {
        Ok(rendered) => {
            let versions = serde_json::to_string(&rendered.versions).unwrap_or_default();
            Event::default().data(versions)
        }
        // The next look may find a place.
        Err(error) => Event::default().comment(error.to_string()),
    };
    Some((Ok(event), followed))
}
