//! Several servers under one view: two real servers with records of their own, and a third that
//! shows them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Daemon, free_port, http_get, http_get_with};
use crate::support::takt::Takt;
use std::array;
use std::fs;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(60);

const HEADER: &str = "JobID|JobName|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n";

/// A job of an hour in October 2026.
fn job(id: &str, user: &str, day: &str, cpus: u64, tres: &str) -> String {
    let time = |hour| format!("2026-10-{day}T{hour}:00:00");
    format!(
        "{id}|train|{user}|lab|gpu|{}|{}|{}|COMPLETED|cpu={cpus},mem=16G,node=1{tres}|1|{cpus}|n1|3600\n",
        time(10),
        time(10),
        time(11)
    )
}

/// A server with job records of its own, an exporter and one rule that fires.
struct Island {
    takt: Takt,
    at: String,
    exporter_at: String,
    server: Daemon,
    _exporter: Daemon,
    token: PathBuf,
}

impl Island {
    fn start(cluster: &str, jobs: &str) -> Self {
        let takt = Takt::fresh();
        takt.file("jobs.txt", format!("{HEADER}{jobs}"));
        let import = [
            "import",
            "sacct",
            "jobs.txt",
            "--timezone",
            "UTC",
            "--cluster",
        ];
        takt.run(import.into_iter().chain([cluster])).ok();
        let [at, exporter_at] = array::from_fn(|_| format!("127.0.0.1:{}", free_port()));
        let exporter = takt.start(["exporter", "--web.listen-address", &exporter_at]);

        // A rule that always fires, so that the sum of the alerts is known.
        fs::create_dir_all(takt.directory().join("rules")).unwrap();
        takt.file(
            "rules/one.rules.yml",
            "groups: [{name: one, interval: 1s, rules: [{alert: Always, expr: 'vector(1)'}]}]\n",
        );
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"{cluster}\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{at}\"\n\
                 [jobs]\npoll = false\n[alerts]\nshipped_rules = false\nrule_dirs = [\"rules\"]\n\
                 [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
                 [[scrape.targets]]\naddress = \"{exporter_at}\"\nnode = \"{cluster}-n1\"\n"
            ),
        );
        let server = Self::serve(&takt, &at);

        let token = [
            "token",
            "create",
            "view",
            "--role",
            "viewer",
            "--config",
            "takt.toml",
        ];
        let token = takt.run(token).ok();
        let token = takt.file("view-token", token.split_whitespace().last().unwrap());
        Self {
            takt,
            at,
            exporter_at,
            server,
            _exporter: exporter,
            token,
        }
    }

    fn serve(takt: &Takt, at: &str) -> Daemon {
        let mut server = takt.start(["serve", "--config", "takt.toml"]);
        let url = format!("http://{at}");
        server.wait_until("a node and an alert", SOON, || {
            let up = http_get_with(&format!("{url}/api/v1/query"), &[("query", "up == 1")], &[]);
            let firing = http_get(&format!("{url}/api/v1/alerts")).ok()?;
            let is_up = up.is_ok_and(|page| page.body.contains("-n1"));
            (is_up && firing.body.contains("\"firing\"")).then_some(())
        });
        server
    }

    /// Its section in the configuration of a view.
    fn section(&self, name: &str) -> String {
        format!(
            "[[view.servers]]\nname = \"{name}\"\nurl = \"http://{}\"\ntoken_file = {:?}\ntimeout_seconds = 3\n",
            self.at, self.token
        )
    }
}

/// Waits until a server answers.
fn ready(server: &mut Daemon, at: &str) {
    server.wait_until("ready", SOON, || {
        let page = http_get(&format!("http://{at}/-/ready")).ok()?;
        (page.status == 200).then_some(())
    });
}

/// The answer of `takt view --format json`, and what it warned of.
fn view(takt: &Takt, arguments: &[&str]) -> (Value, String) {
    let format = ["--format", "json", "--config", "takt.toml"];
    let run = takt.run([&["view"], arguments, &format].concat());
    let answer =
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    (answer, run.stderr)
}

