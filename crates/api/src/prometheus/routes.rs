//! The list of routes, with the descriptions for `openapi.yaml`.

use super::{Api, QUERY, QUERY_RANGE};
use super::{exemplars, features, federate, labels, openapi, query, self_metrics, status, targets};
use axum::handler::Handler;
use axum::routing::{MethodRouter, get};
use takt_access::Need;

/// A route.
pub(super) struct Route {
    pub path: &'static str,
    pub handler: MethodRouter<Api>,
    /// Need of the viewer.
    pub need: Need,
    /// Whether the parameters may also come as a form.
    pub takes_form: bool,
    pub summary: &'static str,
    pub parameters: Vec<Parameter>,
}

/// A parameter of the query string or the form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub is_required: bool,
    pub about: &'static str,
}

const fn needed(name: &'static str, about: &'static str) -> Parameter {
    Parameter {
        name,
        is_required: true,
        about,
    }
}

const fn optional(name: &'static str, about: &'static str) -> Parameter {
    Parameter {
        name,
        is_required: false,
        about,
    }
}

const EXPRESSION: Parameter = needed("query", "PromQL expression.");
const START: Parameter = optional("start", "Start, in seconds since 1970 or RFC 3339.");
const END: Parameter = optional("end", "End, in seconds since 1970 or RFC 3339.");
const LIMIT: Parameter = optional("limit", "Maximum number of results; 0: no limit.");
const MATCH: Parameter = optional("match[]", "Series selector; may be repeated.");
const NEEDED_MATCH: Parameter = needed("match[]", "Series selector; may be repeated.");
const TIMEOUT: Parameter = optional("timeout", "Maximum duration of the evaluation.");
const LOOKBACK: Parameter = optional(
    "lookback_delta",
    "Time before the evaluation in which the newest sample of a series is used.",
);
const STATS: Parameter = optional(
    "stats",
    "`all` adds statistics of each step; any other value adds sums.",
);
const METRIC: Parameter = optional("metric", "Name of a metric.");

/// All routes.
pub(super) fn all() -> Vec<Route> {
    vec![
        either(QUERY, query::instant, "Evaluates a query at one instant.").with([
            EXPRESSION,
            optional("time", "Time of the evaluation. Default: now."),
            LIMIT,
            TIMEOUT,
            LOOKBACK,
            STATS,
        ]),
        either(
            QUERY_RANGE,
            query::range,
            "Evaluates a query over a range of time.",
        )
        .with([
            EXPRESSION,
            needed("start", "First time."),
            needed("end", "Last time."),
            needed(
                "step",
                "Time between two evaluations, in seconds or as a duration.",
            ),
            LIMIT,
            TIMEOUT,
            LOOKBACK,
            STATS,
        ]),
        either(
            "/api/v1/query_exemplars",
            exemplars::exemplars,
            "Returns exemplars of the series that a query selects.",
        )
        .with([EXPRESSION, START, END]),
        either("/api/v1/format_query", query::format, "Formats a query.")
            .with([EXPRESSION])
            .harmless(),
        either(
            "/api/v1/parse_query",
            query::parse,
            "Returns the syntax tree of a query.",
        )
        .with([EXPRESSION])
        .harmless(),
        either("/api/v1/series", labels::series, "Lists series.").with([
            NEEDED_MATCH,
            START,
            END,
            LIMIT,
        ]),
        either("/api/v1/labels", labels::names, "Lists label names.")
            .with([MATCH, START, END, LIMIT]),
        read(
            "/api/v1/label/{name}/values",
            labels::values,
            "Lists the values of a label.",
        )
        .with([MATCH, START, END, LIMIT]),
        read(
            "/federate",
            federate::federate,
            "Returns the newest samples as text.",
        )
        .with([NEEDED_MATCH]),
        read(
            "/api/v1/metadata",
            targets::metadata,
            "Returns type, help and unit of metrics.",
        )
        .with([
            LIMIT,
            optional("limit_per_metric", "0: no metadata."),
            METRIC,
        ]),
        read(
            "/api/v1/targets",
            targets::targets,
            "Lists the scraped targets.",
        )
        .with([
            optional("state", "`active`, `dropped` or `any`."),
            optional("scrapePool", "Name of a job."),
        ]),
        read(
            "/api/v1/targets/metadata",
            targets::of_targets,
            "Returns the metadata of metrics by target.",
        )
        .with([
            optional("match_target", "Selector of targets."),
            METRIC,
            LIMIT,
        ]),
        read(
            "/api/v1/targets/relabel_steps",
            targets::relabel_steps,
            "Applies the relabelling of a job to labels, rule by rule.",
        )
        .with([
            needed("scrapePool", "Name of a job."),
            needed("labels", "Labels, as a JSON object."),
        ]),
        read(
            "/api/v1/scrape_pools",
            targets::scrape_pools,
            "Lists the names of the jobs.",
        ),
        read(
            "/api/v1/alertmanagers",
            status::alertmanagers,
            "Lists Alertmanagers; always empty.",
        )
        .harmless(),
        read(
            "/api/v1/features",
            features::features,
            "Lists features and whether they are enabled.",
        )
        .harmless(),
        read(
            "/api/v1/openapi.yaml",
            openapi::openapi,
            "Returns this description.",
        )
        .harmless(),
        read(
            "/api/v1/status/buildinfo",
            status::build_info,
            "Returns versions.",
        )
        .harmless(),
        read(
            "/api/v1/status/runtimeinfo",
            status::runtime_info,
            "Returns facts about the process.",
        ),
        read(
            "/api/v1/status/config",
            status::config,
            "Returns the targets as a configuration.",
        ),
        read(
            "/api/v1/status/flags",
            status::flags,
            "Returns settings as flags of Prometheus.",
        ),
        read(
            "/api/v1/status/self_metrics",
            self_metrics::self_metrics,
            "Returns the server's own metrics.",
        )
        .with([optional(
            "metric_name_pattern",
            "Regular expression that matches the whole name of a metric.",
        )])
        .harmless(),
        read(
            "/api/v1/status/tsdb",
            status::tsdb,
            "Returns numbers of series by metric and label.",
        )
        .with([LIMIT]),
        read(
            "/api/v1/status/tsdb/blocks",
            status::blocks,
            "Lists the blocks of samples.",
        ),
        read(
            "/api/v1/status/walreplay",
            status::wal_replay,
            "Returns the progress of the start.",
        )
        .harmless(),
        read(
            "/api/v1/notifications",
            status::notifications,
            "Lists notices; always empty.",
        )
        .harmless(),
    ]
}

fn read<H, T>(path: &'static str, handler: H, summary: &'static str) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    Route {
        path,
        handler: get(handler),
        need: Need::Samples,
        takes_form: false,
        summary,
        parameters: Vec::new(),
    }
}

/// A route for GET and POST.
fn either<H, T>(path: &'static str, handler: H, summary: &'static str) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    Route {
        handler: get(handler.clone()).post(handler.clone()),
        takes_form: true,
        ..read(path, handler, summary)
    }
}

impl Route {
    /// The same route for everyone who is signed in: its answer holds no samples.
    fn harmless(self) -> Self {
        Self {
            need: Need::SignedIn,
            ..self
        }
    }

    fn with(self, parameters: impl Into<Vec<Parameter>>) -> Self {
        Self {
            parameters: parameters.into(),
            ..self
        }
    }
}
