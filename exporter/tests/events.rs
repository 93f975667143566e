//! Events as a listener receives them, from the real program with a file as its kernel log.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;
use support::Running;
use takt_model::{Event, EventKind};
use tempfile::{TempDir, tempdir};

const XID: &str =
    "NVRM: Xid (PCI:0000:06:00): 79, pid=4242, name=python, GPU has fallen off the bus.";
const OOM: &str = "Out of memory: Killed process 99 (python) total-vm:1kB";

struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            directory: tempdir().unwrap(),
        };

        // The driver's file, from which the exporter has the UUID of a GPU's address.
        let gpu = node
            .directory
            .path()
            .join("proc/driver/nvidia/gpus/0000:06:00.0");
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), "GPU UUID: \t GPU-six\n").unwrap();
        fs::write(node.path("kmsg"), "").unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, line: &str) {
        let mut file = File::options()
            .append(true)
            .open(self.path("kmsg"))
            .unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn start(&self) -> Running {
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let flags = [
            flag("path.kmsg", &self.path("kmsg")),
            flag("path.procfs", &self.path("proc")),
            flag("state-directory", &self.path("state")),
            "--collector.disable-defaults".to_owned(),
            "--collector.events".to_owned(),
        ];
        let exporter = Running::takt(&flags.each_ref().map(String::as_str), &[]);

        // Only then is a line seen as it comes, with the UUID of its GPU.
        exporter.wait_for("ready", |page| {
            page.contains("takt_kernel_log_followed 1\n") && page.contains("GPU-six")
        });
        exporter
    }
}

/// A connection to `/events`.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn new(exporter: &Running, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(exporter.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"),
            "{head}"
        );
        Self(reader)
    }

    /// Returns the lines of the next message without the chunks' lengths, or no lines after the
    /// exporter has disconnected.
    fn message(&mut self) -> Option<Vec<String>> {
        let mut lines: Vec<String> = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end_matches(['\r', '\n']);
            // A field has this separator, and the length of a chunk has not.
            if line.contains(": ") {
                lines.push(line.to_owned());
            } else if line.is_empty() && !lines.is_empty() {
                return Some(lines);
            }
        }
    }

    /// Returns a listener without an id, and the id at which it begins.
    fn fresh(exporter: &Running) -> (Self, u64) {
        let mut listener = Self::new(exporter, "/events", "");
        let [kind, data, id] = &listener.message().unwrap()[..] else {
            panic!("expected three fields")
        };
        let id: u64 = id.strip_prefix("id: ").unwrap().parse().unwrap();
        assert_eq!(
            (kind.as_str(), data.clone()),
            ("event: begin", format!("data: {{\"after\":{id}}}"))
        );
        (listener, id)
    }

    fn event(&mut self) -> Event {
        let lines = self.message().unwrap();
        let field = |name: &str| {
            lines
                .iter()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let event: Event = serde_json::from_str(field("data").unwrap()).unwrap();
        assert_eq!(field("id").unwrap(), event.id.to_string());
        event
    }
}

/// Names of programs that crash, as `/dev/kmsg` shows them, and a line that a program wrote to it.
#[test]
fn names_of_programs_reach_no_listener() {
    let node = Node::new();
    let exporter = node.start();
    let (mut listener, _) = Listener::fresh(&exporter);
    // Each name looks like the beginning of a fault's message.
    for name in [
        "kernel BUG at x",
        "EDAC MC0: 1 UE ",
        "ib0: Link Down",
        "a\\x0akernel BUG a",
    ] {
        node.write(&format!(
            "6,1,1,-;{name}[77]: segfault at 0 ip 000055d0c0de1139 sp 00007ffd6a1 error 4 in \
             c[55d0c0de1000+1000]"
        ));
    }

    // The priority 12 is that of a program, which wrote the line to the device.
    node.write("12,2,2,-;kernel BUG at mm/slub.c:306!");
    node.write(&format!("3,3,3,-;{XID}"));
    assert_eq!(listener.event().message, XID, "the first event");
}

