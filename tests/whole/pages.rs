//! The pages of a real server: budgets at 300 nodes, files of the same rows, errors, forms, strips over
//! a restart, and every page in a real browser.

use crate::support::npm::with_packages;
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::Takt;
use crate::support::{Skip, need_file, need_program, or_skip};
use flate2::write::GzEncoder;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// A server over the cluster of bench/pages.py.
struct Cluster {
    takt: Takt,
    server: Daemon,
    address: String,
    _exporters: Daemon,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/pages.py")
}

fn python(arguments: &[&str]) -> String {
    let run = Command::new("python3")
        .arg(script())
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    String::from_utf8(run.stdout).unwrap()
}

/// Starts exporters and a server. Two ports after the exporters' belong to the server.
fn cluster(nodes: usize, jobs: usize) -> Cluster {
    let takt = Takt::fresh();
    let exporter = free_port();
    let server_port = free_port();
    let sql = free_port();
    let count = nodes.to_string();
    let mut command = Command::new("python3");
    command
        .arg(script())
        .args(["serve", &exporter.to_string(), &count]);
    let exporters = Daemon::start(
        "exporters",
        command,
        &takt.directory().join("exporters.log"),
    );
    let config = python(&["config", &exporter.to_string(), &count]);

    // The script takes the two ports after the exporters', which another test may have.
    let config = config
        .replace(
            &format!(":{}\"\n", exporter + 1),
            &format!(":{server_port}\"\n"),
        )
        .replace(&format!(":{}\"\n", exporter + 2), &format!(":{sql}\"\n"))
        .replace(
            "interval_seconds = 15",
            "interval_seconds = 2\ntimeout_seconds = 2",
        );
    takt.file("takt.toml", config);
    takt.file("token", "secret-secret-secret");
    fs::create_dir_all(takt.data_directory()).unwrap();
    python(&["strips", takt.data_directory().to_str().unwrap(), &count]);
    if jobs > 0 {
        takt.import_sacct(python(&["jobs", &count, &jobs.to_string()]));
    }
    let address = format!("http://127.0.0.1:{server_port}");
    let server = start(&takt, &address, nodes);
    Cluster {
        takt,
        server,
        address,
        _exporters: exporters,
    }
}

fn start(takt: &Takt, address: &str, nodes: usize) -> Daemon {
    let mut server = takt.start(["serve", "--config", "takt.toml"]);

    // The exporter of the fifth node fails.
    let up = if nodes < 5 { nodes } else { nodes - 1 };
    let all_up = format!("<dt>nodes up</dt><dd><a href=\"/nodes\">{up}</a> <small>of {nodes}");
    server.wait_until("showing all nodes", SOON, || {
        http_get(&format!("{address}/"))
            .ok()?
            .body
            .contains(&all_up)
            .then_some(())
    });
    server
}

