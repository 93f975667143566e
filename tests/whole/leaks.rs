//! What a user puts into texts reaches nobody who may not see it: a word is planted in every text, and every route is asked
//! as every other role.

use crate::access::{
    ALICE, BEARER_ADMIN, BEARER_READER, BOB, Lab, ROOT, SOON, curl, needs, set_mode,
};
use crate::remote_write::prometheus;
use crate::route_matrix::concrete;
use crate::support::channels::Channel;
use crate::support::process::{Daemon, free_port, http_get, http_get_with};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use crate::support::target::{Page, scrape_target};
use crate::support::{Needed, need, or_skip};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    // Programs on a GPU, pods, and file systems that users mount, in the series that pages and shipped rules read.
    ("wordprogram", false),
    ("wordsluid", false),
    ("wordspace", false),
    ("wordpod", false),
    ("wordfuse", false),
    ("wordplace", false),
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

/// Words of alice's job and of an alert about it. They are for alice, for the coordinator of physics, and for
/// roles that see all users.
const OF_PHYSICS: [&str; 3] = ["alert(1)", "wordphysics", "wordalice"];

const CAROL: u32 = 2003;
const SAM: u32 = 2004;

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

/// Series of a node with a GPU that bob holds.
const NODE: &str = r#"takt_gpu_info{uuid="GPU-9",index="0",model="H100",pci_bus_id="0000:06:00.0"} 1
takt_gpu_up{uuid="GPU-9"} 1
takt_gpu_utilization_ratio{uuid="GPU-9"} 0.5
takt_gpu_memory_used_bytes{uuid="GPU-9"} 5e9
takt_gpu_memory_total_bytes{uuid="GPU-9"} 8e10
takt_gpu_job_info{uuid="GPU-9",jobid="4248817",user="bob"} 1
takt_gpu_job_memory_used_bytes{uuid="GPU-9",jobid="4248817"} 5e9
takt_gpu_process_without_job{uuid="GPU-9",user="bob"} 1
takt_gpu_process_memory_used_bytes{uuid="GPU-9",user="bob",command="wordprogram"} 5e9
takt_job_info{jobid="4248817",user="bob",scheduler="slurm",sluid="wordsluid"} 1
takt_job_user_info{user="bob",uid="2002",gid="2002"} 1
takt_job_pod_info{jobid="4248817",namespace="wordspace",pod="wordpod"} 1
takt_job_memory_current_bytes{jobid="4248817"} 5e9
takt_job_memory_limit_bytes{jobid="4248817"} 5e9
takt_job_cpus{jobid="4248817"} 4
node_filesystem_size_bytes{device="wordfuse@host:/x",mountpoint="/wordplace",fstype="fuse.sshfs"} 1e12
node_filesystem_avail_bytes{device="wordfuse@host:/x",mountpoint="/wordplace",fstype="fuse.sshfs"} 0
node_filesystem_readonly{device="wordfuse@host:/x",mountpoint="/wordplace",fstype="fuse.sshfs"} 1
node_filesystem_device_error{device="wordfuse@host:/x",mountpoint="/wordplace",fstype="fuse.sshfs"} 1
"#;

