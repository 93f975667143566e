//! Finding the data: from a login node, as another user, without options, and without a store.

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::{Run, Takt};
use crate::support::{Skip, need_program, need_root, or_skip};
use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The address of this machine in its network. A request to it does not come from the loopback
/// address.
fn outer_address() -> Result<Ipv4Addr, Skip> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();

    // This sends nothing: it only asks the kernel for the route.
    let found = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    match found.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() => Ok(address),
        _ => Err(Skip("needs an address besides the loopback's".to_owned())),
    }
}

/// Starts a server with jobs that listens on all addresses and has both tokens.
fn serve(takt: &Takt) -> (Daemon, u16) {
    let port = free_port();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[jobs]\npoll = false\n[sql]\nlisten_address = \
             \"\"\n\
             [server]\nlisten_address = \"0.0.0.0:{port}\"\ntoken_file = \
             \"token\"\nread_token_file = \"read-token\"\n"
        ),
    );
    takt.file("token", "writer-writer-writer\n");
    takt.file("read-token", "reader-reader-reader\n");
    takt.file(
        "jobs.txt",
        "JobID|User|Account|Submit|Start|End|State|AllocTRES|NCPUS\n\
         7|alice|physics|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|COMPLETED|cpu=4|4\n",
    );
    takt.run(["import", "sacct", "jobs.txt", "--config", "takt.toml"])
        .ok();
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let page = format!("http://127.0.0.1:{port}/-/ready");
    server.wait_until("ready", Duration::from_secs(60), || {
        http_get(&page).ok().filter(|page| page.status == 200)
    });
    (server, port)
}

/// Runs a command in an empty directory, without environment variables. It must create no file.
fn ask(takt: &Takt, arguments: &[&str]) -> Run {
    let elsewhere = takt.directory().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let mut command = takt.command(arguments);
    command.env_remove("TAKT_DATA_DIR").current_dir(&elsewhere);
    let run = Run::of(&command.output().unwrap());
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "asking left files behind"
    );
    run
}

#[test]
fn local_reads_need_no_token_and_writes_do() {
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    let url = format!("http://127.0.0.1:{port}/");
    let usage = [
        "report", "usage", "--month", "2026-03", "--by", "user", "--format", "csv", "--server",
        &url,
    ];
    assert!(ask(&takt, &usage).ok().contains("alice"));
    assert!(
        ask(&takt, &["jobs", "--user", "alice", "--server", &url])
            .ok()
            .contains("physics")
    );
    assert!(
        ask(
            &takt,
            &["sql", "SELECT count(*) AS runs FROM jobs", "--server", &url]
        )
        .ok()
        .contains('1')
    );
    ask(&takt, &["query", "vector(1)", "--server", &url]).ok();
    ask(&takt, &["alerts", "list", "--server", &url]).ok();
    let said = ask(&takt, &["store", "seal", "--server", &url]).fails(1);
    assert!(
        said.contains("needs a token") && said.contains("--token-file"),
        "{said}"
    );
}

#[test]
fn remote_requests_need_a_read_or_write_token() {
    let Some(address) = or_skip(outer_address()) else {
        return;
    };
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    let url = format!("http://{address}:{port}");
    let file = |name: &str| takt.directory().join(name).display().to_string();
    let reader = file("read-token");
    let writer = file("token");
    let jobs = ["jobs", "--server", &url];
    let said = ask(&takt, &jobs).fails(1);
    assert!(
        said.contains("a token is needed") && said.contains("--token-file"),
        "{said}"
    );
    for token in [&reader, &writer] {
        assert!(
            ask(&takt, &[&jobs[..], &["--token-file", token]].concat())
                .ok()
                .contains("alice")
        );
    }
    let seal = ["store", "seal", "--server", &url, "--token-file"];
    let said = ask(&takt, &[&seal[..], &[&reader]].concat()).fails(1);
    assert!(said.contains("needs the role"), "{said}");

    // A refusal of the alerts' API once said only "403 Forbidden".
    let silence = [
        "alerts",
        "silence",
        "node=g01",
        "--server",
        &url,
        "--token-file",
    ];
    let said = ask(&takt, &[&silence[..], &[&reader]].concat()).fails(1);
    assert!(said.contains("needs the role"), "{said}");
    ask(&takt, &[&seal[..], &[&writer]].concat()).ok();
}