#[test]
fn a_kernel_line_reaches_listeners_and_counters() {
    let node = Node::new();
    let exporter = node.start();
    let before = exporter.series("");
    for kind in EventKind::ALL {
        assert_eq!(
            before[&format!("takt_events_total{{kind=\"{}\"}}", kind.name())],
            0.0
        );
    }
    let xid = r#"takt_gpu_xid_errors_total{uuid="GPU-six", xid="79"}"#;
    assert_eq!(before[xid], 0.0, "it is there before it happens");

    let (mut one, _) = Listener::fresh(&exporter);
    let (mut other, _) = Listener::fresh(&exporter);

    // A line that is no event.
    node.write("usb 1-1: new high-speed USB device number 2 using xhci_hcd");
    node.write(XID);
    let event = one.event();
    assert_eq!((event.kind, event.message.as_str()), (EventKind::Xid, XID));
    let labels =
        r#"{pci_bus_id="0000:06:00.0", pid="4242", process="python", uuid="GPU-six", xid="79"}"#;
    assert_eq!(event.labels.to_string(), labels);
    assert_eq!(other.event(), event);
    let page = exporter.series("");
    assert_eq!(
        (page[xid], page[r#"takt_events_total{kind="xid"}"#]),
        (1.0, 1.0)
    );
    let last_seen = page[r#"takt_gpu_xid_last_seen_timestamp_seconds{uuid="GPU-six", xid="79"}"#];
    assert_eq!(last_seen, event.at.as_seconds());
}

/// Lines about parts (MIG) name the GPU's address in another way; the event has its UUID, and the part.
#[test]
fn lines_about_parts_of_a_gpu_have_the_gpu() {
    let node = Node::new();
    let gpu = node.path("proc/driver/nvidia/gpus/0000:c3:00.0");
    fs::create_dir_all(&gpu).unwrap();
    fs::write(gpu.join("information"), "GPU UUID: \t GPU-c3\n").unwrap();
    let exporter = node.start();
    let (mut listener, _) = Listener::fresh(&exporter);
    for (line, [xid, gpu_instance, compute_instance, pid]) in
        include_str!("../fixtures/made-up/kernel-log/xid_mig.log")
            .lines()
            .zip([
                ["43", "5", "", "4242"],
                ["31", "5", "0", "4243"],
                ["94", "5", "", ""],
                ["13", "", "", "4244"],
            ])
    {
        node.write(line);
        let labels = listener.event().labels;
        for (name, value) in [
            ("pci_bus_id", "0000:c3:00.0"),
            ("uuid", "GPU-c3"),
            ("xid", xid),
            ("gpu_instance", gpu_instance),
            ("compute_instance", compute_instance),
            ("pid", pid),
        ] {
            assert_eq!(
                labels.get(name).unwrap_or_default(),
                value,
                "{name}: {line}"
            );
        }
        let count = format!("takt_gpu_xid_errors_total{{uuid=\"GPU-c3\",xid=\"{xid}\"}} 1\n");
        exporter.wait_for(&count, |page| page.contains(&count));
    }
}

#[test]
fn a_listener_that_leaves_before_the_first_event_can_resume() {
    let node = Node::new();
    let mut exporter = node.start();
    let (listener, begin) = Listener::fresh(&exporter);
    drop(listener);
    node.write(XID);
    let after = format!("Last-Event-ID: {begin}\r\n");
    assert_eq!(
        Listener::new(&exporter, "/events", &after).event().message,
        XID
    );
    // The same after a restart of the exporter.
    assert_eq!(exporter.end(), Some(0));
    assert_eq!(
        Listener::new(&node.start(), "/events", &after)
            .event()
            .message,
        XID
    );
}

#[test]
fn events_are_replayed_from_an_id_also_after_a_restart() {
    let node = Node::new();
    let mut exporter = node.start();
    let (mut listener, _) = Listener::fresh(&exporter);
    node.write(XID);
    let first = listener.event();
    assert_eq!(exporter.end(), Some(0), "a listener does not hold it up");
    assert_eq!(listener.message(), None);

    node.write(OOM);
    let exporter = node.start();
    let after = format!("Last-Event-ID: {}\r\n", first.id);
    let oom = Listener::new(&exporter, "/events", &after).event();
    assert_eq!((oom.kind, oom.message.as_str()), (EventKind::OomKill, OOM));
    let mut all = Listener::new(&exporter, "/events?after=0", "");
    assert_eq!((all.event(), all.event()), (first.clone(), oom.clone()));
    let mut from = Listener::new(&exporter, &format!("/events?after={}", oom.id), "");
    node.write(OOM);
    let third = from.event();
    assert!(third.id > oom.id, "only what is new");
    let page = exporter.series("");
    assert_eq!(
        page[r#"takt_events_total{kind="xid"}"#], 0.0,
        "counted since this start"
    );
    assert!(page.contains_key(r#"takt_events_last_seen_timestamp_seconds{kind="xid"}"#));

    // An id that this exporter never gave: the listener may have missed any event, so it gets all.
    let mut stranger = Listener::new(&exporter, "/events", "Last-Event-ID: 9999999999999\r\n");
    assert_eq!(
        stranger.message().unwrap(),
        ["event: gap", "data: {\"after\":0}"]
    );
    assert_eq!(stranger.event(), first);
}

#[test]
fn a_wrong_id_is_refused_and_listeners_are_bounded() {
    let node = Node::new();
    let exporter = node.start();
    for (path, headers) in [
        ("/events?after=x", ""),
        ("/events", "Last-Event-ID: -1\r\n"),
    ] {
        let (head, body) = exporter.get(path, headers);
        assert!(
            head.starts_with("HTTP/1.1 400 ") && body.contains("expected the id of an event"),
            "{head} {body}"
        );
    }
    let refused = r#"takt_exporter_requests_refused_total{route="events"}"#;
    assert_eq!(exporter.series("")[refused], 0.0);

    // As many as may listen at the same time.
    let listeners: Vec<_> = (0..8)
        .map(|_| Listener::new(&exporter, "/events", ""))
        .collect();
    // Further listeners are refused and get the id from which they can continue.
    for _ in 0..24 {
        let (head, _) = exporter.get("/events", "");
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 15"));
        assert!(head.contains("last-event-id: "), "{head}");
    }
    assert_eq!(exporter.series("")[refused], 24.0);
    drop(listeners);
    exporter.wait_for("free again", |page| {
        page.contains("takt_events_listeners 0\n")
    });
}

#[test]
fn a_crowd_of_listeners_keeps_no_server_out() {
    let node = Node::new();
    let exporter = node.start();
    let _crowd: Vec<_> = (0..8)
        .map(|_| Listener::new(&exporter, "/events", ""))
        .collect();
    assert!(exporter.get("/events", "").0.starts_with("HTTP/1.1 503 "));

    // A server has this user agent, and places of its own.
    const SERVER: &str = "User-Agent: takt/0.1.0\r\nConnection: close\r\n";
    let mut server = Listener::new(&exporter, "/events", SERVER);
    assert_eq!(server.message().unwrap()[0], "event: begin");
    node.write(XID);
    let xid = server.event();
    // Clients that claim to be servers displace it; it connects again and misses no event.
    let mut crowd: Vec<_> = (0..4)
        .map(|_| Listener::new(&exporter, "/events", SERVER))
        .collect();
    assert_eq!(server.message(), None, "its place was taken");
    node.write(OOM);
    let last = format!("{SERVER}Last-Event-ID: {}\r\n", xid.id);
    let mut server = Listener::new(&exporter, "/events", &last);
    assert_eq!(server.event().message, OOM);
    crowd.reverse();
    let begin = crowd[0].message().unwrap();
    assert_eq!(
        begin[0], "event: begin",
        "the newest of them is still there"
    );
    assert_eq!(crowd[0].event().message, OOM);
}

#[test]
fn since_sends_the_events_after_a_time() {
    let node = Node::new();
    let exporter = node.start();
    let (mut listener, begin) = Listener::fresh(&exporter);
    node.write(OOM);
    let oom = listener.event();
    // The time at which a server first tried to connect.
    thread::sleep(Duration::from_millis(5));

    // The id of an event is its time in milliseconds.
    let since = oom.id + 2;
    node.write(XID);
    let xid = listener.event();
    for (since, expected) in [(since, &[&xid][..]), (begin + 1, &[&oom, &xid])] {
        let mut late = Listener::new(&exporter, &format!("/events?since={since}"), "");
        assert_eq!(late.message().unwrap()[0], "event: begin");
        for event in expected {
            assert_eq!(late.event(), **event);
        }
    }
    // A time in the future skips no later event and gives no gap.
    let mut ahead = Listener::new(&exporter, "/events?since=9999999999999", "");
    let place = format!("data: {{\"after\":{}}}", xid.id);
    assert_eq!(ahead.message().unwrap()[1], place);
    node.write(OOM);
    assert_eq!(ahead.event().message, OOM);
    assert!(
        exporter
            .get("/events?since=today", "")
            .0
            .starts_with("HTTP/1.1 400 ")
    );
}

#[test]
fn a_state_directory_belongs_to_one() {
    let node = Node::new();
    let _exporter = node.start();

    // The second exporter has another port, and the same state.
    let state = format!("--state-directory={}", node.path("state").display());
    let output = process::Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
        .args(["--web.listen-address=127.0.0.1:0", &state])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        log.contains("cannot keep state in") && log.contains("another exporter"),
        "{log}"
    );
}

#[test]
fn killed_again_and_again_it_repeats_and_loses_nothing() {
    let node = Node::new();
    let mut written = Vec::new();
    let mut write = |count: usize| {
        for _ in 0..count {
            let line = format!(
                "INFO: task t{}:1 blocked for more than 120 seconds.",
                written.len()
            );
            node.write(&line);
            written.push(line);
        }
    };
    // Killed while it reads lines from before its start, while it writes, and while it waits.
    for round in 0..15 {
        write(round % 3);
        let exporter = node.start();
        write(round % 4);
        thread::sleep(Duration::from_millis(round as u64 % 5));
        drop(exporter);
    }
    write(1);
    let exporter = node.start();
    let mut all = Listener::new(&exporter, "/events?after=0", "");
    let told: Vec<_> = written.iter().map(|_| all.event().message).collect();
    assert_eq!(told, written);
    let page = exporter.series("");
    assert!(page[r#"takt_events_total{kind="hung_task"}"#] >= 1.0);
    assert_eq!(page[r#"takt_events_untold_total{kind="hung_task"}"#], 0.0);
}
