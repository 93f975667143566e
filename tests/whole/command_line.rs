//! The command line as people use it: in a terminal of 80 columns, through pipes, in the cluster's
//! time zone, with and without a server.

use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::takt::{Run, Takt};
use crate::support::{Needed, find_program, need, need_root, or_skip};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{self, Stdio};
use std::time::Duration;

const HEADER: &str = "JobID|JobName|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw";

/// A finished job of October 1, 2026, at 10:00 in UTC.
fn row(id: usize, user: &str) -> String {
    format!(
        "{id}|pretraining-of-a-large-language-model|{user}|physics-department|gpu-a100|2026-10-01T10:00:00|\
         2026-10-01T10:01:00|2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|\
         gpu-node-[001-004]|7200"
    )
}

/// A cluster in Oslo with `jobs` jobs of alice and one of bob.
fn with_jobs(jobs: usize) -> Takt {
    let takt = Takt::fresh();
    takt.file(
        "takt.toml",
        "cluster = \"lab\"\ntimezone = \"Europe/Oslo\"\n[jobs]\npoll = false\n",
    );
    let rows: Vec<String> = (1..=jobs).map(|id| row(id, "alice")).collect();
    takt.file(
        "jobs.txt",
        format!("{HEADER}\n{}\n{}\n", rows.join("\n"), row(jobs + 1, "bob")),
    );
    let import = [
        "--config",
        "takt.toml",
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "UTC",
    ];
    takt.run(import).ok();
    takt
}

fn serve(takt: &Takt) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = takt.start([
        "serve",
        "--config",
        "takt.toml",
        "--listen-address",
        &address,
    ]);
    let health = format!("http://{address}/-/healthy");
    server.wait_until("healthy", Duration::from_secs(60), || {
        http_get(&health).ok().filter(|page| page.status == 200)
    });
    (server, address)
}