/// Commands beside a running server took its own token, and so the rights of its administrator,
/// also if the user named a token.
#[test]
fn a_named_token_counts_beside_the_running_server() {
    let takt = Takt::fresh();
    let (_server, _port) = serve(&takt);
    let seal = |token: &str| {
        let file = takt.directory().join(token).display().to_string();
        takt.run(["store", "seal", "--token-file", &file])
    };
    let said = seal("read-token").fails(1);
    assert!(said.contains("needs the role"), "{said}");
    takt.file("another-token", "0123456789abcdef0123456789abcdef");
    let said = seal("another-token").fails(1);
    assert!(said.contains("refuses the token"), "{said}");
    seal("token").ok();
}

#[test]
fn a_server_that_cannot_be_asked_is_named() {
    let takt = Takt::fresh();
    let said = ask(&takt, &["jobs", "--server", "head:9856"]).fails(2);
    assert!(
        said.contains("expected a URL such as http://head:9856, found \"head:9856\""),
        "{said}"
    );
    let url = format!("http://127.0.0.1:{}", free_port());
    let said = ask(&takt, &["jobs", "--server", &url]).fails(1);
    assert!(
        said.contains(&format!("cannot ask the server at {url}")),
        "{said}"
    );
    let said = ask(&takt, &["serve", "--server", &url]).fails(2);
    assert!(
        said.contains("takt serve keeps a data directory itself"),
        "{said}"
    );
    let said = ask(&takt, &["jobs", "--server", &url, "--token-file", "none"]).fails(2);
    assert!(said.contains("cannot read the token in none"), "{said}");
}

/// Commands that only read. Issue 13: each printed an empty table, exited with 0 and created a
/// store.
const READING: &[&[&str]] = &[
    &["jobs"],
    &["job", "7"],
    &["gpus"],
    &["capacity"],
    &["fairshare"],
    &["report", "usage"],
    &["report", "cluster"],
    &["sql", "SELECT 1"],
    &["query", "up"],
    &["alerts", "history"],
    &["credit", "list"],
    &["assess"],
    &["store", "stat"],
    &["store", "seal"],
];

#[test]
fn reading_creates_no_store() {
    let takt = Takt::fresh();
    for command in READING {
        let said = ask(&takt, command).fails(2);
        assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
        for part in [
            "no Takt data in ",
            "/elsewhere/takt-data",
            "--data-dir",
            "TAKT_DATA_DIR",
            "--config",
            "--server",
        ] {
            assert!(
                said.contains(part),
                "{command:?}: {part} is missing: {said}"
            );
        }
    }

    // An existing directory without a store is an error too.
    let empty = takt.directory().join("empty");
    fs::create_dir(&empty).unwrap();
    let path = empty.display().to_string();
    let said = ask(&takt, &["jobs", "--data-dir", &path]).fails(2);
    assert!(said.contains(&format!("no Takt data in {path};")), "{said}");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn an_import_names_the_directory_it_creates() {
    let takt = Takt::fresh();
    takt.file(
        "jobs.txt",
        "JobID|User|Submit|Start|End|State|NCPUS\n\
         7|alice|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|COMPLETED|4\n",
    );
    let import = ["import", "sacct", "jobs.txt", "--data-dir", "new"];
    let first = takt.run(import);
    let directory = takt.directory().join("new").canonicalize().unwrap();
    let created = format!("path={}", directory.display());
    assert!(
        first.stderr.contains("created the data directory") && first.stderr.contains(&created),
        "{}",
        first.stderr
    );
    first.ok();
    let second = takt.run(import);
    assert!(!second.stderr.contains("created"), "{}", second.stderr);
    second.ok();
}

/// Runs a command without options on a machine whose `/etc` is the directory `etc`, as root or as
/// another user.
fn on_installed(takt: &Takt, etc: &Path, user: &str, arguments: &[&str]) -> Run {
    let command = takt.command(arguments);
    let program = takt.readable_program();
    let mut installed = Command::new("unshare");
    installed
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$0\" /etc && exec \"$@\"",
        ])
        .arg(etc)
        .args(["setpriv", "--reuid", user, "--regid", user])
        .args(["--clear-groups", "--"])
        .arg(program)
        .args(command.get_args())
        .current_dir("/")
        .env_remove("TAKT_DATA_DIR");
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TAKT_") {
            installed.env_remove(name);
        }
    }
    Run::of(&installed.output().unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    let mode = PermissionsExt::from_mode(mode);
    fs::set_permissions(path, mode).unwrap();
}

