//! Clients that hold connections: the real program, real sockets.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::thread;
use std::time::{Duration, Instant};
use support::Running;
use tempfile::tempdir;

/// Lets this process open as many files as the system allows.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// Connects from an address of the loopback network, with a small receive buffer.
fn connect_from(source: [u8; 4], exporter: &Running) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 1).unwrap();
    bind(&stream, &SocketAddrV4::new(Ipv4Addr::from(source), 0)).unwrap();
    let SocketAddr::V4(address) = exporter.address else {
        panic!("expected an IPv4 address")
    };
    connect(&stream, &address).unwrap();
    TcpStream::from(stream)
}

/// Whether the exporter has closed the connection.
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

/// Asks until the series has reached the value.
fn wait_for(exporter: &Running, series: &str, is_so: impl Fn(f64) -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let value = exporter.series("")[series];
        if is_so(value) {
            return;
        }
        assert!(Instant::now() < until, "{series} is {value}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn half_open_requests_stop_neither_their_own_address_nor_others() {
    raise_open_files();
    let exporter = Running::takt(&[], &[]);
    let began = Instant::now();
    // A connection in use stays open: it is from another address and has sent one request.
    let mut server = connect_from([127, 0, 0, 9], &exporter);
    let mut scrape = || {
        let request = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
        server.write_all(request).unwrap();
        let mut answer = [0; 1024];
        let count = server.read(&mut answer).unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 200 "));
    };
    scrape();
    let mut half_open: Vec<_> = (0..1200)
        .map(|number: u32| {
            let mut stream = TcpStream::connect(exporter.address).unwrap();
            // The limits may close some connections during the writes.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ");
            if number.is_multiple_of(100) {
                assert!(exporter.page("").contains("node_load1 "), "after {number}");
            }
            stream
        })
        .collect();
    scrape();
    assert!(exporter.page("").contains("node_load1 "));
    // A byte now and then does not prolong the time for a head.
    while began.elapsed() < Duration::from_secs(14) {
        for stream in half_open.iter_mut().rev().take(100) {
            let _ = stream.write_all(b"x");
        }
        thread::sleep(Duration::from_millis(500));
    }
    assert!(half_open.iter_mut().all(is_closed));
    scrape();
    let page = exporter.series("");
    let closed = |reason: &str| {
        page[&format!(r#"takt_exporter_connections_closed_total{{reason="{reason}"}}"#)]
    };
    assert!(closed("limit") >= 900.0, "one address has 256 at most");
    assert!(closed("header_timeout") >= 200.0);
    assert!(page["takt_exporter_connections"] <= 3.0, "{page:?}");
}

#[test]
fn clients_that_never_read_give_way() {
    let directory = tempdir().unwrap();
    // A page larger than the kernel's buffers of a connection.
    let long = "x".repeat(2000);
    let text: String = (0..1800)
        .map(|number| format!("big{{long=\"{long}\",number=\"{number}\"}} 1\n"))
        .collect();
    fs::write(directory.path().join("big.prom"), text).unwrap();
    let textfile = format!(
        "--collector.textfile.directory={}",
        directory.path().display()
    );
    let flags = [
        "--collector.disable-defaults",
        "--collector.textfile",
        "--web.max-requests=4",
        &textfile,
    ];
    let exporter = Running::takt(&flags, &[]);
    exporter.wait_for("large", |page| page.contains("big{"));
    let never_read: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect_from([127, 0, 0, 1], &exporter);
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
            stream.write_all(request).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    // Another address is answered at once, while the pages of the first are blocked.
    let mut other = connect_from([127, 0, 0, 2], &exporter);
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let began = Instant::now();
    other.write_all(request).unwrap();
    let mut head = [0; 12];
    other.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert!(began.elapsed() < Duration::from_secs(1));
    drop(other);
    // The same address is answered once its blocked connections have been closed.
    wait_for(
        &exporter,
        r#"takt_exporter_connections_closed_total{reason="send_timeout"}"#,
        |count| count >= 3.0,
    );
    let refused = r#"takt_exporter_requests_refused_total{route="metrics"}"#;
    assert!(exporter.series("")[refused] > 0.0, "those beyond got 503");
    drop(never_read);
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let exporter = Running::takt_prepared(&["--collector.disable-defaults"], &[], |command| {
        let lower = || {
            let limit = getrlimit(Resource::Nofile);
            let lowered = Rlimit {
                current: Some(64),
                maximum: limit.maximum,
            };
            Ok(setrlimit(Resource::Nofile, lowered)?)
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(lower) };
    });
    let most = getrlimit(Resource::Nofile)
        .maximum
        .map_or(8192, |most| most.min(8192));
    let page = exporter.series("");
    assert_eq!(page["process_max_fds"], most as f64);
    let open = page["process_open_fds"];
    let resident = page["process_resident_memory_bytes"];
    assert!((5.0..200.0).contains(&open) && (1e6..1e9).contains(&resident));
    assert!(page["process_cpu_seconds_total"] >= 0.0 && page["process_start_time_seconds"] > 1.7e9);
    drop(exporter);
    let flags = [
        "--collector.disable-defaults",
        "--web.disable-exporter-metrics",
    ];
    let page = Running::takt(&flags, &[]).page("");
    assert!(!page.contains("process_") && page.contains("takt_exporter_build_info"));
}