/// Returns the lines that a command shows in a terminal of 80 columns.
fn in_terminal(takt: &Takt, arguments: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_takt");
    let shown = format!("stty cols 80 rows 24; exec {program} {arguments}");
    let environment = takt.command(["x"]);
    let mut command = process::Command::new("script");
    command
        .args(["-qec", &shown, "/dev/null"])
        .current_dir(takt.directory());
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn tables_fit_a_terminal_of_eighty_columns_and_name_the_job() {
    if or_skip(need(&[Needed {
        program: "script",
        package: "bsdutils",
    }]))
    .is_none()
    {
        return;
    }
    let takt = with_jobs(3);
    for arguments in [
        "jobs",
        "report usage --month 2026-10",
        "report usage --month 2026-10 --by user,account,partition,qos",
        "report cluster --month 2026-10",
        "capacity --month 2026-10",
        "credit list",
        "records imports",
        "store stat",
        "query 'vector(1)'",
        "sql 'SELECT * FROM jobs'",
        "sql 'SELECT job_id, job_name, account, node_list, state FROM jobs'",
    ] {
        let lines = in_terminal(&takt, arguments);
        let rows: Vec<&String> = lines
            .iter()
            .filter(|line| line.starts_with(' ') && !line.starts_with("    "))
            .collect();
        assert!(!rows.is_empty(), "{arguments}: {lines:?}");
        for line in rows {
            assert!(line.chars().count() <= 80, "{arguments}: {line}");
        }
    }
    let text = in_terminal(&takt, "jobs").join("\n");
    assert!(
        text.contains("NAME") && text.contains("pretraining"),
        "{text}"
    );
    assert!(text.contains("Not shown: account"), "{text}");

    // A pipe has no width: scripts get every column.
    let piped = takt.run(["jobs"]).ok();
    assert!(
        piped.contains("physics-department") && piped.contains("SUBMIT"),
        "{piped}"
    );
}

/// 13: `takt jobs` stopped at 50 rows without a word.
#[test]
fn a_listing_that_leaves_out_rows_says_so() {
    let takt = with_jobs(60);
    let asked = |more: &[&str]| {
        let run = takt.run(
            ["--config", "takt.toml", "jobs", "--format", "csv"]
                .iter()
                .chain(more),
        );
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        (run.stdout.lines().count() - 1, run.stderr)
    };
    let (rows, said) = asked(&[]);
    assert_eq!(rows, 50);
    assert!(
        said.contains("newest 50") && said.contains("--limit"),
        "{said}"
    );
    for all in [&["--limit", "61"][..], &["--user", "bob"]] {
        let (_, said) = asked(all);
        assert!(!said.contains("--limit"), "{said}");
    }
    assert_eq!(asked(&["--limit", "61"]).0, 61);
}

#[test]
fn times_are_in_the_clusters_time_zone_with_and_without_a_server() {
    let takt = with_jobs(1);
    let config = ["--config", "takt.toml"];
    let asked = |arguments: &[&str]| takt.run(config.iter().chain(arguments)).ok();
    let answers = || {
        [
            asked(&["jobs", "--format", "csv"]),
            asked(&["jobs"]),
            asked(&["records", "imports", "--format", "csv"]),
        ]
    };
    let from_files = answers();
    assert!(
        from_files[0].contains(",2026-10-01T12:01:00+02:00,"),
        "{}",
        from_files[0]
    );
    assert!(
        from_files[1].contains(" 2026-10-01 12:01:00 "),
        "{}",
        from_files[1]
    );
    let (mut server, _) = serve(&takt);

    // The command asks the server, so its own configuration does not matter.
    assert_eq!(takt.run(["jobs", "--format", "csv"]).ok(), from_files[0]);
    assert_eq!(answers(), from_files);
    server.stop();

    let month = |zone: &str| {
        let arguments = ["report", "usage", "--month", "2026-10", "--format", "json"];
        let text = asked(&[&arguments[..], &["--timezone", zone]].concat());
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["from"].clone()
    };
    assert_eq!(month("Asia/Tokyo"), "2026-10-01T00:00:00+09:00");
    assert_eq!(month("Europe/Oslo"), "2026-10-01T00:00:00+02:00");
    let sheet = asked(&[
        "report",
        "cluster",
        "--month",
        "2026-10",
        "--timezone",
        "Asia/Tokyo",
        "--format",
        "json",
    ]);
    assert!(sheet.contains("2026-10-01T00:00:00+09:00"), "{sheet}");
    let wrong = takt
        .run(["report", "usage", "--timezone", "Mars/Base"])
        .fails(2);
    assert!(wrong.contains("Mars/Base"), "{wrong}");
}

#[test]
fn me_is_the_user_who_runs_the_command() {
    let takt = with_jobs(2);
    let asked = |arguments: &[&str]| {
        let mut command = takt.command(arguments);
        Run::of(&command.env("SUDO_USER", "bob").output().unwrap()).ok()
    };
    let jobs = asked(&["jobs", "--me", "--format", "csv"]);
    assert!(
        jobs.lines().count() == 2 && jobs.contains("3,bob,"),
        "{jobs}"
    );
    let month = ["--month", "2026-10", "--format", "csv"];
    let usage = asked(&[&["report", "usage", "--me"][..], &month].concat());
    assert!(
        usage.lines().count() == 2 && usage.contains("\nbob,"),
        "{usage}"
    );
    for listing in [
        &["report", "user", "--me", "--month", "2026-10"][..],
        &["report", "waste", "--me", "--month", "2026-10"],
        &["credit", "list", "--me"],
        &["gpus", "--me"],
    ] {
        let text = asked(listing);
        assert!(!text.contains("alice"), "{listing:?}: {text}");
    }
    let both = takt.run(["jobs", "--me", "--user", "alice"]).fails(2);
    assert!(both.contains("cannot be used with"), "{both}");
    let plan = takt.run(["fairshare", "--explain"]).fails(2);
    assert!(plan.contains("--user") && plan.contains("--me"), "{plan}");
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let takt = with_jobs(3000);
    for format in ["table", "csv", "json"] {
        let mut child = takt
            .command(["jobs", "--limit", "3000", "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{format}");
        assert_eq!(said.as_ref(), "", "{format}");
    }
}

/// The server refuses before it has read the file, and closes the connection.
#[test]
fn a_refused_upload_says_why() {
    let takt = with_jobs(1);
    let (mut server, address) = serve(&takt);
    let rows: Vec<String> = (10..60_000).map(|id| row(id, "alice")).collect();
    takt.file("large.txt", format!("{HEADER}\n{}\n", rows.join("\n")));
    let url = format!("http://{address}");
    let refused = takt.run([
        "import",
        "sacct",
        "large.txt",
        "--timezone",
        "UTC",
        "--server",
        &url,
    ]);
    let said = refused.fails(1);
    assert!(
        said.contains("token") && said.contains("--token-file"),
        "{said}"
    );
    assert!(!said.to_lowercase().contains("broken pipe"), "{said}");
    server.stop();
    assert_eq!(
        takt.run(["jobs", "--format", "csv"]).ok().lines().count(),
        3
    );
}

#[test]
fn takt_alone_shows_the_server_or_how_to_start_one() {
    let nowhere = Takt::fresh();
    let text = nowhere.run::<&str>([]).ok();
    assert!(
        text.contains("No server runs here") && text.contains("takt up"),
        "{text}"
    );
    assert!(
        !nowhere.data_directory().exists(),
        "reading creates no store"
    );

    let takt = with_jobs(2);
    let (mut server, address) = serve(&takt);
    let text = takt.run::<&str>([]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(
        lines[0].contains("monitors lab") && lines[0].contains(&address),
        "{text}"
    );
    assert!(lines[3].contains("0 running, 0 pending"), "{text}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    server.stop();
}

/// slurmrestd has never answered: nobody may take "nothing" for an idle cluster.
#[test]
fn a_slurm_that_was_never_read_is_no_idle_cluster() {
    let takt = Takt::fresh();
    takt.file("token", "secret");
    let api_token = takt.file("api-token", "writer-writer-writer\n");
    fs::set_permissions(api_token, PermissionsExt::from_mode(0o600)).unwrap();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\ntoken_file = \"api-token\"\n\
             [jobs.slurmrestd]\nurl = \"http://127.0.0.1:{}\"\nuser = \"monitor\"\ntoken_file = \"token\"\n",
            free_port()
        ),
    );
    let (mut server, address) = serve(&takt);
    let unread = "Job records may be old or not complete: ";
    let banner = wait_for("the banner", Duration::from_secs(60), || {
        // Slurm did not say its PrivateData: without a token, nobody sees jobs.
        let url = format!("http://{address}/queue");
        assert!(!http_get(&url).ok()?.body.contains("No scheduler has named"));
        let bearer = [("Authorization", "Bearer writer-writer-writer")];
        let page = http_get_with(&url, &[], &bearer).ok()?;
        page.body.contains(unread).then_some(page.body)
    });
    assert!(
        banner.contains("No scheduler has named a job or a node"),
        "{banner}"
    );
    assert!(!banner.contains("Nothing waits"), "{banner}");

    let overview = takt.run::<&str>([]).ok();
    assert!(overview.contains("jobs    none known: "), "{overview}");
    assert!(overview.contains(unread), "{overview}");
    for command in ["jobs", "report usage", "report cluster"] {
        let run = takt.run(command.split(' '));
        assert!(run.stderr.contains(unread), "{command}: {}", run.stderr);
    }
    server.stop();
}

/// Slurm requeued a job after its node had failed: two runs of one id.
#[test]
fn each_run_of_a_requeued_job_can_be_opened() {
    let takt = Takt::fresh();
    takt.file(
        "takt.toml",
        "cluster = \"lab\"\ntimezone = \"UTC\"\n[jobs]\npoll = false\n",
    );
    let lost = row(7, "alice").replace("COMPLETED", "NODE_FAIL");
    let again = "7|retry|alice|physics|gpu|2026-10-01T12:30:00|Unknown|Unknown|PENDING|billing=4,cpu=4,gres/gpu=1,mem=16G,node=1|1|4||0";
    takt.file("jobs.txt", format!("{HEADER}\n{lost}\n{again}\n"));
    takt.run([
        "--config",
        "takt.toml",
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "UTC",
    ])
    .ok();
    let (mut server, address) = serve(&takt);
    let page = |path: &str| http_get(&format!("http://{address}{path}")).unwrap();

    assert!(page("/jobs/7").body.contains("pending"));
    let list = page("/jobs").body;
    let (_, link) = list
        .split_once("href=\"/jobs/7?submit=")
        .expect("a link to the run that ended");
    let submit = &link[..link.find('"').unwrap()];
    let opened = page(&format!("/jobs/7?submit={submit}"));
    assert!(opened.body.contains("node fail"), "{}", opened.body);

    let jobs: serde_json::Value =
        serde_json::from_str(&takt.run(["jobs", "--format", "json"]).ok()).unwrap();
    let submitted = jobs
        .as_array()
        .unwrap()
        .iter()
        .find(|job| job["state"] == "NODE_FAIL")
        .unwrap()["submit"]
        .to_string();
    let shown = takt.run(["job", "7", "--submit", &submitted]).ok();
    assert!(shown.contains("NODE_FAIL"), "{shown}");
    let unknown = takt.run(["job", "7", "--submit", "2026-10-03"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("its runs: 2026-10-"),
        "{}",
        unknown.stderr
    );
    server.stop();
}

#[test]
fn a_reload_with_a_mistake_fails_visibly() {
    let takt = with_jobs(1);
    let (mut server, _) = serve(&takt);
    assert!(takt.run(["reload"]).ok().starts_with("reloaded"));
    let good = fs::read_to_string(takt.directory().join("takt.toml")).unwrap();
    takt.file(
        "takt.toml",
        format!("{good}[scrape]\ninterval_seconds = \"often\"\n"),
    );
    let said = takt.run(["reload"]).fails(1);
    for part in [
        "takt.toml, line 6",
        "interval_seconds",
        "expected a number",
        "keeping the previous",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    takt.file("takt.toml", good);
    takt.run(["reload"]).ok();
    server.stop();
    assert!(takt.run(["reload"]).fails(1).contains("no server runs"));
}

/// A typing mistake stopped every command of root, although the server ran with what it had read.
#[test]
fn a_mistake_in_the_file_stops_no_question_to_the_running_server() {
    let takt = with_jobs(1);
    let good = fs::read_to_string(takt.directory().join("takt.toml")).unwrap();
    let (mut server, address) = serve(&takt);
    takt.file("takt.toml", format!("timezome = \"UTC\"\n{good}"));
    for question in [&["jobs"][..], &["alerts", "list"], &["sql", "SELECT 1"]] {
        let asked = [question, &["--config", "takt.toml"]].concat();
        let run = takt.run(asked);
        assert!(
            run.stderr.contains("line 1: unknown key timezome")
                && run.stderr.contains("the running server is asked"),
            "{}",
            run.stderr
        );
        run.ok();
    }

    // The server's own address is another one than the file's.
    assert!(!good.contains(&address));
    let said = takt.run(["check-config", "--config", "takt.toml"]).fails(2);
    assert!(said.contains("did you mean timezone?"), "{said}");
    server.stop();
    let said = takt.run(["jobs", "--config", "takt.toml"]).fails(2);
    assert!(said.contains("line 1: unknown key timezome"), "{said}");
}

/// Both said that no server runs, although it held the data directory.
#[test]
fn takt_and_doctor_name_the_server_that_runs_and_the_mistake() {
    let takt = with_jobs(1);
    let config = "cluster = \"lab\"\ndata_dir = \"takt-data\"\n[jobs]\npoll = false\n\
                  [sql]\nlisten_address = \"\"\n";
    takt.file("takt.toml", config);
    let (mut server, address) = serve(&takt);
    takt.file(
        "takt.toml",
        format!("timezome = \"UTC\"\n{config}[scrape]\ninterval_seconds = \"often\"\n"),
    );

    // Elsewhere, only the file leads to the server.
    let elsewhere = takt.directory().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let asked = |arguments: &[&str]| {
        let named = [arguments, &["--config", "../takt.toml"]].concat();
        let mut command = takt.command(named);
        let run = command.current_dir(&elsewhere).output().unwrap();
        assert_eq!(run.status.code(), Some(2));
        let said = [run.stdout, run.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        for mistake in ["line 1: unknown key timezome", "line 9: interval_seconds: "] {
            assert!(said.contains(mistake), "{mistake}: {said}");
        }
        said
    };

    for command in [&[][..], &["doctor"]] {
        let said = asked(command);
        let runs = format!("The server runs ({address}, pid ");
        assert!(said.contains(&runs), "{said}");
        assert!(said.contains("with its previous configuration"), "{said}");
    }
    assert!(asked(&[]).contains("monitors lab"));
    server.stop();
    for command in [&[][..], &["doctor"]] {
        let said = asked(command);
        assert!(
            said.contains("No server runs on ") && said.contains("takt-data"),
            "{said}"
        );
    }
}

/// An address that no scrape can use was dropped in silence.
#[test]
fn a_static_target_that_can_never_be_scraped_stops_no_other() {
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "prometheus.yml",
        "scrape_configs:\n- job_name: b\n  static_configs:\n  - targets: ['']\n",
    );
    let config = format!(
        "cluster = \"lab\"\njobs.poll = false\nserver.listen_address = \"{address}\"\n\
         sql.listen_address = \"\"\n[scrape]\nprometheus_config = \"prometheus.yml\"\n\
         [[scrape.configs]]\njob_name = \"a\"\n\
         static_configs = [{{ targets = [\"{address}\", \"g02:70000\"] }}]\n"
    );
    let channel = "[alerts]\nslack_webhook_file = \"nope\"\n";
    takt.file("takt.toml", format!("{config}{channel}"));
    let said = takt.run(["check-config", "--config", "takt.toml"]).fails(2);
    for mistake in [
        "takt.toml, line 11: alerts.slack_webhook_file: ",
        "takt.toml, line 9: scrape: configs[0].static_configs[0].targets[1]: __address__: expected \
         host:port with a port from 1 to 65535",
        "found \"g02:70000\"",
        "takt.toml, line 6: scrape: prometheus_config: prometheus.yml: scrape_configs[0].",
    ] {
        assert!(said.contains(mistake), "{mistake}: {said}");
    }

    takt.file("takt.toml", config);
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let targets = server.wait_until("the good target", Duration::from_secs(60), || {
        let page = http_get(&format!("http://{address}/api/v1/targets")).ok()?;
        page.body.contains("\"health\":\"up\"").then_some(page.body)
    });
    let (_, dropped) = targets.split_once("\"droppedTargets\"").unwrap();
    assert!(dropped.contains("g02:70000"), "{targets}");
    assert!(server.log().contains("g02:70000"), "{}", server.log());
    let doctor = takt.run(["doctor", "--only", "config"]).stdout;
    assert!(doctor.contains("g02:70000"), "{doctor}");
    server.stop();
}

#[test]
fn a_node_that_is_not_known_is_an_error() {
    let takt = with_jobs(1);
    let said = takt.run(["gpus", "--node", "nope"]).fails(2);
    assert!(said.contains("--node: no node nope is known"), "{said}");
}

#[test]
fn a_configuration_that_names_what_is_absent_is_not_good() {
    let takt = Takt::fresh();
    let said = |text: &str| {
        takt.file("takt.toml", text);
        takt.run(["check-config", "--config", "takt.toml"])
    };
    let run = said("auth.admins = ['no-such-user', 'root']\n");
    assert_eq!(
        run.stderr,
        "auth.admins: this machine knows no user no-such-user\n"
    );
    run.ok();
    let wrong = said("[jobs]\nslurm_bin = '/nonexistent'\n").fails(2);
    assert!(
        wrong.contains("line 2: jobs.slurm_bin: expected the folder of sacct"),
        "{wrong}"
    );

    // A running server says so too.
    let (mut server, _) = serve(&takt);
    assert!(server.log().contains("jobs.slurm_bin: expected the folder"));
    let asked = ["doctor", "--only", "config", "--format", "json"];
    let run = takt.run(asked);
    assert!(
        run.stdout.contains("\"config.names\"") && run.stdout.contains("no scontrol in"),
        "{}",
        run.stdout
    );
    server.stop();
}

/// `takt up` created its data directory for everyone to read, then asked for other permissions.
#[test]
fn the_data_directory_of_up_is_private() {
    let takt = Takt::fresh();
    let any = "127.0.0.1:0";
    let mut up = takt.start(["up", "--web.listen-address", any, "--listen-address", any]);
    let data = takt.directory().join("takt-data");
    up.wait_until("storing", Duration::from_secs(60), || {
        data.join("records.duckdb").exists().then_some(())
    });
    let mode = data.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

/// A channel that a reload added was missing for `takt doctor` until the server started again.
#[test]
fn doctor_follows_a_reload() {
    let takt = with_jobs(1);
    let (_server, _) = serve(&takt);
    let doctor = || takt.run(["doctor", "--only", "messages.channels"]).stdout;
    assert!(
        doctor().contains("no channel is configured"),
        "{}",
        doctor()
    );
    let config = fs::read_to_string(takt.directory().join("takt.toml")).unwrap();
    let channel = "[alerts]\nwebhook_url = \"http://127.0.0.1:9/x\"\n";
    takt.file("takt.toml", format!("{config}{channel}"));
    takt.run(["reload"]).ok();
    assert!(!doctor().contains("no channel"), "{}", doctor());
}

#[test]
fn root_checks_secrets_as_the_services_user() {
    if or_skip(need_root()).is_none() {
        return;
    }
    let takt = with_jobs(1);
    let webhook = takt.file(
        "slack-webhook",
        "https://hooks.slack.example/services/T/B/s\n",
    );
    takt.file(
        "takt.toml",
        "cluster = \"lab\"\n[alerts]\nslack_webhook_file = \"slack-webhook\"\n",
    );
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(takt.directory(), 0o755);
    mode(&webhook, 0o600);
    let check = || takt.run(["check-config", "--config", "takt.toml"]);
    check().ok();

    // The data of the installed server belongs to its user.
    const NOBODY: u32 = 65534;
    chown(takt.data_directory(), Some(NOBODY), None).unwrap();
    let said = check().fails(2);
    assert!(
        said.contains("the user nobody cannot read") && said.contains("chmod 640"),
        "{said}"
    );
    mode(&webhook, 0o604);
    check().ok();
    chown(takt.data_directory(), Some(0), None).unwrap();
}

#[test]
fn completions_and_man_pages() {
    let takt = Takt::fresh();
    for (shell, part) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef takt"),
        ("fish", "complete -c takt"),
    ] {
        let script = takt.run(["completions", shell]).ok();
        assert!(
            script.contains(part) && script.contains("fairshare"),
            "{shell}: {script}"
        );
        let exporter = takt
            .run(["completions", shell, "--program", "takt-exporter"])
            .ok();
        assert!(
            exporter.contains("web.listen-address"),
            "{shell}: {exporter}"
        );
        let path = takt.file("script", script);
        if let Some(program) = find_program(shell) {
            let checked = process::Command::new(program).arg("-n").arg(path).status();
            assert!(checked.unwrap().success(), "{shell}");
        }
    }
    takt.run(["man", "pages"]).ok();
    let page = takt.directory().join("pages/takt-report-usage.1");
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .contains("takt\\-report\\-usage")
    );
}

#[test]
fn a_report_as_pdf_needs_chromium() {
    let takt = with_jobs(5);
    let report = ["report", "usage", "--month", "2026-10", "--format", "pdf"];
    let mut command = takt.command(report);
    let without = Run::of(&command.env("PATH", "/nowhere").output().unwrap()).fails(1);
    assert!(
        without.contains("Chromium") && without.contains("--format html"),
        "{without}"
    );
    if or_skip(need(&[Needed {
        program: "chromium",
        package: "chromium",
    }]))
    .is_none()
    {
        return;
    }
    let output = takt.command(report).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stdout.starts_with(b"%PDF-"),
        "{} bytes",
        output.stdout.len()
    );
}