#[test]
fn without_options_commands_use_the_installed_server() {
    let needs = need_root()
        .and_then(|()| need_program("unshare"))
        .and_then(|_| need_program("setpriv"));
    if or_skip(needs).is_none() {
        return;
    }
    let takt = Takt::fresh();
    let etc = takt.directory().join("etc");
    let config = etc.join("takt/takt.toml");
    let data = takt.directory().join("data");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::copy("/etc/passwd", etc.join("passwd")).unwrap();
    let port = free_port();
    let text = format!(
        "cluster = \"lab\"\ntimezone = \"UTC\"\ndata_dir = \"{}\"\n[jobs]\npoll = false\n\
         [sql]\nlisten_address = \"\"\n[server]\nlisten_address = \"127.0.0.1:{port}\"\n\
         [email]\nserver = \"localhost\"\nfrom = \"takt@lab.example\"\n\
         [alerts]\nemail_to = [\"ops@lab.example\"]\n",
        data.display()
    );
    fs::write(&config, text).unwrap();

    // All users may read the directories above the configuration, but not the data.
    set_mode(takt.directory(), 0o755);
    set_mode(&etc, 0o755);
    fs::create_dir(&data).unwrap();
    set_mode(&data, 0o700);
    let jobs = takt.file(
        "jobs.txt",
        "JobID|User|Account|Submit|Start|End|State|NCPUS\n\
         7|alice|physics|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|COMPLETED|4\n",
    );
    let jobs = jobs.display().to_string();
    let run = |user: &str, arguments: &[&str]| on_installed(&takt, &etc, user, arguments);

    let named = config.display().to_string();
    let mut command = takt.command(["serve", "--config", &named]);
    command.env_remove("TAKT_DATA_DIR");
    let mut server = Daemon::start("takt", command, &takt.directory().join("server.log"));
    let page = format!("http://127.0.0.1:{port}/-/ready");
    server.wait_until("ready", Duration::from_secs(60), || {
        http_get(&page).ok().filter(|page| page.status == 200)
    });

    // Root reads the lock file, so the import goes to the server with its token.
    run("0", &["import", "sacct", &jobs]).ok();
    assert!(run("0", &["jobs"]).ok().contains("alice"));
    run("0", &["alerts", "list"]).ok();

    // Other users ask the configured address and may change nothing.
    assert!(run("65534", &["jobs"]).ok().contains("alice"));
    run("65534", &["alerts", "list"]).ok();
    let said = run("65534", &["import", "sacct", &jobs]).fails(1);
    assert!(said.contains("--token-file"), "{said}");

    let route = [
        "alerts",
        "route-test",
        "alertname=NodeDown",
        "severity=critical",
    ];
    let receivers = run("0", &route).ok();
    assert!(receivers.contains("email"), "{receivers}");
    assert!(
        run("0", &["check-config"])
            .ok()
            .contains("/etc/takt/takt.toml is good")
    );

    // A configuration that this user may not read does not count as empty.
    set_mode(&config, 0o600);
    let by_file = [&route[..], &["--file"]].concat();
    let said = run("65534", &by_file).fails(2);
    assert!(said.contains("cannot read /etc/takt/takt.toml"), "{said}");

    server.stop();
    assert!(run("0", &["jobs"]).ok().contains("alice"), "from the files");
    assert!(!Path::new("/takt-data").exists());
}
