//! What a user puts into texts reaches nobody who may not see it: a word is planted in every text, and every route is asked
//! as every other role.

use crate::access::{ALICE, BEARER_ADMIN, BEARER_READER, Lab, ROOT, SOON, needs};
use crate::route_matrix::concrete;
use crate::support::or_skip;
use crate::support::process::http_get_with;
use crate::support::target::{Page, scrape_target};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The planted words. `true`: everybody who is signed in may see it. All others are for bob, and for roles that see all users.
const PLANTED: &[(&str, bool)] = &[
    // Name and account of bob's job in the records, and bob.
    ("=cmd(", false),
    ("biology", false),
    ("bob", false),
    ("4248817", false),
    // Labels of a series, whatever their names.
    ("wordseries", false),
    ("wordjobname", false),
    ("wordcomment", false),
    // Texts of a rule's alert: with a label, with the samples of a query, and with hardware only.
    ("wordsummary", false),
    ("wordquery", false),
    ("wordpublic", true),
    // Labels and the kernel's lines of events of an exporter.
    ("wordprocess", false),
    ("wordkernel", false),
    ("wordkilled", false),
    ("wordcgroup", false),
    ("88771166", false),
    // Labels and texts of alerts that another program posted, active and resolved.
    ("wordposted", false),
    ("wordcommand", false),
    ("wordmount", false),
    ("worddevice", false),
    ("wordnobody", false),
    ("wordgone", false),
    ("wordgenerator", false),
    // Attributes of metrics that a sender pushed with OTLP, and of their resource.
    ("wordpushed", false),
    ("wordresource", false),
    // A silence.
    ("wordmatcher", false),
    ("wordreason", false),
    ("wordcreator", false),
];

const RULES: &str = r#"
groups:
  - name: planted
    rules:
      - alert: OfJob
        expr: planted > 0
        labels: {severity: critical}
        annotations:
          summary: "wordsummary: {{ $labels.node }} runs {{ $labels.job_name }}"
          asked: 'wordquery {{ range query "planted" }}{{ .Labels.invented }}{{ end }}'
          public: "wordpublic on {{ $labels.node }}"
      - alert: Failing
        expr: planted * on() planted
"#;

/// Token of the sender.
const SENDER: &str = "sender-sender-sender";

/// A job's metrics in OTLP.
fn pushed() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let point = json!({
        "timeUnixNano": now.as_nanos().to_string(),
        "asDouble": 1.0,
        "attributes": [text("user", "bob"), text("jobid", "4248817"), text("run", "wordpushed")],
    });
    json!({"resourceMetrics": [{
        "resource": {"attributes": [text("service.name", "wordresource")]},
        "scopeMetrics": [{"metrics": [{"name": "planted_push", "gauge": {"dataPoints": [point]}}]}],
    }]})
}