/// An exporter whose series and events contain words.
fn exporter(path: &str) -> Page {
    if !path.starts_with("/events") {
        let series = |comment: &str| {
            format!(
                "planted{{user=\"bob\",account=\"biology\",jobid=\"4248817\",job_name=\"wordjobname\",\
                 invented=\"wordseries\",comment=\"{comment}\"}} 1\n"
            )
        };
        let page = series("wordcomment1") + &series("wordcomment2") + NODE;
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

/// A server that knows all words.
struct Planted {
    lab: Lab,
    /// Fingerprints of alerts about bob.
    fingerprints: Vec<String>,
    /// Port of PostgreSQL's protocol.
    sql: u16,
}

fn planted(privacy: &str) -> Planted {
    let target = scrape_target(exporter);
    let sql = free_port();
    let config = format!(
        "privacy = \"{privacy}\"\nsupport = [\"sam\"]\n\
         [reports]\ndomain = \"lab.example\"\naccount_owners.physics = [\"carol@lab.example\"]\n\
         [alerts]\nrule_dirs = [\"rules\"]\ninterval_seconds = 1\n\
         [scrape]\ninterval_seconds = 1.0\n[[scrape.targets]]\naddress = \"{target}\"\nnode = \"n1\"\n\
         [[push.senders]]\nname = \"jobs\"\ntoken_file = \"token-of-jobs\"\n"
    );
    let mut lab = Lab::start_with(&config, |folder: &Path, command: Command| {
        fs::create_dir(folder.join("rules")).unwrap();
        fs::write(folder.join("rules/planted.rules.yml"), RULES).unwrap();
        fs::write(folder.join("token-of-jobs"), SENDER).unwrap();
        let changed = |file: &str, change: &dyn Fn(String) -> String| {
            let file = folder.join(file);
            fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
        };
        let more = format!("carol:x:{CAROL}:{CAROL}::/:/bin/sh\nsam:x:{SAM}:{SAM}::/:/bin/sh\n");
        changed("etc/passwd", &|users| users + &more);
        let address = format!("listen_address = \"127.0.0.1:{sql}\"");
        changed("takt.toml", &|config| {
            config.replacen("listen_address = \"\"", &address, 1)
        });
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
    let of_alice = json!({"alertname": "OfAlice", "severity": "critical", "node": "n1", "user": "alice",
        "account": "physics", "invented": "wordalice"});
    let later = json!("2099-01-01T00:00:00Z");
    let of_alice = json!({"labels": of_alice, "annotations": {"summary": "wordphysics"},
        "startsAt": "2026-03-01T10:00:00Z", "endsAt": later});
    let text = "Job 4248817 (wordjobname) of bob";
    post(
        &lab,
        "/api/v2/alerts",
        &json!([
            alert(of_bob, text, later.clone()),
            alert(of_nobody, "wordnobody", later.clone()),
            of_alice,
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
    Planted {
        lab,
        fingerprints,
        sql,
    }
}

fn post(lab: &Lab, path: &str, body: &Value) {
    let body = body.to_string();
    let json = "Content-Type: application/json";
    let arguments = ["--data", &body, "--header", json, "--header", BEARER_ADMIN];
    let (status, said) = lab.curl(ROOT, path, &arguments);
    assert_eq!(status, 200, "{path}: {said}");
}

/// Every route that reads, and some questions with parameters. `read` is the role that a route needs.
fn paths(port: u16) -> Vec<AskedPath> {
    let (status, listed) = curl(
        port,
        ROOT,
        "/api/takt/v1/routes",
        &["--header", BEARER_ADMIN],
    );
    assert_eq!(status, 200, "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let routes = listed.as_array().unwrap().iter();
    let routes = routes.map(|route| AskedPath {
        path: route["path"].as_str().unwrap().to_owned(),
        is_of_all_users: route["read"] == "viewer",
    });
    let routes: Vec<AskedPath> = routes
        .filter(|route| !route.path.starts_with("/static/") && !route.path.contains("/delete"))
        .collect();
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
        "/api/takt/v1/card?card=GPU-9",
        "/jobs?from=2001-01-01",
        "/jobs/7",
        "/accounts/physics?month=2026-03",
        "/reports/sheet?month=2026-03&account=physics",
        "/reports/sheet?month=2026-03&account=biology",
        "/api/takt/v1/report/sheets?month=2026-03&everybody=true",
        "/api/takt/v1/jobs?job_id=4248817",
        "/api/v1/query?query=ALERTS",
        "/api/v1/series?match[]=planted",
        "/api/v1/series?match[]=planted_push",
        "/api/v1/series?match[]={node=\"n1\"}",
    ];
    let questions = questions.into_iter().map(|path| AskedPath {
        path: path.to_owned(),
        is_of_all_users: routes
            .iter()
            .any(|route| route.is_of_all_users && path.starts_with(&format!("{}?", route.path))),
    });
    let questions: Vec<AskedPath> = questions.collect();
    let concrete = routes.into_iter().map(|route| AskedPath {
        path: concrete(&route.path),
        ..route
    });
    concrete.chain(questions).collect()
}

/// A path that is asked.
#[derive(Debug, Clone)]
struct AskedPath {
    path: String,
    /// Whether the answer is about all users: with `privacy = "open"` everybody gets it, else viewers.
    is_of_all_users: bool,
}

/// The answers of all routes to one caller.
struct Answers {
    caller: &'static str,
    answers: Vec<(AskedPath, String)>,
}

impl Answers {
    fn of(port: u16, paths: &[AskedPath], (caller, uid, way): &Caller<'_>) -> Self {
        let answer = |asked: &AskedPath| {
            let mut arguments = way.clone();

            // Streams do not end.
            let limit = if asked.path.starts_with("/live") {
                "1"
            } else {
                "30"
            };
            arguments.extend(["--max-time", limit, "--globoff"]);
            (asked.clone(), curl(port, *uid, &asked.path, &arguments).1)
        };
        Self {
            caller: *caller,
            answers: paths.iter().map(answer).collect(),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.answers.iter().any(|(_, body)| body.contains(word))
    }

    /// The hidden words that the caller saw, with their paths. `is_open`: not where answers are about all users.
    fn leaks<'w>(&self, hidden: impl IntoIterator<Item = &'w str>, is_open: bool) -> Vec<String> {
        let hidden: Vec<&str> = hidden.into_iter().collect();
        let answers = self.answers.iter();
        let answers = answers.filter(|(asked, _)| !(is_open && asked.is_of_all_users));
        let leaks = answers.flat_map(|(asked, body)| {
            // An error may repeat the question.
            let seen = hidden
                .iter()
                .filter(move |word| body.contains(**word) && !asked.path.contains(**word));
            seen.map(move |word| format!("{} sees {word} at {}", self.caller, asked.path))
        });
        leaks.collect()
    }
}

/// Name, Unix user, and arguments of curl.
type Caller<'a> = (&'static str, u32, Vec<&'a str>);

/// Asks all paths as all callers at once.
fn ask(port: u16, paths: &[AskedPath], callers: &[Caller<'_>]) -> Vec<Answers> {
    thread::scope(|scope| {
        let asked = callers
            .iter()
            .map(|caller| scope.spawn(move || Answers::of(port, paths, caller)));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[track_caller]
fn assert_none(leaks: &[String]) {
    assert!(
        leaks.is_empty(),
        "{} leaks:\n{}",
        leaks.len(),
        leaks.join("\n")
    );
}

/// Makes a token with the role of a screen, and returns its header.
fn screen(port: u16) -> String {
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
    let (status, made) = curl(port, ROOT, "/api/takt/v1/tokens", &order);
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    format!("Authorization: Bearer {}", made["token"].as_str().unwrap())
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

/// All users may ask in PromQL and SQL; the other answers leave out the same as ever.
#[test]
fn no_route_but_samples_shows_details_of_jobs_where_privacy_is_open() {
    shows_no_word_of_another_user("open", &["bob", "biology", "4248817"]);
}

/// `known` are the words that users may see of each other.
fn shows_no_word_of_another_user(privacy: &str, known: &[&str]) {
    let psql = Needed {
        program: "psql",
        package: "postgresql-client",
    };
    if or_skip(needs().and_then(|()| need(&[psql]))).is_none() {
        return;
    }
    let planted = planted(privacy);
    let lab = &planted.lab;
    let paths = paths(lab.port);
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let screen = screen(lab.port);
    let at_socket = || vec!["--unix-socket", &socket];
    let callers: [Caller<'_>; 8] = [
        ("anonymous", ROOT, vec![]),
        ("status", ROOT, vec!["--header", &screen]),
        ("alice", ALICE, vec![]),
        ("alice at the socket", ALICE, at_socket()),
        ("bob", BOB, at_socket()),
        ("carol, a coordinator", CAROL, at_socket()),
        ("sam of the support", SAM, at_socket()),
        (
            "a viewer of all users",
            ROOT,
            vec!["--header", BEARER_READER],
        ),
    ];

    let is_open = privacy == "open";
    let of_bob = || {
        PLANTED
            .iter()
            .filter(|(_, is_public)| !is_public)
            .map(|(word, _)| *word)
    };
    let public = || {
        PLANTED
            .iter()
            .filter(|(_, is_public)| *is_public)
            .map(|(word, _)| *word)
    };
    let fingerprints = planted.fingerprints.iter().map(String::as_str);
    let fingerprints: Vec<&str> = fingerprints.collect();
    let mut leaks = Vec::new();
    for answers in ask(lab.port, &paths, &callers) {
        let assert_sees = |words: &mut dyn Iterator<Item = &'static str>| {
            for word in words {
                assert!(
                    answers.has(word),
                    "{} may see {word}, and does not",
                    answers.caller
                );
            }
        };
        match answers.caller {
            "sam of the support" | "a viewer of all users" => {
                assert_sees(&mut PLANTED.iter().map(|(word, _)| *word).chain(OF_PHYSICS));
            }
            "anonymous" | "status" => {
                let hidden = of_bob().chain(public()).chain(OF_PHYSICS);
                leaks.extend(answers.leaks(hidden, false));
                leaks.extend(answers.leaks(fingerprints.iter().copied(), false));
            }
            "bob" => {
                assert_sees(&mut public());
                leaks.extend(answers.leaks(OF_PHYSICS, is_open));
            }
            _ => {
                assert_sees(&mut public().chain(OF_PHYSICS));
                let hidden = of_bob().filter(|word| !known.contains(word));
                leaks.extend(answers.leaks(hidden, is_open));
                leaks.extend(answers.leaks(fingerprints.iter().copied(), is_open));
            }
        }
    }
    assert_none(&leaks);

    // PostgreSQL's protocol, by the kernel's word on the connection.
    for (caller, uid, sees) in [
        ("anonymous", ROOT, false),
        ("alice", ALICE, is_open),
        ("carol", CAROL, is_open),
        ("sam", SAM, true),
    ] {
        let answer = every_table(planted.sql, uid);
        assert_eq!(answer.contains("4248817"), sees, "{caller}: {answer}");
        let words = of_bob().chain(OF_PHYSICS);
        let shown: Vec<_> = words.filter(|word| answer.contains(word)).collect();
        assert!(
            sees || shown.is_empty(),
            "{caller} sees {shown:?}: {answer}"
        );
    }

    // The bundle is given to others, the log is read by them: neither has details of jobs.
    let bundle = lab.takt.directory().join("bundle.tar.gz");
    let made = lab.run(ROOT, &["doctor", "--bundle", bundle.to_str().unwrap()]);
    let unpacked = Command::new("tar")
        .args(["-xzOf"])
        .arg(&bundle)
        .output()
        .unwrap();
    let bundle = String::from_utf8_lossy(&unpacked.stdout);
    assert!(bundle.contains("takt_server_places"), "{made:?}");
    let log = lab.server.log();
    assert!(log.contains("rule evaluation failed"), "{log}");
    for (name, text) in [("the bundle", &*bundle), ("the log", &log)] {
        let details = of_bob().chain(OF_PHYSICS);
        let details = details.filter(|word| !["bob", "biology"].contains(word));
        let shown: Vec<_> = details.filter(|word| text.contains(word)).collect();
        assert!(shown.is_empty(), "{name} has {shown:?}:\n{text}");
    }
}

/// A route about a job, user or account answers alike whether it is hidden or does not exist.
#[test]
fn every_route_answers_alike_for_the_hidden_and_the_unknown() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let listed = lab.json(ROOT, "/api/takt/v1/routes", &["--header", BEARER_ADMIN]);
    let routes = listed.as_array().unwrap().iter();
    let routes = routes.filter_map(|route| route["path"].as_str());
    let named = ["{job}", "{user}", "{account}"];
    let routes = routes.filter(|path| named.iter().any(|part| path.contains(part)));
    let questions = [
        "/api/takt/v1/job?job_id={job}",
        "/api/takt/v1/jobs?job_id={job}",
        "/api/takt/v1/jobs?user={user}",
        "/api/takt/v1/jobs?account={account}",
        "/api/takt/v1/jobs/strips?job_id={job}",
        "/api/takt/v1/search?q={job}",
        "/api/takt/v1/search?q={user}",
        "/api/takt/v1/compare?job_id={job}&job_id=7",
        "/api/takt/v1/waste?user={user}",
        "/api/takt/v1/energy?user={user}",
        "/api/takt/v1/credits?user={user}",
        "/api/takt/v1/history?job_id={job}",
        "/api/takt/v1/queue?user={user}",
        "/api/takt/v1/report/usage?month=2026-03&account={account}",
        "/api/takt/v1/report/sheets?month=2026-03&account={account}",
        "/api/takt/v1/report/sent?user={user}",
        "/api/takt/v1/fairshare?account={account}",
        "/api/takt/v1/fairshare?user={user}&explain=true",
        "/compare?job={job}&job=7",
        "/jobs?user={user}",
        "/jobs?account={account}",
        "/reports/sheet?month=2026-03&user={user}",
        "/reports/sheet?month=2026-03&account={account}",
        "/waste?user={user}",
        "/queue?user={user}",
    ];
    let hidden = ["4248817", "bob", "biology"];
    let unknown = ["4248818", "zoe", "zoology"];
    for path in routes.chain(questions) {
        let answer = |names: [&str; 3]| {
            let asked = named.iter().zip(names);
            let asked = asked.fold(path.to_owned(), |path, (part, name)| {
                path.replace(part, name)
            });
            let limit = if path.starts_with("/live") { "1" } else { "30" };
            let (status, body) = lab.curl(ALICE, &asked, &["--max-time", limit]);
            let texts = names
                .into_iter()
                .fold(body, |body, name| body.replace(name, "NAME"));
            // Pages show the time of day, and how long they took.
            let digits = texts.chars().filter(|letter| !letter.is_ascii_digit());
            (status, digits.collect::<String>())
        };
        assert_eq!(answer(hidden), answer(unknown), "{path}");
    }
}

/// All rows of all tables, over PostgreSQL's protocol, as a Unix user.
fn every_table(port: u16, uid: u32) -> String {
    let psql = |statement: &str| {
        let uid = uid.to_string();
        let output = Command::new("setpriv")
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
            .args([
                "psql",
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--dbname",
            ])
            .arg(format!("host=127.0.0.1 port={port} user=takt dbname=takt"))
            .args(["--command", statement])
            .current_dir("/")
            .output()
            .unwrap();
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
    };
    let tables = psql("SELECT DISTINCT table_name FROM information_schema.tables ORDER BY 1");
    let rows = tables
        .lines()
        .map(|table| psql(&format!("SELECT * FROM \"{table}\"")));
    rows.fold(tables.clone(), |all, rows| all + &rows)
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

/// Other processes of the server's user do not read its memory, and the kernel writes no core dump of it.
#[test]
fn the_memory_of_the_server_is_hidden() {
    if or_skip(needs()).is_none() {
        return;
    }
    let takt = Takt::fresh();
    set_mode(takt.directory(), 0o777);
    let port = free_port();
    let config = format!(
        "cluster = \"lab\"\njobs.poll = false\nsql.listen_address = \"\"\n\
         server.listen_address = \"127.0.0.1:{port}\"\n"
    );
    takt.file("takt.toml", config);
    let program = takt.readable_program();
    let of_takt = takt.command(["serve", "--config", "takt.toml"]);
    let mut command = Command::new("setpriv");
    let uid = ALICE.to_string();
    command
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
        .arg(program)
        .args(of_takt.get_args())
        .current_dir(takt.directory())
        .envs(
            of_takt
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let mut server = Daemon::start("takt", command, &takt.directory().join("takt.log"));
    let ready = format!("http://127.0.0.1:{port}/-/ready");
    server.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });

    let folder = format!("/proc/{}", server.pid());
    let limits = fs::read_to_string(format!("{folder}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{limits}");

    // The files of a process that is not dumpable are root's.
    assert_eq!(fs::metadata(format!("{folder}/mem")).unwrap().uid(), 0);

    // The server still reads its own: it counts its open files.
    let metrics = http_get(&format!("http://127.0.0.1:{port}/metrics"))
        .unwrap()
        .body;
    assert!(metrics.contains("process_open_fds"), "{metrics}");

    // It still starts statements.
    let answer = takt.run([
        "sql",
        "--config",
        "takt.toml",
        "--format",
        "csv",
        "SELECT 42 AS answer",
    ]);
    assert!(answer.stdout.contains("42"), "{answer:?}");
}

/// Texts that users and operators give to Slurm: names, comments and reasons, from a real Slurm.
#[test]
fn no_route_shows_texts_of_slurm_to_others() {
    let lab = needs()
        .and_then(|()| SlurmLab::start_with(Mode::WithDbd, "UTC", "PrivateData=jobs,usage\n"));
    let Some(lab) = or_skip(lab) else {
        return;
    };
    let coordinator = ["add", "coordinator", "account=lab-b", "names=carol"];
    lab.run(&[&["sacctmgr", "-i"], &coordinator[..]].concat());
    let texts = ["--comment", "wordcomment", "-t", "5"];
    let of_dave = |name: &str, more: &[&str]| {
        let arguments = [&["-J", name], &texts[..], more].concat();
        lab.submit("dave", &arguments, "sleep 300")
    };
    let running = of_dave("wordrunning", &[]).to_string();
    of_dave("wordheld", &["-H"]);
    lab.submit("alice", &["-J", "wordofalice", "-t", "5"], "sleep 300");
    let drain = ["state=drain", "reason=wordreason: job of dave"];
    lab.run(&[&["scontrol", "update", "nodename=node2"], &drain[..]].concat());
    let reserved = [
        "users=dave",
        "start=now",
        "duration=60",
        "nodes=node2",
        "flags=ignore_jobs",
    ];
    let named = ["create", "reservation", "reservationname=wordreserved"];
    lab.run(&[&["scontrol"], &named[..], &reserved[..]].concat());

    let takt = Takt::fresh().with_environment(lab.environment());
    set_mode(takt.directory(), 0o755);
    let port = free_port();
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"UTC\"\n[server]\nlisten_address = \"127.0.0.1:{port}\"\ntoken_file = \"token\"\n\
             read_token_file = \"read-token\"\n[sql]\nlisten_address = \"\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\nhistory_days = 1\n"
        ),
    );
    takt.file("token", "writer-writer-writer\n");
    takt.file("read-token", "reader-reader-reader\n");
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let seen = |path: &str, word: &str| {
        let (_, answer) = curl(port, ROOT, path, &["--header", BEARER_READER]);
        answer.contains(word).then_some(())
    };
    server.wait_until("polling", SOON, || {
        seen("/api/takt/v1/queue", "wordheld")
            .and(seen("/api/takt/v1/queue", "wordreserved"))
            .and(seen("/api/takt/v1/jobs", "wordrunning"))
            .and(seen("/api/takt/v1/cluster", "wordreason"))
    });

    let mut paths = paths(port);
    for asked in &mut paths {
        let path = asked
            .path
            .replace("4248817", &running)
            .replace("n1", "node2");
        asked.path = path.replace("/bob", "/dave").replace("biology", "lab-b");
    }
    let uid = |user: &str| lab.as_user(user, &["id", "-u"]).trim().parse().unwrap();
    let screen = screen(port);
    let callers: [Caller<'_>; 6] = [
        ("anonymous", ROOT, vec![]),
        ("status", ROOT, vec!["--header", &screen]),
        ("alice", uid("alice"), vec![]),
        ("carol, a coordinator", uid("carol"), vec![]),
        ("monitor, an operator", uid("monitor"), vec![]),
        (
            "a viewer of all users",
            ROOT,
            vec!["--header", BEARER_READER],
        ),
    ];
    let of_dave = ["wordrunning", "wordheld", "wordcomment", &running, "dave"];
    let mut leaks = Vec::new();
    for answers in ask(port, &paths, &callers) {
        match answers.caller {
            "anonymous" | "status" => {
                let texts = ["wordreason", "wordreserved", "wordofalice"];
                leaks.extend(answers.leaks(of_dave.into_iter().chain(texts), false));
            }
            // Slurm shows the reason of a node to everybody, and here it names dave.
            "alice" => {
                assert!(answers.has("wordreason") && answers.has("wordofalice"));
                let named = answers.leaks(of_dave, false);
                leaks.extend(
                    named
                        .into_iter()
                        .filter(|leak| !leak.contains(" sees dave ")),
                );
            }
            "carol, a coordinator" => {
                assert!(answers.has("wordrunning") && answers.has("wordheld"));
                leaks.extend(answers.leaks(["wordofalice"], false));
            }
            _ => {
                for word in ["wordrunning", "wordheld", "wordofalice", "wordreason"] {
                    assert!(answers.has(word), "{} does not see {word}", answers.caller);
                }
            }
        }
        for (asked, body) in &answers.answers {
            let name = body.replace("wordreason: job of dave", "");
            if answers.caller == "alice" && name.contains("dave") && !asked.path.contains("dave") {
                leaks.push(format!("alice sees dave at {}", asked.path));
            }
        }
    }
    assert_none(&leaks);
    server.stop();
}

/// A destination of remote write gets the labels of all users, and with the selector of docs/remote-write.md none of them.
#[test]
fn the_documented_selector_sends_no_series_of_users() {
    let receiver = Needed {
        program: "prometheus",
        package: "prometheus",
    };
    if or_skip(need(&[receiver])).is_none() {
        return;
    }
    let page = include_str!("../../docs/remote-write.md");
    let selector = page
        .lines()
        .rfind(|line| line.starts_with("select = "))
        .unwrap();
    let takt = Takt::fresh();
    let target = scrape_target(exporter);
    let [all, some] = [(), ()].map(|()| format!("127.0.0.1:{}", free_port()));
    let receivers = [("all", &all), ("some", &some)]
        .map(|(name, address)| prometheus(&takt.directory().join(name), address));
    let port = free_port();
    let config = format!(
        "cluster = \"lab\"\njobs.poll = false\nsql.listen_address = \"\"\n\
         server.listen_address = \"127.0.0.1:{port}\"\n\
         [scrape]\ninterval_seconds = 1.0\n[[scrape.targets]]\naddress = \"{target}\"\nnode = \"n1\"\n\
         [[remote_write]]\nurl = \"http://{all}/api/v1/write\"\n\
         [[remote_write]]\nurl = \"http://{some}/api/v1/write\"\n{selector}\n"
    );
    takt.file("takt.toml", config);
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let series = |address: &str| {
        let url = format!("http://{address}/api/v1/series");
        let asked = [("match[]", "{__name__=~\".+\"}")];
        Some(http_get_with(&url, &asked, &[]).ok()?.body)
    };
    let arrived = |address: &str, word: &str| series(address).filter(|body| body.contains(word));
    let everything = server.wait_until("sending", SOON, || {
        arrived(&some, "takt_gpu_utilization_ratio")
            .and(arrived(&all, "takt_gpu_utilization_ratio"))
            .filter(|_| arrived(&all, "ALERTS").is_some())
    });
    let words = [
        "bob",
        "4248817",
        "wordjobname",
        "wordprogram",
        "wordplace",
        "wordpod",
    ];
    for word in words {
        assert!(everything.contains(word), "{word}: {everything}");
    }
    thread::sleep(Duration::from_secs(6));
    let selected = series(&some).unwrap();
    for word in PLANTED.iter().map(|(word, _)| *word).chain(words) {
        assert!(!selected.contains(word), "{word}: {selected}");
    }
    drop(receivers);
}

/// An exporter with a GPU that two users share.
fn shared_gpu(path: &str) -> Page {
    if path.starts_with("/events") {
        return ("text/event-stream", String::new());
    }
    let job = |id: &str, user: &str| {
        format!("takt_gpu_job_info{{uuid=\"GPU-9\",jobid=\"{id}\",user=\"{user}\"}} 1\n")
    };
    let page = job("7", "alice")
        + &job("4248817", "bob")
        + "takt_gpu_info{uuid=\"GPU-9\",index=\"0\"} 1\n";
    ("text/plain; version=0.0.4", page)
}

const OWNER_RULES: &str = r#"
groups:
  - name: owners
    rules:
      - alert: SharedGpu
        expr: sum by (node, uuid, user) (takt_gpu_job_info{user="alice"})
        labels: {notify: user}
        annotations: {summary: "your GPU is shared"}
"#;

const OWNER_ROUTES: &str = "
route: {receiver: owners, group_wait: 0s, group_interval: 1s, group_by: [alertname, user]}
receivers:
- name: owners
  owner_configs: [{}]
  email_configs: [{to: ops@lab.example}]
";

/// A user whose job shares a GPU gets no name and number of the job beside it.
#[test]
fn a_mail_to_an_owner_names_no_job_of_others() {
    let smtp = needs().and_then(|()| Channel::smtp());
    let Some(smtp) = or_skip(smtp) else {
        return;
    };
    let target = scrape_target(shared_gpu);
    let config = format!(
        "privacy = \"private\"\n[reports]\ndomain = \"lab.example\"\n\
         [email]\nserver = \"127.0.0.1:{}\"\ntls = \"none\"\nfrom = \"takt@lab.example\"\n\
         [alerts]\nalertmanager_file = \"alertmanager.yml\"\nshipped_rules = false\nrule_dirs = [\"rules\"]\n\
         interval_seconds = 1\n\
         [scrape]\ninterval_seconds = 1.0\n[[scrape.targets]]\naddress = \"{target}\"\nnode = \"n1\"\n",
        smtp.port
    );
    let _lab = Lab::start_with(&config, |folder: &Path, command: Command| {
        fs::create_dir(folder.join("rules")).unwrap();
        fs::write(folder.join("rules/owners.rules.yml"), OWNER_RULES).unwrap();
        fs::write(folder.join("alertmanager.yml"), OWNER_ROUTES).unwrap();
        command
    });
    let mail = smtp.mails("alice@lab.example", 1).remove(0);
    assert!(
        mail.contains("alert(1)") && mail.contains("of alice"),
        "{mail}"
    );
    for word in ["bob", "4248817", "cmd()", "biology"] {
        assert!(!mail.contains(word), "{word}: {mail}");
    }
}
