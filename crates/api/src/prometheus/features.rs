//! `features`: what this API and its query language can do, under Prometheus' names.

use super::answer::Answer;
use super::{Api, Reply};
use axum::extract::State;
use serde_json::{Map, Value, json};
use takt_identity::By;
use takt_promql::language;

/// `features`.
pub(super) async fn features(State(api): State<Api>, By(viewer): By) -> Reply {
    let query = &api.app.config().query;
    let options = query.options(query.timeout());
    let named = |all: Vec<language::Feature>| {
        all.into_iter()
            .map(|one| (one.name.to_owned(), one.is_enabled(&options).into()))
            .collect::<Map<String, Value>>()
    };

    Answer::of(&json!({
        "api": {
            "admin": false,
            "exclude_alerts": true,
            "label_values_match": true,
            "lifecycle": false,
            "openapi_3.1": true,
            "otlp_write_receiver": false,
            "query_stats": true,
            "query_warnings": true,
            "remote_write_receiver": false,
            "search": false,
            "time_range_labels": true,
            "time_range_series": true,
        },
        "prometheus": {"agent_mode": false, "server_mode": true},
        "promql": named(language::modifiers()),
        "promql_functions": named(language::functions()),
        "promql_operators": named(language::operators()),
        "rules": {"keep_firing_for": true, "query_offset": true},
        "scrape": {
            "start_timestamp_zero_ingestion": false,
            "type_and_unit_labels": false,
        },
        "service_discovery_providers": {
            "file": true,
            "http": true,
            "slurm": true,
            "static": true,
        },
        "tsdb": {
            "exemplar_storage": api.app.of(&viewer).store.keeps_exemplars(),
            "isolation": true,
            "native_histograms": false,
        },
    }))
}
