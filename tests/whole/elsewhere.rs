//! Asking a server from where its files are not: a login node, another user.

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::{Run, Takt};
use crate::support::{Skip, or_skip};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

/// This machine's address as other machines see it: a request to it comes from there, not from the loopback.
fn outer_address() -> Result<Ipv4Addr, Skip> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: this only asks which way it would go.
    let found = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    match found.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() => Ok(address),
        _ => Err(Skip("needs an address besides the loopback's".to_owned())),
    }
}

/// A server on all addresses with both tokens, and jobs in it.
fn serve(takt: &Takt) -> (Daemon, u16) {
    let port = free_port();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[jobs]\npoll = false\n[sql]\nlisten_address = \"\"\n\
             [server]\nlisten_address = \"0.0.0.0:{port}\"\ntoken_file = \"token\"\nread_token_file = \"read-token\"\n"
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

/// Runs a command in a directory without data, by somebody whom nothing but the flags tells where to ask.
fn ask(takt: &Takt, arguments: &[&str]) -> Run {
    let elsewhere = takt.directory().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let mut command = takt.command(arguments);
    command.env_remove("TAKT_DATA_DIR").current_dir(&elsewhere);
    let run = Run::of(&command.output().unwrap());
    assert_eq!(
        std::fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "asking left files behind"
    );
    run
}

#[test]
fn who_asks_on_the_servers_machine_needs_no_token_and_cannot_write() {
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
fn who_asks_from_another_machine_shows_a_token_that_may_read_or_one_that_may_write() {
    let Some(address) = or_skip(outer_address()) else {
        return;
    };
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    let url = format!("http://{address}:{port}");
    let file = |name: &str| takt.directory().join(name).display().to_string();
    let (reader, writer) = (file("read-token"), file("token"));
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
    ask(&takt, &[&seal[..], &[&reader]].concat()).fails(1);
    ask(&takt, &[&seal[..], &[&writer]].concat()).ok();
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
