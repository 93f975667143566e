//! The matrix of all routes and roles, from the routes of the running server.

use serde_json::Value;

use crate::access::{ALICE, BEARER_ADMIN, BEARER_READER, BOB, Lab, ROOT, needs};
use crate::support::or_skip;
use std::thread;

/// Texts of bob's jobs that no answer to alice may contain.
const OF_BOB: [&str; 4] = ["bob", "biology", "=cmd(", "4248817"];

/// A path of a route, with values in place of its parameters.
pub(crate) fn concrete(path: &str) -> String {
    [
        ("{name}", "user"),
        ("{id}", "none"),
        ("{job}", "4248817"),
        ("{user}", "bob"),
        ("{account}", "biology"),
        ("{node}", "n1"),
        ("{uuid}", "GPU-1"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (name, value)| {
        path.replace(name, value)
    })
}

/// Least role of each route, for GET and for other methods. A route that is missing here fails the
/// test below.
const MATRIX: &[(&str, &str, &str)] = &[
    ("/", "user", "admin"),
    ("/-/healthy", "", "admin"),
    ("/-/ready", "", "admin"),
    ("/-/reload", "admin", "admin"),
    ("/accounts/{account}", "user", "admin"),
    ("/acknowledge", "", ""),
    ("/alerts", "user", "support"),
    ("/alerts/history", "user", "admin"),
    ("/alerts/history.csv", "user", "admin"),
    ("/alerts/history.json", "user", "admin"),
    ("/alerts/rules", "user", "admin"),
    ("/alerts/rules.csv", "user", "admin"),
    ("/alerts/rules.json", "user", "admin"),
    ("/api/takt/v1/about", "user", "user"),
    ("/api/takt/v1/alerts", "user", "support"),
    ("/api/takt/v1/alerts/history", "user", "user"),
    ("/api/takt/v1/alerts/rules", "user", "user"),
    ("/api/takt/v1/assess", "admin", "admin"),
    ("/api/takt/v1/audit", "admin", "admin"),
    ("/api/takt/v1/capacity", "user", "user"),
    ("/api/takt/v1/card", "user", "support"),
    ("/api/takt/v1/cards", "user", "user"),
    ("/api/takt/v1/cluster", "status", "status"),
    ("/api/takt/v1/compare", "user", "user"),
    ("/api/takt/v1/credits", "user", "admin"),
    ("/api/takt/v1/doctor", "viewer", "viewer"),
    ("/api/takt/v1/energy", "user", "user"),
    ("/api/takt/v1/events", "user", "user"),
    ("/api/takt/v1/fairshare", "user", "user"),
    ("/api/takt/v1/gpu", "user", "user"),
    ("/api/takt/v1/history", "user", "user"),
    ("/api/takt/v1/import", "admin", "admin"),
    ("/api/takt/v1/imports", "viewer", "viewer"),
    ("/api/takt/v1/imports/undo", "admin", "admin"),
    ("/api/takt/v1/job", "user", "user"),
    ("/api/takt/v1/job/blocked", "user", "user"),
    ("/api/takt/v1/jobs", "user", "user"),
    ("/api/takt/v1/jobs/delete", "admin", "admin"),
    ("/api/takt/v1/jobs/strips", "user", "user"),
    ("/api/takt/v1/lake", "user", "user"),
    ("/api/takt/v1/lake/init", "admin", "admin"),
    ("/api/takt/v1/lake/verify", "viewer", "viewer"),
    ("/api/takt/v1/login", "user", "user"),
    ("/api/takt/v1/login/munge", "", ""),
    ("/api/takt/v1/passwords", "user", "user"),
    ("/api/takt/v1/queue", "user", "user"),
    ("/api/takt/v1/report/sent", "user", "admin"),
    ("/api/takt/v1/report/sheets", "user", "user"),
    ("/api/takt/v1/report/usage", "user", "user"),
    ("/api/takt/v1/routes", "admin", "admin"),
    ("/api/takt/v1/search", "user", "user"),
    ("/api/takt/v1/sources", "user", "user"),
    ("/api/takt/v1/sql", "viewer", "viewer"),
    ("/api/takt/v1/store", "user", "user"),
    ("/api/takt/v1/store/delete", "admin", "admin"),
    ("/api/takt/v1/store/seal", "admin", "admin"),
    ("/api/takt/v1/store/snapshot", "admin", "admin"),
    ("/api/takt/v1/store/verify", "viewer", "viewer"),
    ("/api/takt/v1/strips", "user", "user"),
    ("/api/takt/v1/tokens", "user", "user"),
    ("/api/takt/v1/view", "viewer", "viewer"),
    ("/api/takt/v1/waste", "user", "user"),
    ("/api/takt/v1/whatif", "user", "user"),
    ("/api/takt/v1/whoami", "", ""),
    ("/api/v1/alertmanagers", "user", "user"),
    ("/api/v1/alerts", "viewer", "viewer"),
    ("/api/v1/features", "user", "user"),
    ("/api/v1/format_query", "user", "user"),
    ("/api/v1/label/{name}/values", "viewer", "viewer"),
    ("/api/v1/labels", "viewer", "viewer"),
    ("/api/v1/metadata", "viewer", "viewer"),
    ("/api/v1/notifications", "user", "user"),
    ("/api/v1/openapi.yaml", "user", "user"),
    // A sender's token alone; "admin" is the highest role, and not enough.
    ("/api/v1/otlp/v1/metrics", "admin", "admin"),
    ("/api/v1/parse_query", "user", "user"),
    ("/api/v1/query", "viewer", "viewer"),
    ("/api/v1/query_exemplars", "viewer", "viewer"),
    ("/api/v1/query_range", "viewer", "viewer"),
    ("/api/v1/rules", "viewer", "viewer"),
    ("/api/v1/scrape_pools", "viewer", "viewer"),
    ("/api/v1/series", "viewer", "viewer"),
    ("/api/v1/status/buildinfo", "user", "user"),
    ("/api/v1/status/config", "viewer", "viewer"),
    ("/api/v1/status/flags", "viewer", "viewer"),
    ("/api/v1/status/runtimeinfo", "viewer", "viewer"),
    ("/api/v1/status/self_metrics", "user", "user"),
    ("/api/v1/status/tsdb", "viewer", "viewer"),
    ("/api/v1/status/tsdb/blocks", "viewer", "viewer"),
    ("/api/v1/status/walreplay", "user", "user"),
    ("/api/v1/targets", "viewer", "viewer"),
    ("/api/v1/targets/metadata", "viewer", "viewer"),
    ("/api/v1/targets/relabel_steps", "viewer", "viewer"),
    ("/api/v1/write", "admin", "admin"),
    ("/api/v2/alerts", "viewer", "support"),
    ("/api/v2/alerts/close", "support", "support"),
    ("/api/v2/alerts/groups", "viewer", "viewer"),
    ("/api/v2/alerts/route", "viewer", "viewer"),
    ("/api/v2/alerts/test", "support", "support"),
    ("/api/v2/receivers", "viewer", "viewer"),
    ("/api/v2/silence/{id}", "viewer", "support"),
    ("/api/v2/silences", "viewer", "support"),
    ("/api/v2/status", "viewer", "viewer"),
    ("/capacity", "user", "admin"),
    ("/capacity.csv", "user", "admin"),
    ("/capacity.json", "user", "admin"),
    ("/cards", "user", "admin"),
    ("/cards.csv", "user", "admin"),
    ("/cards.json", "user", "admin"),
    ("/compare", "user", "admin"),
    ("/energy", "user", "admin"),
    ("/energy.csv", "user", "admin"),
    ("/energy.json", "user", "admin"),
    ("/events", "user", "admin"),
    ("/events.csv", "user", "admin"),
    ("/events.json", "user", "admin"),
    ("/fairshare", "user", "admin"),
    ("/fairshare.csv", "user", "admin"),
    ("/fairshare.json", "user", "admin"),
    ("/federate", "viewer", "viewer"),
    ("/gpus/{uuid}", "user", "admin"),
    ("/health", "user", "admin"),
    ("/health.csv", "user", "admin"),
    ("/health.json", "user", "admin"),
    ("/jobs", "user", "admin"),
    ("/jobs.csv", "user", "admin"),
    ("/jobs.json", "user", "admin"),
    ("/jobs/{job}", "user", "admin"),
    ("/live/", "user", "admin"),
    ("/live/alerts", "user", "admin"),
    ("/live/gpus/{uuid}", "user", "admin"),
    ("/live/health", "user", "admin"),
    ("/live/jobs/{job}", "user", "admin"),
    ("/live/nodes", "user", "admin"),
    ("/live/nodes/{node}", "user", "admin"),
    ("/live/queue", "user", "admin"),
    ("/live/status", "status", "admin"),
    ("/login", "", "admin"),
    ("/login/oidc", "", "admin"),
    ("/login/oidc/back", "", "admin"),
    ("/login/password", "", ""),
    ("/login/session", "", ""),
    ("/login/user", "", ""),
    ("/logout", "", ""),
    ("/me", "user", "user"),
    ("/me/password", "user", "user"),
    ("/metrics", "user", "user"),
    ("/nodes", "user", "admin"),
    ("/nodes.csv", "user", "admin"),
    ("/nodes.json", "user", "admin"),
    ("/nodes/{node}", "user", "admin"),
    ("/people", "user", "admin"),
    ("/people.csv", "user", "admin"),
    ("/people.json", "user", "admin"),
    ("/people/{user}", "user", "admin"),
    ("/queue", "user", "admin"),
    ("/queue.csv", "user", "admin"),
    ("/queue.json", "user", "admin"),
    ("/reports", "user", "admin"),
    ("/reports.csv", "user", "admin"),
    ("/reports.json", "user", "admin"),
    ("/reports/sheet", "user", "admin"),
    ("/search", "user", "admin"),
    ("/servers", "viewer", "admin"),
    ("/servers.csv", "viewer", "admin"),
    ("/servers.json", "viewer", "admin"),
    ("/sql", "viewer", "admin"),
    ("/sql.csv", "viewer", "admin"),
    ("/sql.json", "viewer", "admin"),
    ("/status", "status", "admin"),
    ("/waste", "user", "admin"),
    ("/waste.csv", "user", "admin"),
    ("/waste.json", "user", "admin"),
    ("/whatif", "user", "admin"),
    ("/whatif.csv", "user", "admin"),
    ("/whatif.json", "user", "admin"),
];

const ROLES: [&str; 6] = ["", "status", "user", "viewer", "support", "admin"];

/// The rank of a role; `""` is everybody.
fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).unwrap()
}

