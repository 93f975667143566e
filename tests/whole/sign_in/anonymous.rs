//! Visitors without a sign-in.

use crate::access::{ALICE, BEARER_ADMIN, BEARER_READER, Lab, ROOT, WWW_DATA, needs};
use crate::support::or_skip;

/// Requests from another machine: a proxy's, of which the server knows nothing.
const AWAY: [&str; 2] = ["--header", "X-Forwarded-For: 198.51.100.7"];

#[test]
fn a_screen_shows_the_cluster_without_names() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"open\"\nanonymous = \"status\"");
    for path in ["/status", "/api/takt/v1/cluster"] {
        let (status, body) = lab.curl(WWW_DATA, path, &AWAY);
        assert_eq!(status, 200, "{path}: {body}");
        for secret in ["alice", "bob", "physics", "biology"] {
            assert!(!body.contains(secret), "{secret} in {path}");
        }
    }
    for path in [
        "/",
        "/jobs",
        "/people",
        "/api/takt/v1/jobs",
        "/api/v1/query?query=up",
        "/metrics",
        "/search?q=bob",
    ] {
        assert_eq!(lab.curl(WWW_DATA, path, &AWAY).0, 401, "{path}");
    }
    assert_eq!(
        lab.curl(WWW_DATA, "/-/reload", &["--request", "POST"]).0,
        401
    );
    assert_eq!(
        lab.json(WWW_DATA, "/api/takt/v1/whoami", &AWAY)["role"],
        "status"
    );
    assert_eq!(lab.json(ALICE, "/api/takt/v1/whoami", &[])["role"], "user");
}

#[test]
fn an_open_server_shows_everything_and_changes_nothing() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("anonymous = \"viewer\"");
    let jobs = lab.json(WWW_DATA, "/api/takt/v1/jobs", &AWAY);
    assert_eq!(jobs.as_array().unwrap().len(), 2);

    for path in ["/-/reload", "/api/takt/v1/tokens", "/api/v2/silences"] {
        assert_eq!(
            lab.curl(WWW_DATA, path, &["--request", "POST"]).0,
            401,
            "{path}"
        );
    }

    // The log of sign-ins has names and addresses, so it is no viewer's.
    assert_eq!(lab.curl(WWW_DATA, "/api/takt/v1/audit", &AWAY).0, 401);

    // A known viewer sees no less.
    assert_eq!(
        lab.json(ALICE, "/api/takt/v1/whoami", &[])["role"],
        "viewer"
    );
}

/// Without the key, those who are not signed in have no role, and a wrong value starts no server.
#[test]
fn nobody_is_anonymous_by_default() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("");
    for path in ["/", "/status", "/api/takt/v1/cluster", "/api/takt/v1/jobs"] {
        assert_eq!(lab.curl(WWW_DATA, path, &AWAY).0, 401, "{path}");
    }
    lab.takt
        .file("wrong.toml", "[auth]\nanonymous = \"admin\"\n");
    let said = lab
        .takt
        .run(["check-config", "--config", "wrong.toml"])
        .fails(2);
    assert!(said.contains("anonymous"), "{said}");
}

/// A browser that opens a page goes to the sign-in page and comes back afterwards.
#[test]
fn a_browser_finds_the_sign_in_page() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"\npasswords = true");
    let navigate = ["--header", "Sec-Fetch-Mode: navigate", "--include"];
    let (status, head) = lab.curl(WWW_DATA, "/jobs?user=a%26b", &navigate);
    assert_eq!(status, 303, "{head}");
    assert!(
        head.contains("location: /login?next=%2Fjobs%3Fuser%3Da%2526b"),
        "{head}"
    );
    assert_eq!(
        lab.curl(WWW_DATA, "/api/takt/v1/jobs", &[]).0,
        401,
        "a program"
    );
    let (_, page) = lab.curl(WWW_DATA, "/login?next=%2Fjobs%3Fuser%3Da%2526b", &[]);
    assert!(
        page.contains("value=\"/jobs?user=a%26b\"")
            || page.contains("value=\"&#x2f;jobs?user=a%26b\""),
        "{page}"
    );

    // The page tells of `takt login` even where it has no form for a password.
    let without = Lab::start("privacy = \"private\"");
    assert_eq!(without.curl(WWW_DATA, "/jobs", &navigate).0, 303);
}

/// Statements of admins find the audit log; those of others find a table without rows.
#[test]
fn sql_shows_the_audit_log_to_admins() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"\nsupport = [\"bob\"]");
    lab.curl(
        ROOT,
        "/-/reload",
        &["--request", "POST", "--header", BEARER_ADMIN],
    );
    let ask = |statement: &str, header: &str| {
        let arguments = ["--data", statement, "--header", header];
        lab.curl(ROOT, "/api/takt/v1/sql", &arguments)
    };
    let count = "SELECT count(*) AS n, max(action) AS action FROM audit";
    let (status, rows) = ask(count, BEARER_ADMIN);
    assert!(status == 200 && rows.contains("POST /-/reload"), "{rows}");
    let (status, rows) = ask(count, BEARER_READER);
    assert!(status == 200 && rows.contains("[[0,null]]"), "{rows}");
    // The table by its other names, and through functions that take a name as text.
    for statement in [
        "SELECT * FROM admin.audit",
        "SELECT * FROM memory.admin.audit",
        "SELECT * FROM records.access.audit",
        "SELECT * FROM records.access.passwords",
        "SELECT * FROM query_table('admin.audit')",
        "SET search_path = 'memory.admin'",
    ] {
        let (status, said) = ask(statement, BEARER_READER);
        assert!(
            status >= 400 && !said.contains("reload"),
            "{statement}: {said}"
        );
    }
    assert!(ask("SELECT * FROM records.access.passwords", BEARER_ADMIN).0 >= 400);
}
