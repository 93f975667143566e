//! Clients that must not get in, and clients that hold connections: the real program, real sockets, a real nginx.

use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{self, Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::or_skip;
use crate::support::process::{Daemon, Page, free_port, http_get, http_get_with, http_post};
use crate::support::takt::Takt;
use crate::support::{Needed, need};
use std::thread;

const SOON: Duration = Duration::from_secs(60);

/// Paths that show data. None of them is open to everybody.
const PATHS: [&str; 4] = ["/", "/metrics", "/api/v1/labels", "/api/v1/query?query=up"];

/// A server on loopback with both tokens.
fn serve(takt: &Takt) -> (Daemon, u16) {
    let port = free_port();
    let config = format!(
        "cluster = \"lab\"\n[jobs]\npoll = false\n[sql]\nlisten_address = \"\"\n\
         [server]\nlisten_address = \"127.0.0.1:{port}\"\ntoken_file = \"token\"\n\
         read_token_file = \"read-token\"\n"
    );
    takt.file("takt.toml", config);
    takt.file("token", "writer-writer-writer\n");
    takt.file("read-token", "reader-reader-reader\n");
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ready = format!("http://127.0.0.1:{port}/-/ready");
    server.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    (server, port)
}

fn get(port: u16, path: &str, token: &str) -> Page {
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str())];
    let headers = if token.is_empty() { &[][..] } else { &headers };
    http_get_with(&format!("http://127.0.0.1:{port}{path}"), &[], headers).unwrap()
}

/// A proxy must ask for a token, let readers read, and leave the health check open.
#[track_caller]
fn assert_is_remote(port: u16) {
    for path in PATHS {
        assert_eq!(get(port, path, "").status, 401, "{path} without a token");
        assert_eq!(
            get(port, path, "reader-reader-reader").status,
            200,
            "{path}"
        );
    }
    assert_eq!(get(port, "/-/healthy", "").status, 200);
}

/// A proxy that adds one header to each request. Gives its port.
fn proxy(upstream: u16, header: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || forward(client, upstream, header));
        }
    });
    port
}

/// Forwards one request without a body.
fn forward(mut client: TcpStream, upstream: u16, header: &str) {
    let mut head = String::new();
    let mut lines = BufReader::new(client.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
    let (first, rest) = head.split_once("\r\n").unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).unwrap();
    let request = format!("{first}\r\n{header}\r\nConnection: close\r\n{rest}");
    server.write_all(request.as_bytes()).unwrap();
    let _ = io::copy(&mut server, &mut client);
}

#[test]
fn a_client_behind_a_proxy_on_this_machine_needs_a_token() {
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    for header in [
        "X-Forwarded-For: 203.0.113.7",
        "x-forwarded-proto: https",
        "Forwarded: for=203.0.113.7",
        "X-Real-IP: 203.0.113.7",
        "Via: 1.1 proxy",
    ] {
        assert_is_remote(proxy(port, header));
    }

    // It is the header that makes the difference.
    let harmless = proxy(port, "X-Requested-With: test");
    assert_eq!(get(harmless, "/metrics", "").status, 200);
    assert_eq!(get(port, "/metrics", "").status, 200);

    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 401 "), "{answer}");
}

/// The head of an answer, as a browser gets it.
fn head(port: u16, path: &str) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    head.to_lowercase()
}

#[test]
fn pages_run_no_script_and_send_nothing_elsewhere() {
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    for path in ["/", "/alerts", "/api/v1/labels"] {
        let head = head(port, path);
        assert!(head.starts_with("http/1.1 200 "), "{path}: {head}");
        for header in [
            "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self';",
            "x-content-type-options: nosniff",
            "referrer-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
            "cache-control: private",
        ] {
            assert!(head.contains(header), "{path}: {header} in {head}");
        }
    }
}

#[test]
fn files_are_for_their_owner_and_open_ones_are_named() {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let set_mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let takt = Takt::fresh();
    let (mut server, _) = serve(&takt);
    let data = takt.data_directory();
    assert_eq!(mode(&data), 0o700);
    let files: Vec<_> = fs::read_dir(&data)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(files.iter().any(|file| file.ends_with("records.duckdb")));
    for file in files {
        assert_eq!(mode(&file) & 0o077, 0, "{}", file.display());
    }
    let token = takt.directory().join("token");
    let log = server.log();
    assert!(log.contains("chmod o-rwx token"), "{log}");
    assert!(
        !log.contains("chmod o-rwx read-token"),
        "users share it: {log}"
    );
    assert!(!server.log().contains("chmod 700"));
    server.stop();

    // Permissions that someone has set stay.
    set_mode(&token, 0o600);
    set_mode(&data, 0o755);
    fs::remove_file(takt.directory().join("takt.log")).unwrap();
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let warning = format!("chmod 700 {}", data.canonicalize().unwrap().display());
    server.wait_until("warning", SOON, || {
        fs::read_to_string(takt.directory().join("takt.log"))
            .ok()?
            .contains(&warning)
            .then_some(())
    });
    assert!(!server.log().contains("chmod o-rwx"));
    assert_eq!(mode(&data), 0o755);
}