/// Every route of the running server, with every role, by GET and by POST: exactly those roles get
/// in that the matrix names.
#[test]
fn each_route_answers_exactly_its_roles() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"\nsupport = [\"bob\"]");
    let listed = lab.json(ROOT, "/api/takt/v1/routes", &["--header", BEARER_ADMIN]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|route| {
            (
                text(&route["path"]),
                text(&route["read"]),
                text(&route["other"]),
            )
        })
        .filter(|(path, ..)| !path.starts_with("/static/"))
        .collect();

    // The list is the router's own, so a new route without a line here cannot go unnoticed.
    let missing: Vec<_> = listed
        .iter()
        .filter(|(path, ..)| MATRIX.iter().all(|(known, ..)| known != path))
        .collect();
    assert!(
        missing.is_empty(),
        "routes without a line in MATRIX: {missing:?}"
    );
    for (path, read, other) in MATRIX {
        let expected = ((*path).to_owned(), (*read).to_owned(), (*other).to_owned());
        assert!(listed.contains(&expected), "{expected:?} is not as listed");
    }

    // Ways in, with the role that they have at the level `private`. Bob comes through the socket:
    // loopback changes nothing.
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let screen = "{\"name\":\"screen\",\"role\":\"status\"}";
    let json = "Content-Type: application/json";
    let order = ["--data", screen, "--header", json, "--header", BEARER_ADMIN];
    let screen = lab.json(ROOT, "/api/takt/v1/tokens", &order);
    let screen = format!(
        "Authorization: Bearer {}",
        screen["token"].as_str().unwrap()
    );
    let callers: [(&str, u32, Vec<&str>); 5] = [
        ("", ROOT, vec![]),
        ("status", ROOT, vec!["--header", &screen]),
        ("user", ALICE, vec!["--unix-socket", &socket]),
        ("viewer", ROOT, vec!["--header", BEARER_READER]),
        ("support", BOB, vec!["--unix-socket", &socket]),
    ];

    // Each role on a thread: some hundred requests each, one after another.
    thread::scope(|scope| {
        for (role, uid, way) in &callers {
            let lab = &lab;
            scope.spawn(move || every_route_answers(lab, role, *uid, way));
        }
    });
}