/// The rows of an answer, each as `column=value` of some columns.
fn rows(answer: &Value, columns: &[&str]) -> Vec<String> {
    let names = answer["columns"].as_array().unwrap();
    let place = |column: &str| {
        names
            .iter()
            .position(|name| name == column)
            .unwrap_or_else(|| panic!("no column {column} in {names:?}"))
    };

    // By name: the columns may grow, and their order is not promised.
    let places: Vec<usize> = columns.iter().map(|column| place(column)).collect();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            places
                .iter()
                .map(|&place| text(&row[place]))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn two_servers_are_one_table_and_a_silent_one_hides_nothing() {
    // Two GPUs each; ann works on both clusters.
    let gpus = ",gres/gpu=2";
    let physics = [
        job("11", "ann", "02", 8, gpus),
        job("12", "bob", "04", 8, gpus),
    ];
    let chemistry = [
        job("11", "ann", "03", 8, gpus),
        job("7", "eve", "01", 4, ""),
    ];
    let physics = Island::start("alpha", &physics.concat());
    let mut chemistry = Island::start("beta", &chemistry.concat());

    // The third server of the view is an exporter, which answers, but not as a server does.
    let takt = Takt::fresh();
    let at = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "[server]\nlisten_address = \"{at}\"\n[jobs]\npoll = false\n[alerts]\nenabled = false\n{}{}\
             [[view.servers]]\nname = \"other\"\nurl = \"http://{}\"\n",
            physics.section("physics"),
            chemistry.section("chemistry"),
            physics.exporter_at,
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://{at}");
    ready(&mut server, &at);

    // An address that is not a server is named in every answer, and the others are shown.
    let (overview, warned) = view(&takt, &["overview"]);
    let columns = ["server", "cluster", "nodes", "nodes_up", "alerts_firing"];
    let expected = [
        "physics alpha 1 1 1",
        "chemistry beta 1 1 1",
        "sum null 2 2 2",
    ];
    assert_eq!(rows(&overview, &columns), expected);
    assert!(warned.contains("other (http://"), "{warned}");
    assert!(warned.contains("fails (HTTP 404)"), "{warned}");

    let (nodes, _) = view(&takt, &["nodes"]);
    let expected = ["physics alpha-n1 true", "chemistry beta-n1 true"];
    assert_eq!(rows(&nodes, &["server", "node", "is_up"]), expected);

    // The newest first, over all servers: the same job id is another job.
    let (jobs, _) = view(&takt, &["jobs"]);
    let columns = ["server", "job_id", "user", "submit", "gpus"];
    let expected = [
        "physics 12 bob 2026-10-04T10:00:00Z 2",
        "chemistry 11 ann 2026-10-03T10:00:00Z 2",
        "physics 11 ann 2026-10-02T10:00:00Z 2",
    ];
    assert_eq!(rows(&jobs, &columns)[..3], expected);
    assert_eq!(rows(&jobs, &columns).len(), 4);
    let (jobs, _) = view(&takt, &["jobs", "--user", "ann", "--limit", "1"]);
    assert_eq!(rows(&jobs, &["server", "job_id"]), ["chemistry 11"]);

    // Both ends of a sum: people of one cluster only, and one person of both.
    let (usage, _) = view(&takt, &["usage", "--month", "2026-10"]);
    let columns = ["server", "user", "jobs", "gpu_hours", "cpu_hours"];
    let mut found = rows(&usage, &columns);
    // Servers answer in any order.
    found.sort();
    let expected = [
        "chemistry ann 1 2.0 8.0",
        "chemistry eve 1 0.0 4.0",
        "physics ann 1 2.0 8.0",
        "physics bob 1 2.0 8.0",
        "sum ann 2 4.0 16.0",
        "sum bob 1 2.0 8.0",
        "sum eve 1 0.0 4.0",
    ];
    assert_eq!(found, expected);

    // Shares are never summed: each cluster has a tree of its own.
    let (shares, _) = view(&takt, &["fairshare", "--user", "ann"]);
    let found = rows(&shares, &["server", "cluster", "user"]);
    assert!(found.contains(&"physics alpha ann".to_owned()), "{found:?}");
    assert!(
        found.contains(&"chemistry beta ann".to_owned()),
        "{found:?}"
    );

    // Each server's own numbers are the same.
    for (island, name) in [(&physics, "physics"), (&chemistry, "chemistry")] {
        let own = [
            "report",
            "usage",
            "--month",
            "2026-10",
            "--format",
            "json",
            "--config",
            "takt.toml",
        ];
        let own: Value = serde_json::from_str(&island.takt.run(own).ok()).unwrap();
        let own: f64 = own["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["gpu_hours"].as_f64().unwrap_or(0.0))
            .sum();
        let (seen, _) = view(&takt, &["usage", "--month", "2026-10", "--only", name]);
        let seen: f64 = rows(&seen, &["gpu_hours"])
            .into_iter()
            .map(|hours| hours.parse::<f64>().unwrap_or(0.0))
            .sum();
        assert_eq!(own, seen, "{name}");
    }

    // The page, and its rows as a file.
    let page = http_get(&format!("{url}/servers?of=jobs")).unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    for part in [
        "All servers",
        "alpha",
        "beta",
        "1 of 3 servers",
        "fails (HTTP 404)",
        "2 of 3 servers",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    assert!(
        page.body
            .contains(&format!("http://{}/jobs/12", physics.at))
    );

    let csv = http_get(&format!("{url}/servers.csv?of=nodes")).unwrap();
    assert!(csv.body.contains("beta-n1"), "{}", csv.body);

    // A server without a view has no such link.
    let own = http_get(&format!("http://{}/nodes", physics.at)).unwrap();
    assert!(!own.body.contains("All servers"));

    // One server is away: it is named, the other is shown, and a killed one does not stop the view.
    chemistry.server.kill();
    let (overview, warned) = view(&takt, &["overview"]);
    assert_eq!(rows(&overview, &["server", "nodes"]), ["physics 1"]);
    assert!(warned.contains("chemistry (http://"), "{warned}");
    assert!(warned.contains("does not answer"), "{warned}");
    let page = http_get(&format!("{url}/servers")).unwrap();
    assert!(
        page.body.contains("chemistry</a> does not answer"),
        "{}",
        page.body
    );

    // Code 1: nothing answered. Code 2: the name is not in the configuration.
    let run = takt.run(["view", "--only", "chemistry", "--config", "takt.toml"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("no server answered"), "{run:?}");
    let run = takt.run(["view", "--only", "nobody", "--config", "takt.toml"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(
        run.stderr
            .contains("expected one of physics, chemistry, other"),
        "{run:?}"
    );

    // The view finds a server that is back without a restart of its own.
    chemistry.server = Island::serve(&chemistry.takt, &chemistry.at);
    let (overview, _) = view(&takt, &["overview"]);
    assert_eq!(
        rows(&overview, &["server"]),
        ["physics", "chemistry", "sum"]
    );
}

#[test]
fn a_refused_token_is_named_with_advice_and_read_again() {
    let alpha = Island::start("alpha", &job("1", "ann", "02", 8, ""));
    let mut beta = Island::start("beta", &job("2", "eve", "03", 8, ""));

    // By default, a connection of the same machine needs no token.
    beta.server.kill();
    let config = beta.takt.directory().join("takt.toml");
    let config = fs::read_to_string(config).unwrap();
    let config = config + "[auth]\nprivacy = \"private\"\n";
    beta.takt.file("takt.toml", config);
    beta.server = beta.takt.start(["serve", "--config", "takt.toml"]);
    ready(&mut beta.server, &beta.at);
    let token = fs::read_to_string(&beta.token).unwrap();
    let takt = Takt::fresh();
    let at = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "[server]\nlisten_address = \"{at}\"\n[jobs]\npoll = false\n[alerts]\nenabled = false\n{}{}",
            alpha.section("physics"),
            beta.section("chemistry"),
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://{at}");
    ready(&mut server, &at);
    let refuses = |subject: &[&str]| {
        let (answer, warned) = view(&takt, subject);
        let servers = rows(&answer, &["server"]);
        assert!(!servers.is_empty(), "{subject:?}");
        assert!(servers.iter().all(|name| name == "physics"), "{servers:?}");
        let refusal = format!(
            "chemistry (http://{}) refuses the token in {} (HTTP 401",
            beta.at,
            beta.token.display()
        );
        for part in [
            &*refusal,
            "takt token create view --role viewer",
            "token_file of [[view.servers]] \"chemistry\" in takt.toml",
        ] {
            assert!(warned.contains(part), "{part}: {warned}");
        }
        // The advice is about the one server whose token is wrong.
        assert!(!warned.contains("physics ("), "{warned}");
    };

    // A token that the server has not made.
    fs::write(&beta.token, "unknown").unwrap();
    for subject in ["overview", "nodes", "jobs", "fairshare"] {
        refuses(&[subject]);
    }
    refuses(&["usage", "--month", "2026-10"]);
    let page = http_get(&format!("{url}/servers?of=nodes")).unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    for part in [
        "1 of 2 servers without an answer",
        "chemistry</a> refuses the token in",
        "takt token create view --role viewer",
        "alpha-n1",
        "1 of 2 servers",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    assert!(!page.body.contains("beta-n1"), "{}", page.body);

    // A token that may not see jobs.
    let low = ["token", "create", "low", "--role", "status", "--config"];
    let low = beta.takt.run(low.iter().chain(&["takt.toml"])).ok();
    fs::write(&beta.token, low.split_whitespace().last().unwrap()).unwrap();
    refuses(&["jobs"]);

    // Alone, the refused server leaves nothing to show.
    let only = ["view", "jobs", "--only", "chemistry"];
    let run = takt.run(only.iter().chain(&["--config", "takt.toml"]));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("no server answered"), "{run:?}");

    // The mended file is read without a restart. The restarted server knows its node from its first
    // scrape on.
    fs::write(&beta.token, token).unwrap();
    server.wait_until("showing the nodes of both servers", SOON, || {
        let (nodes, _) = view(&takt, &["nodes"]);
        let both = ["physics alpha-n1", "chemistry beta-n1"];
        (rows(&nodes, &["server", "node"]) == both).then_some(())
    });
}

#[test]
fn a_view_without_servers_says_what_to_configure() {
    let takt = Takt::fresh();
    takt.import_sacct(format!("{HEADER}{}", job("1", "ann", "01", 1, "")));
    let run = takt.run(["view"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("[[view.servers]]"), "{run:?}");
}