#[test]
fn a_checked_configuration_is_printed_without_secrets() {
    let takt = Takt::fresh();
    let config = "[alerts]\nwebhook_url = \"https://hooks.example/T0/s3cret\"\n\
                  heartbeat_url = \"https://u:s3cret@hc.example/s3cret?key=s3cret\"\n";
    takt.file("takt.toml", config);
    let shown = takt.run(["check-config", "--config", "takt.toml"]).ok();
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("https://hooks.example/<hidden>"), "{shown}");
    assert!(shown.contains("https://hc.example/<hidden>"), "{shown}");
}

/// nginx on a port of its own, with this text in its `server` block.
fn nginx(directory: &Path, location: &str) -> (Daemon, u16) {
    let port = free_port();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {kind};\n"))
        .concat();
    let user = if process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let config = format!(
        "{user} daemon off; pid nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off;\n{temporary}\
         server {{ listen 127.0.0.1:{port};\n{location}\n}} }}\n"
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).arg("-c").arg(&file);
    let mut daemon = Daemon::start("nginx", command, &directory.join("nginx.log"));
    daemon.wait_until("listening", SOON, || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    (daemon, port)
}

/// The location in docs/install.md.
fn documented_location() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md");
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once("```nginx\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_documented_nginx_asks_for_a_token_and_so_does_the_shortest() {
    let needed = need(&[Needed {
        program: "nginx",
        package: "nginx-light",
    }]);
    if or_skip(needed).is_none() {
        return;
    }
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    let documented = documented_location();
    assert!(documented.contains("proxy_pass http://127.0.0.1:9856;"));
    let shortest = "location / { proxy_pass http://127.0.0.1:9856; }";
    for (number, location) in [documented.as_str(), shortest].into_iter().enumerate() {
        let directory = takt.directory().join(format!("nginx-{number}"));
        fs::create_dir(&directory).unwrap();
        let location = location.replace("9856", &port.to_string());
        let (_nginx, proxy) = nginx(&directory, &location);
        assert_is_remote(proxy);
    }
}

/// Lets this process open as many files as the system allows.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// Whether the server has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// The value of one series of the server's own metrics.
fn series(port: u16, name: &str) -> f64 {
    let page = get(port, "/metrics", "").body;
    page.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name} in {page}"))
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn half_open_requests_do_not_stop_the_server() {
    raise_open_files();
    let takt = Takt::fresh();
    let (_server, port) = serve(&takt);
    let began = Instant::now();
    let mut half_open: Vec<_> = (0..1200)
        .map(|number: u32| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();

            // Some are closed by the limits while this is written.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ");
            if number.is_multiple_of(100) {
                assert_eq!(get(port, "/-/healthy", "").status, 200, "after {number}");
            }
            stream
        })
        .collect();
    assert_eq!(get(port, "/-/healthy", "").status, 200);

    // A byte now and then does not prolong the time for a head.
    while began.elapsed() < Duration::from_secs(120) && !half_open.iter_mut().all(is_closed) {
        for stream in half_open.iter_mut().rev().take(100) {
            let _ = stream.write_all(b"x");
        }
        thread::sleep(Duration::from_millis(500));
    }
    assert!(half_open.iter_mut().all(is_closed));
    let closed = |reason: &str| {
        let name = format!("takt_server_connections_closed_total{{reason=\"{reason}\"}}");
        series(port, &name)
    };
    assert!(closed("limit") >= 900.0, "one address has 256 at most");
    assert!(closed("header_timeout") >= 200.0);
    assert!(series(port, "takt_server_connections ") <= 3.0);
}

/// A server with a socket and a sender.
fn serve_everybody(takt: &Takt) -> (Daemon, u16) {
    let port = free_port();
    let config = format!(
        "cluster = \"lab\"\n[jobs]\npoll = false\n[sql]\nlisten_address = \"\"\n\
         [server]\nlisten_address = \"127.0.0.1:{port}\"\ntoken_file = \"token\"\n\
         socket_file = \"takt.sock\"\n\
         [[push.senders]]\nname = \"agent\"\ntoken_file = \"sender-token\"\n"
    );
    takt.file("takt.toml", config);
    takt.file("token", "writer-writer-writer\n");
    takt.file("sender-token", "sender-sender-sender\n");
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ready = format!("http://127.0.0.1:{port}/-/ready");
    server.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    (server, port)
}

