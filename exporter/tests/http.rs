//! The exporter as a server.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::Running;

#[test]
fn routes() {
    let exporter = Running::takt(&[], &[]);
    let (head, body) = exporter.get("/", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.contains("href=metrics"),
        "{head}\n{body}"
    );
    assert_eq!(exporter.get("/-/healthy", "").1, "Healthy.\n");
    assert!(exporter.get("/nothing", "").0.starts_with("HTTP/1.1 404 "));
}

#[test]
fn collectors_are_chosen_by_the_query() {
    let exporter = Running::takt(&[], &[]);

    // Clients may encode the brackets.
    let only = exporter.page("?collect[]=loadavg&collect%5B%5D=filesystem");
    assert!(only.contains("node_load1 ") && only.contains("node_filesystem_size_bytes{"));
    assert!(!only.contains("node_cpu"));
    let all_but = exporter.page("?exclude[]=loadavg");
    assert!(!all_but.contains("node_load1 ") && all_but.contains("node_cpu_seconds_total"));
    for (query, reason) in [
        (
            "?collect[]=nonsense",
            "no collector \"nonsense\" is running; there are arp, ",
        ),
        (
            "?collect[]=cpu&exclude[]=stat",
            "collect[] and exclude[] exclude each other\n",
        ),
    ] {
        let (head, body) = exporter.get(&format!("/metrics{query}"), "");
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        assert!(body.starts_with(reason), "{body}");
    }
}

#[test]
fn collectors_are_chosen_by_flags() {
    let exporter = Running::takt(
        &["--collector.disable-defaults", "--collector.loadavg"],
        &[],
    );
    let page = exporter.page("");
    assert!(
        page.contains("node_load1 ")
            && !page.contains("node_cpu")
            && !page.contains("node_filesystem")
    );
    assert!(
        exporter
            .get("/metrics?collect[]=cpu", "")
            .0
            .starts_with("HTTP/1.1 400 ")
    );
}

#[test]
fn two_hundred_scrapes_at_the_same_time_are_each_answered() {
    // Far fewer pages at a time than clients.
    let exporter = Running::takt(&["--web.max-requests", "40"], &[]);
    let streams: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(exporter.address).unwrap();
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();

    // All requests are on their way before an answer is read.
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap();
        assert!(status == "200" || status == "503", "{answer}");
    }
    assert!(exporter.page("").contains("node_load1 "), "it goes on");
}

#[test]
fn it_stops_on_sigterm_and_fails_on_a_port_in_use() {
    let mut exporter = Running::takt(&[], &[]);
    let address = exporter.address.to_string();

    // The first exporter has the port.
    let output = Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
        .args(["--web.listen-address", &address])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        log.contains(&format!(
            "cannot listen on {address}: Address already in use"
        )),
        "{log}"
    );

    // A client that sends nothing must not delay the end.
    let idle = TcpStream::connect(exporter.address).unwrap();
    let began = Instant::now();
    assert_eq!(exporter.end(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    drop(idle);
}

#[test]
fn wrong_flags_end_with_two() {
    for flags in [
        ["--web.listen-address", "here"],
        ["--collector.nonsense", ""],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
            .args(flags)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
    }
}

#[test]
fn the_page_is_where_it_is_wanted() {
    let exporter = Running::takt(
        &[
            "--web.telemetry-path=/node",
            "--collector.disable-defaults",
            "--collector.uname",
        ],
        &[],
    );
    let (head, body) = exporter.get("/node", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.contains("node_uname_info"),
        "{head}\n{body}"
    );
    assert!(exporter.get("/metrics", "").0.starts_with("HTTP/1.1 404 "));
    assert!(exporter.get("/", "").1.contains("<a href=node>"));
}

/// Socket activation: systemd's program listens and starts the exporter for the first client.
#[test]
fn systemd_opens_the_socket() {
    const PROGRAM: &str = "systemd-socket-activate";
    // Bound for a moment only, to find a free port.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = Command::new(PROGRAM);
    command.args([
        "--listen",
        &address.to_string(),
        env!("CARGO_BIN_EXE_takt-exporter"),
        "--web.systemd-socket",
    ]);
    command.args(["--collector.disable-defaults", "--collector.uname"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        return eprintln!("SKIPPED: no {PROGRAM}; apt-get install systemd");
    };
    let exporter = Running { address, child };
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "{PROGRAM} does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(exporter.page("").contains("node_uname_info"));
}

#[test]
fn without_sockets_it_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
        .arg("--web.systemd-socket")
        .env_remove("LISTEN_FDS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success()
            && said.contains("the sockets of systemd")
            && said.contains("LISTEN_FDS"),
        "{said}"
    );
}