/// Asks every route as one role: it is refused exactly where its role is below that of the route.
fn every_route_answers(lab: &Lab, role: &str, uid: u32, way: &[&str]) {
    // A program has no tokens and no password of its own.
    const OWN: [&str; 4] = [
        "/api/takt/v1/tokens",
        "/api/takt/v1/passwords",
        "/me",
        "/me/password",
    ];
    for (path, read, other) in MATRIX {
        let address = concrete(path);
        for (method, least) in [("GET", read), ("POST", other)] {
            let mut arguments = way.to_vec();
            arguments.extend(["--request", method]);

            // Streams do not end.
            if path.starts_with("/live") {
                arguments.extend(["--max-time", "1"]);
            }
            let (status, body) = lab.curl(uid, &address, &arguments);
            let is_refused = status == 401 || (status == 403 && body.contains("needs the role"));
            let is_change =
                method == "POST" || path.ends_with("/password") || path.ends_with("/passwords");
            let is_own = OWN.contains(path) && is_change && role == "viewer";
            let may = rank(role) >= rank(least) && !is_own;
            assert_eq!(
                !is_refused, may,
                "{method} {path} as {role:?}: {status} {body}"
            );
        }
    }
}

/// Every route, asked by alice at the level `private`: no answer contains anything of bob's.
#[test]
fn no_route_shows_another_users_job() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let month = "month=2026-03";

    // Questions whose parameters ask for more than the routes show by themselves.
    let questions = [
        format!("/api/takt/v1/report/usage?{month}&by=user,account,state,node,day"),
        format!("/api/takt/v1/report/sheets?{month}&everybody=true"),
        format!("/api/takt/v1/report/sheets?{month}"),
        format!("/api/takt/v1/report/sheets?{month}&account=biology"),
        format!("/api/takt/v1/capacity?{month}"),
        format!("/api/takt/v1/report/sent?{month}"),
        format!("/api/takt/v1/whatif?{month}"),
        format!("/whatif?{month}"),
        "/api/takt/v1/fairshare?history_days=30".to_owned(),
        "/api/takt/v1/fairshare?user=alice&explain=true".to_owned(),
        "/api/takt/v1/jobs?state=FAILED".to_owned(),
        "/api/takt/v1/jobs?job_id=4248817".to_owned(),
        "/search?q=4248817".to_owned(),
        "/search?q=bob".to_owned(),
        "/jobs".to_owned(),
        "/jobs/4248817".to_owned(),
    ];
    for path in MATRIX
        .iter()
        .filter(|(path, ..)| !path.starts_with("/live"))
        .map(|(path, ..)| concrete(path))
        .chain(questions)
    {
        let (status, body) = lab.curl(ALICE, &path, &[]);

        // An error may repeat the question.
        let shown = OF_BOB
            .iter()
            .find(|secret| body.contains(**secret) && !path.contains(**secret));
        assert_eq!(shown, None, "{path}: {status} {body}");

        // A browser reads JSON and CSV as text.
        let is_page = body
            .trim_start()
            .to_lowercase()
            .starts_with("<!doctype html");
        assert!(
            !is_page || !body.contains("<script>alert(1)"),
            "{path} shows a job's name as markup: {body}"
        );
    }

    // An administrator gets all of it, so the paths above have something to hide.
    let jobs = lab
        .curl(ROOT, "/api/takt/v1/jobs", &["--header", BEARER_ADMIN])
        .1;
    assert!(
        OF_BOB
            .iter()
            .filter(|secret| jobs.contains(**secret))
            .count()
            >= 3,
        "{jobs}"
    );
}
