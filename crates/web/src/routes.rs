//! Routes of the pages.

use crate::scheduler::scheduler;
use crate::{AlertsView, ENDED_DAYS, ENDED_MOST, ServerFacts, gather, render};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use std::time::SystemTime;
use takt_model::Timestamp;
use takt_server::answers::AnswerError;
use takt_server::serve::PageState;
use takt_store::EndedAlert;

/// The pages `/` and `/alerts`.
pub fn routes(state: PageState) -> Router {
    Router::new()
        .route("/", get(show_overview))
        .route("/alerts", get(show_alerts))
        .with_state(state)
}

async fn show_overview(State(page): State<PageState>) -> Response {
    let surroundings = ServerFacts {
        cluster: page.cluster.to_string(),
        zone: page.zone.clone(),
        targets: page.scrape.targets(),
        scheduler: page
            .polls
            .as_ref()
            .and_then(|polls| scheduler(&polls.borrow())),
    };
    let rendered = tokio::task::spawn_blocking(move || {
        let facts = gather(&page.store, &surroundings)?;
        render(&facts).map_err(AnswerError::failed)
    })
    .await
    .map_err(AnswerError::failed)
    .flatten();
    match rendered {
        Ok(html) => ([(header::CACHE_CONTROL, "no-store")], Html(html)).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn show_alerts(State(page): State<PageState>) -> Response {
    match alerts(page).await {
        Ok(page) => ([(header::CACHE_CONTROL, "no-store")], Html(page)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response(),
    }
}

async fn alerts(page: PageState) -> anyhow::Result<String> {
    let cluster = Arc::clone(&page.cluster);
    let zone = page.zone.clone();
    let firing = page
        .alerts
        .read(move |engine, now| AlertsView::firing(engine, &cluster, &zone, now))
        .await?;
    let since = Timestamp::from(SystemTime::now()).0 - ENDED_DAYS * 86_400_000;
    let zone = page.zone.clone();
    let ended = move || EndedAlert::since(page.store.database(), since, ENDED_MOST);
    Ok(firing
        .with_ended(tokio::task::spawn_blocking(ended).await??, &zone)
        .render()?)
}