#[test]
fn three_hundred_nodes_of_eight_gpus_fit_on_the_overview() {
    let mut cluster = cluster(300, 2_000);
    let get = |path: &str| {
        http_get(&format!("{}{path}", cluster.address))
            .unwrap()
            .body
    };
    let page = get("/");

    // An element begins with `<` and a letter.
    let elements = page
        .as_bytes()
        .windows(2)
        .filter(|pair| pair[0] == b'<' && pair[1].is_ascii_alphabetic())
        .count();
    assert!(elements <= 2_500, "{elements} elements");
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
    io::Write::write_all(&mut gzip, page.as_bytes()).unwrap();
    let wire = gzip.finish().unwrap().len();
    assert!(wire <= 60_000, "{wire} bytes");

    // Lost GPUs come first, before nodes that do not answer.
    let troubles = &page[page.find("Needs a look").expect("three GPUs are lost")..];
    let place = |text: &str| troubles.find(text).unwrap_or_else(|| panic!("no '{text}'"));
    assert!(place("<b class=\"mark bad\">lost</b>") < place("does not answer"));
    assert!(page.contains("held and idle") && page.contains("class=\"w\""));

    // A file has the rows of the page.
    let json: Vec<Value> = serde_json::from_str(&get("/nodes.json?sort=-idle")).unwrap();
    assert_eq!(json.len(), 300);
    let idle: Vec<u64> = json
        .iter()
        .map(|row| row["idle"].as_u64().unwrap())
        .collect();
    assert!(idle.is_sorted_by(|a, b| a >= b) && idle[0] > 0, "{idle:?}");
    let csv = get("/nodes.csv?state=does+not");
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.contains("g005,does not answer"), "{csv}");

    // The answer of the API has the same numbers.
    let answer: Value = serde_json::from_str(&get("/api/takt/v1/cluster")).unwrap();
    let free = takt_model::words::count(answer["gpus"]["free"].as_u64().unwrap());
    assert!(page.contains(&format!("<b>{free}</b> free")), "{free}");
    assert_eq!(answer["gpus"]["all"], 299 * 8);

    // The strips survive a restart, and a browser that follows the page does not delay it.
    let strips = || -> Value {
        let text = get("/api/takt/v1/strips?hours=24&steps=24&node=g009");
        serde_json::from_str(&text).unwrap()
    };
    let before = strips();
    assert_eq!(before["rows"].as_array().unwrap().len(), 8);
    let steps = before["rows"][0]["steps"].as_array().unwrap();
    assert!(steps[..20].iter().all(|step| !step.is_null()), "{steps:?}");
    let follower = Command::new("curl")
        .args(["-sN", &format!("{}/live/", cluster.address)])
        .stdout(Stdio::null())
        .spawn();
    // The browser follows the page before the server is stopped.
    thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    assert!(cluster.server.stop().success());
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    if let Ok(mut follower) = follower {
        let _ = follower.kill();
        let _ = follower.wait();
    }
    cluster.server = start(&cluster.takt, &cluster.address, 300);
    assert_eq!(
        strips()["rows"][0]["steps"][3],
        before["rows"][0]["steps"][3]
    );
}