/// An exporter whose series and events contain words.
fn exporter(path: &str) -> Page {
    if !path.starts_with("/events") {
        let series = |comment: &str| {
            format!(
                "planted{{user=\"bob\",account=\"biology\",jobid=\"4248817\",job_name=\"wordjobname\",\
                 invented=\"wordseries\",comment=\"{comment}\"}} 1\n"
            )
        };
        let page = series("wordcomment1") + &series("wordcomment2");
        return ("text/plain; version=0.0.4", page);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let event = |id: u32, kind: &str, labels: Value, message: &str| {
        let at = now.as_millis() as u64;
        let event = json!({"id": id, "at": at, "kind": kind, "labels": labels, "message": message});
        format!("id: {id}\ndata: {event}\n\n")
    };
    let xid = json!({"xid": "13", "pci_bus_id": "0000:06:00.0", "uuid": "GPU-9", "pid": "88771166",
        "process": "wordprocess", "user": "bob", "jobid": "4248817", "job_name": "wordjobname"});
    let killed = json!({"scope": "node", "process": "wordprocess", "pid": "88771166", "cgroup": "/wordcgroup"});
    let page = event(1, "xid", xid, "NVRM: Xid 13, name=wordkernel")
        + &event(
            2,
            "oom_kill",
            killed,
            "Out of memory: Killed process 1 (wordkilled)",
        );
    ("text/event-stream", page)
}

/// Starts a server that knows all words, and returns the fingerprints of alerts about bob.
fn planted(privacy: &str) -> (Lab, Vec<String>) {
    let target = scrape_target(exporter);
    let config = format!(
        "privacy = \"{privacy}\"\n[alerts]\nrule_dirs = [\"rules\"]\ninterval_seconds = 1\n\
         [scrape]\ninterval_seconds = 1.0\n[[scrape.targets]]\naddress = \"{target}\"\nnode = \"n1\"\n\
         [[push.senders]]\nname = \"jobs\"\ntoken_file = \"token-of-jobs\"\n"
    );
    let mut lab = Lab::start_with(&config, |folder: &Path, command: Command| {
        fs::create_dir(folder.join("rules")).unwrap();
        fs::write(folder.join("rules/planted.rules.yml"), RULES).unwrap();
        fs::write(folder.join("token-of-jobs"), SENDER).unwrap();
        command
    });

    let alert = |labels: Value, text: &str, ends: Value| {
        json!({"labels": labels, "annotations": {"summary": text, "wordposted": "x"}, "startsAt": "2026-03-01T10:00:00Z",
            "endsAt": ends, "generatorURL": "http://x/wordgenerator"})
    };
    let of_bob = json!({"alertname": "Posted", "severity": "critical", "node": "n1", "user": "bob", "jobid": "4248817",
        "account": "biology", "job_name": "wordjobname", "command": "wordcommand", "invented": "wordposted",
        "mountpoint": "/wordmount", "device": "worddevice", "pid": "88771166", "cgroup": "/wordcgroup"});
    let of_nobody = json!({"alertname": "Nobody", "severity": "critical", "node": "n1", "process": "wordprocess"});
    let gone = json!({"alertname": "Gone", "severity": "critical", "node": "n1", "user": "bob", "invented": "wordgone"});
    let later = json!("2099-01-01T00:00:00Z");
    let text = "Job 4248817 (wordjobname) of bob";
    post(
        &lab,
        "/api/v2/alerts",
        &json!([
            alert(of_bob, text, later.clone()),
            alert(of_nobody, "wordnobody", later.clone()),
            alert(gone, text, later.clone()),
        ]),
    );
    let silence = json!({"matchers": [
            {"name": "user", "value": "bob", "isRegex": false},
            {"name": "job_name", "value": "wordmatcher", "isRegex": false}],
        "startsAt": "2026-03-01T10:00:00Z", "endsAt": later, "createdBy": "wordcreator", "comment": "wordreason"});
    post(&lab, "/api/v2/silences", &silence);

    let body = pushed().to_string();
    let bearer = format!("Authorization: Bearer {SENDER}");
    let json = "Content-Type: application/json";
    let arguments = ["--data", &body, "--header", json, "--header", &bearer];
    let (status, said) = lab.curl(ROOT, "/api/v1/otlp/v1/metrics", &arguments);
    assert_eq!(status, 200, "{said}");

    let address = format!("http://localhost:{}/api/v2/alerts", lab.port);
    let alerts = lab.server.wait_until("alerts", SOON, || {
        let header = [("Authorization", "Bearer reader-reader-reader")];
        let page = http_get_with(&address, &[], &header).ok()?;
        ["OfJob", "wordkilled", "wordkernel", "Posted", "Gone"]
            .iter()
            .all(|word| page.body.contains(word))
            .then_some(page.body)
    });
    for filter in ["alertname=Gone", "comment=wordcomment2"] {
        let closing = json!({"filter": [filter], "createdBy": "ops", "comment": "over"});
        post(&lab, "/api/v2/alerts/close", &closing);
    }
    let alerts: Value = serde_json::from_str(&alerts).unwrap();
    let hidden = alerts.as_array().unwrap().iter();
    let hidden = hidden.filter(|alert| alert["labels"]["user"] == "bob");
    let fingerprints: Vec<String> = hidden
        .map(|alert| alert["fingerprint"].as_str().unwrap().to_owned())
        .collect();
    assert!(fingerprints.len() >= 4, "{alerts}");
    (lab, fingerprints)
}

fn post(lab: &Lab, path: &str, body: &Value) {
    let body = body.to_string();
    let json = "Content-Type: application/json";
    let arguments = ["--data", &body, "--header", json, "--header", BEARER_ADMIN];
    let (status, said) = lab.curl(ROOT, path, &arguments);
    assert_eq!(status, 200, "{path}: {said}");
}

/// Every route that reads, and some questions with parameters.
fn paths(lab: &Lab) -> Vec<String> {
    let listed = lab.json(ROOT, "/api/takt/v1/routes", &["--header", BEARER_ADMIN]);
    let routes = listed.as_array().unwrap().iter();
    let routes = routes.filter_map(|route| route["path"].as_str());
    let routes = routes.filter(|path| !path.starts_with("/static/") && !path.contains("/delete"));
    let questions = [
        "/api/takt/v1/events?from=0&to=9999999999",
        "/api/takt/v1/events?from=0&to=9999999999&node=n1",
        "/api/takt/v1/alerts/history?from=0",
        "/alerts/history?range=7d",
        "/alerts/history.csv?range=7d&name=Gone",
        "/events?range=7d&kind=hardware",
        "/events.json?range=7d",
        "/search?q=word",
        "/api/takt/v1/search?q=word",
        "/api/takt/v1/search?q=OfJob",
        "/nodes/n1?range=24h",
        "/gpus/GPU-9",
        "/api/takt/v1/jobs?job_id=4248817",
        "/api/v1/query?query=ALERTS",
        "/api/v1/series?match[]=planted",
        "/api/v1/series?match[]=planted_push",
    ];
    let questions = questions.into_iter().map(str::to_owned);
    routes.map(concrete).chain(questions).collect()
}

/// The answers of all routes to one caller, with their paths.
fn answers(lab: &Lab, paths: &[String], uid: u32, way: &[&str]) -> Vec<(String, String)> {
    let answer = |path: &String| {
        let mut arguments = way.to_vec();
        // Streams do not end.
        let limit = if path.starts_with("/live") { "1" } else { "30" };
        arguments.extend(["--max-time", limit, "--globoff"]);
        (path.clone(), lab.curl(uid, path, &arguments).1)
    };
    paths.iter().map(answer).collect()
}

#[test]
fn no_route_shows_a_word_of_another_user() {
    shows_no_word_of_another_user("private", &[]);
}

/// Users see whose job it is, and nothing of its name, labels and texts.
#[test]
fn no_route_shows_details_of_jobs_where_usage_is_private() {
    shows_no_word_of_another_user("usage", &["bob", "biology", "4248817"]);
}

/// `known` are the words that users may see of each other.
fn shows_no_word_of_another_user(privacy: &str, known: &[&str]) {
    if or_skip(needs()).is_none() {
        return;
    }
    let (lab, fingerprints) = planted(privacy);
    let paths = paths(&lab);
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let screen = json!({"name": "screen", "role": "status"}).to_string();
    let json = "Content-Type: application/json";
    let order = [
        "--data",
        &screen,
        "--header",
        json,
        "--header",
        BEARER_ADMIN,
    ];
    let screen = lab.json(ROOT, "/api/takt/v1/tokens", &order);
    let screen = format!(
        "Authorization: Bearer {}",
        screen["token"].as_str().unwrap()
    );
    let callers: [(&str, u32, Vec<&str>); 5] = [
        ("anonymous", ROOT, vec![]),
        ("status", ROOT, vec!["--header", &screen]),
        ("alice", ALICE, vec![]),
        ("alice at the socket", ALICE, vec!["--unix-socket", &socket]),
        (
            "a viewer of all users",
            ROOT,
            vec!["--header", BEARER_READER],
        ),
    ];
    let answers = thread::scope(|scope| {
        let (lab, paths) = (&lab, paths.as_slice());
        let asked = callers
            .iter()
            .map(|(name, uid, way)| (*name, scope.spawn(move || answers(lab, paths, *uid, way))));
        let asked: Vec<_> = asked.collect();
        asked
            .into_iter()
            .map(|(name, asked)| (name, asked.join().unwrap()))
            .collect::<Vec<_>>()
    });

    let mut leaks = Vec::new();
    for (caller, answers) in &answers {
        let has = |word: &str| answers.iter().any(|(_, body)| body.contains(word));
        if caller.contains("all users") {
            for (word, _) in PLANTED {
                assert!(has(word), "{word} was planted nowhere");
            }
            continue;
        }
        let is_signed_in = caller.starts_with("alice");
        let public = PLANTED.iter().filter(|(_, is_public)| *is_public);
        for (word, _) in public.filter(|_| is_signed_in) {
            assert!(has(word), "{caller} may see {word}, and does not");
        }
        for (path, body) in answers {
            let words = PLANTED
                .iter()
                .filter(|(_, is_public)| !is_public || !is_signed_in);
            let words = words.map(|(word, _)| *word);
            let words = words.filter(|word| !is_signed_in || !known.contains(word));
            for word in words.chain(fingerprints.iter().map(String::as_str)) {
                // An error may repeat the question.
                if body.contains(word) && !path.contains(word) {
                    leaks.push(format!("{caller} sees {word} at {path}"));
                }
            }
        }
    }
    assert!(
        leaks.is_empty(),
        "{} leaks:\n{}",
        leaks.len(),
        leaks.join("\n")
    );
}

/// A live page ends when the right to it ends, and not some time later.
#[test]
fn a_live_page_ends_with_its_token() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let order = |order: Value| {
        let order = order.to_string();
        let json = "Content-Type: application/json";
        let arguments = ["--unix-socket", &socket, "--data", &order, "--header", json];
        lab.json(ALICE, "/api/takt/v1/tokens", &arguments)
    };
    let made = order(json!({"name": "tab"}));
    let token = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let begun = Instant::now();
    let (stream, revoked) = thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let arguments = ["--no-buffer", "--header", &token, "--max-time", "55"];
            let (status, body) = lab.curl(ROOT, "/live/queue", &arguments);
            (status, body, begun.elapsed())
        });
        thread::sleep(Duration::from_secs(2));
        order(json!({"revoke": made["id"]}));
        (stream.join().unwrap(), begun.elapsed())
    });
    let (status, body, lasted) = stream;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("data:"), "{body}");
    // The stream looks at its page every 15 seconds.
    assert!(
        lasted < Duration::from_secs(30),
        "{lasted:?}, revoked before {revoked:?}"
    );
}
