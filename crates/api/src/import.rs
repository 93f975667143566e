//! Imports over HTTP.

use super::{App, blocking};
use axum::body::{Body, Bytes};
use axum::extract::{Json, Query, State};
use futures_util::StreamExt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;
use takt_identity::{By, ErrorBody};
use takt_questions::{ImportQuestion, import};
use takt_store::ImportSummary;

/// Imports the body. It is first written to a file: an import is one transaction, which a slow sender must not keep open.
pub(super) async fn post_import(
    State(app): State<App>,
    By(viewer): By,
    Query(question): Query<ImportQuestion>,
    body: Body,
) -> Result<Json<ImportSummary>, ErrorBody> {
    let app = Arc::clone(app.of(&viewer));
    let folder = app.store.path();
    let cannot_keep = |error: io::Error| {
        let folder = folder.display();
        ErrorBody::failed(format!("cannot keep the file in {folder}: {error}"))
    };
    // In the data directory, because /tmp is often small or in memory, and without a name, so that
    // a crash leaves nothing.
    let mut spool = tempfile::tempfile_in(&folder).map_err(cannot_keep)?;

    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(ErrorBody::failed)?;
        spool = write_all(spool, chunk).await.map_err(cannot_keep)?;
    }

    spool.rewind().map_err(cannot_keep)?;
    blocking(move || import(app.store.database(), spool, &question, &app.config)).await
}

async fn write_all(mut file: File, chunk: Bytes) -> io::Result<File> {
    // The disk may be slow, and an async thread serves many connections.
    takt_store::spawn_blocking(move || file.write_all(&chunk).map(|()| file))
        .await
        .map_err(io::Error::other)?
}