#[test]
fn errors_say_what_is_wrong_and_forms_need_the_token() {
    let cluster = cluster(3, 0);
    let get = |path: &str| http_get(&format!("{}{path}", cluster.address)).unwrap();
    for (path, status, text) in [
        ("/nope", 404, "Takt has no page /nope."),
        ("/nodes/g999", 404, "No node g999"),
        ("/nodes/%3Cscript%3E", 404, "No node &lt;script&gt;"),
        ("/gpus/GPU-1", 404, "No GPU GPU-1"),
        ("/nodes?sort=nope", 400, "no column &#39;nope&#39;"),
        ("/nodes?nope=1", 400, "no filter &#39;nope&#39;"),
        (
            "/nodes?state=foo",
            400,
            "Nodes have no state &#39;foo&#39;.",
        ),
        ("/jobs?state=foo", 400, "jobs have no state &#39;FOO&#39;"),
        ("/jobs?limit=abc", 400, "limit=abc: expected a whole number"),
        (
            "/jobs.csv?limit=abc",
            400,
            "limit=abc: expected a whole number",
        ),
        ("/gpus", 200, "<h1>Nodes</h1>"),
        ("/events?from=nonsense", 400, "from=nonsense is not a time"),
        (
            "/events?from=2026-02-02&amp;to=2026-02-01",
            400,
            "no filter",
        ),
        (
            "/events?from=2026-02-02&to=2026-02-01",
            404,
            "ends before it begins",
        ),
        ("/?range=30d", 400, "last 6h, 24h or 7d"),
        ("/sql?q=DROP+TABLE+jobs", 200, "refused"),
        ("/events.svg", 404, "Takt has no page /events.svg."),
    ] {
        let page = get(path);
        assert_eq!(page.status, status, "{path}: {}", page.body);
        assert!(
            page.body.contains(text),
            "{path}: no '{text}' in {}",
            page.body
        );
        assert!(!page.body.contains("<script>"), "{path}");
    }
    assert_eq!(get("/api/nope").body, "");
    let svg = get("/nodes/g001.svg");
    assert!(
        svg.body.starts_with("<svg") && svg.body.contains("xmlns"),
        "{}",
        svg.body
    );

    // Every recipe of the SQL page runs.
    let page = get("/sql").body;
    let recipes: Vec<&str> = page
        .split("href=\"/sql?q=")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(recipes.len() >= 5, "{page}");
    for recipe in recipes {
        let answer = get(&format!("/sql?q={recipe}"));
        assert!(
            !answer.body.contains("role=\"alert\""),
            "{recipe}: {}",
            answer.body
        );
    }

    // A silence by form: refused without the token, then on the page, then ended.
    let post = |form: &str, token: bool| {
        let mut command = Command::new("curl");
        command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", form]);
        if token {
            command.args(["-u", "admin:secret-secret-secret"]);
        }
        let run = command
            .arg(format!("{}/alerts", cluster.address))
            .output()
            .unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    let silence = "do=silence&matchers=node%3Dg001&by=ada&comment=new+%3Cfans%3E&for=2h";
    assert_eq!(post(silence, false), "401");
    assert_eq!(post(&silence.replace("2h", "never"), true), "400");
    assert_eq!(post(silence, true), "303");
    let page = get("/alerts").body;
    assert!(page.contains("new &lt;fans&gt;"), "{page}");
    assert!(
        !page.contains("name=\"id\""),
        "who may not end it has no form: {page}"
    );

    let run = Command::new("curl")
        .args(["-s", "-u", "admin:secret-secret-secret"])
        .arg(format!("{}/alerts", cluster.address))
        .output()
        .unwrap();
    let page = String::from_utf8(run.stdout).unwrap();
    let (_, rest) = page.split_once("name=\"id\" value=\"").unwrap();
    let id = rest.split_once('"').unwrap().0;
    assert_eq!(post(&format!("do=expire&id={id}"), true), "303");
    assert!(!get("/alerts").body.contains("new &lt;fans&gt;"));

    // An unchanged page is not sent again.
    let head = |headers: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-s", "-D", "-", "-o", "/dev/null"]);
        command.args(headers.iter().flat_map(|header| ["-H", header]));
        let run = command
            .arg(format!("{}/alerts/rules", cluster.address))
            .output()
            .unwrap();
        String::from_utf8(run.stdout).unwrap().to_lowercase()
    };
    let first = head(&["Accept-Encoding: gzip"]);
    assert!(first.contains("content-encoding: gzip"), "{first}");
    let (_, rest) = first.split_once("etag: ").unwrap();
    let known = format!("If-None-Match: {}", rest.lines().next().unwrap());

    // The clock of the page changes once a minute.
    let second = head(&[&known]);
    assert!(
        second.starts_with("http/1.1 304") || !second.contains(rest.lines().next().unwrap()),
        "{second}"
    );
}

/// The folder of the browser test with its packages installed.
pub(crate) fn browser() -> Result<PathBuf, Skip> {
    need_program("python3")?;
    need_file("/usr/bin/chromium", "chromium")?;
    with_packages("browser")
}

fn every_page_passes_in_a_browser(nodes: usize) {
    let Some(folder) = or_skip(browser()) else {
        return;
    };
    let cluster = cluster(nodes, 500);
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let run = Command::new("node")
        .arg(folder.join("pages.mjs"))
        .arg(&cluster.address)
        .arg(&screenshots)
        .arg(format!("{nodes}-nodes"))
        .output()
        .unwrap();
    let said = [&run.stdout[..], &run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        run.status.success(),
        "{said}\nscreenshots: {}",
        screenshots.display()
    );
}

#[test]
fn every_page_of_three_nodes_passes_in_a_browser() {
    every_page_passes_in_a_browser(3);
}

#[test]
#[ignore = "takes minutes: make exam"]
fn every_page_of_three_hundred_nodes_passes_in_a_browser() {
    every_page_passes_in_a_browser(300);
}