/// A connection from one of four addresses of this machine that has sent a request.
fn request_of_crowd(port: u16, number: usize, request: &[u8]) -> TcpStream {
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    let own: SocketAddr = ([127, 0, 0, number as u8 % 4 + 1], 0).into();
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &own).unwrap();
    net::connect(&socket, &address).unwrap();
    let mut stream = TcpStream::from(socket);
    let _ = stream.write_all(request);
    stream
}

/// Status of a request over the Unix socket.
fn socket_status(takt: &Takt, path: &str) -> u16 {
    let mut socket = UnixStream::connect(takt.directory().join("takt.sock")).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Everybody whose places the crowd must not take is answered.
#[track_caller]
fn assert_others_are_answered(takt: &Takt, port: u16) {
    for path in ["/-/healthy", "/-/ready", "/status"] {
        assert_eq!(get(port, path, "").status, 200, "{path}");
    }
    let path = "/api/v1/labels";
    assert_eq!(get(port, path, "writer-writer-writer").status, 200);
    assert_eq!(socket_status(takt, path), 200);

    // An empty message.
    let headers = [
        ("Authorization", "Bearer sender-sender-sender"),
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
    ];
    let url = format!("http://127.0.0.1:{port}/api/v1/write");
    assert_eq!(http_post(&url, &headers, &[0]).unwrap().status, 204);
}

/// The value of a series of the class, as an administrator sees it.
fn of_class(port: u16, name: &str, class: &str) -> f64 {
    let page = get(port, "/metrics", "writer-writer-writer").body;
    let series = format!("{name}{{class=\"{class}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value
        .unwrap_or_else(|| panic!("no {series} in {page}"))
        .parse()
        .unwrap()
}

/// Issue 28: 1,024 of them kept everybody out, also administrators on the socket.
#[test]
fn slow_bodies_keep_nobody_out() {
    raise_open_files();
    let takt = Takt::fresh();
    let (mut server, port) = serve_everybody(&takt);
    let request = b"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\
                    Content-Type: application/x-www-form-urlencoded\r\n\r\nq";
    let mut crowd: Vec<_> = (0..1024)
        .map(|number| request_of_crowd(port, number, request))
        .collect();
    let began = Instant::now();

    // The user who runs the server is an administrator.
    let (class, places) = if process::geteuid().is_root() {
        ("signed_in", 256)
    } else {
        ("admin", 48)
    };
    server.wait_until("crowd", SOON, || {
        let refused = of_class(port, "takt_server_places_refused_total", class);
        (refused >= f64::from(1024 - places)).then_some(())
    });
    while began.elapsed() < Duration::from_secs(6) {
        for stream in &mut crowd {
            let _ = stream.write_all(b"x");
        }
        assert_others_are_answered(&takt, port);
        let taken = of_class(port, "takt_server_places_taken", class);
        assert_eq!(taken, f64::from(places));
        assert_eq!(
            get(port, "/nodes", "").status,
            429,
            "the crowd has the user's places"
        );
        thread::sleep(Duration::from_secs(3));
    }
    let log = server.log();
    assert_eq!(log.matches("no free place").count(), 1, "{log}");
    assert!(log.contains(&format!("class=\"{class}\"")), "{log}");

    // The slow bodies end, with an answer, and everybody is served again.
    server.wait_until("places", SOON, || {
        (get(port, "/nodes", "").status == 200).then_some(())
    });
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    let mut answers = [0; 3];
    for stream in &mut crowd {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut answer = [0; 32];
        let read = stream.read(&mut answer).unwrap_or(0);
        let status = String::from_utf8_lossy(&answer[..read]).into_owned();
        let kind = ["HTTP/1.1 408 ", "HTTP/1.1 429 "]
            .iter()
            .position(|one| status.starts_with(one));
        answers[kind.unwrap_or(2)] += 1;
    }
    assert!(answers[0] * 4 >= places * 3, "408, 429, other: {answers:?}");
}

/// Issue 28: as many streams of live pages did the same.
#[test]
fn streams_take_only_their_own_places() {
    raise_open_files();
    let takt = Takt::fresh();
    let (mut server, port) = serve_everybody(&takt);
    let request = b"GET /live/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let streams: Vec<_> = (0..600)
        .map(|number| request_of_crowd(port, number, request))
        .collect();
    server.wait_until("streams", SOON, || {
        let refused = of_class(port, "takt_server_places_refused_total", "stream");
        (refused == 536.0).then_some(())
    });
    assert_eq!(of_class(port, "takt_server_places_taken", "stream"), 64.0);
    assert_others_are_answered(&takt, port);
    assert_eq!(
        get(port, "/nodes", "").status,
        200,
        "pages have other places"
    );

    drop(streams);
    server.wait_until("free places", SOON, || {
        (of_class(port, "takt_server_places_taken", "stream") == 0.0).then_some(())
    });
}
