//! Takt's exporter and node_exporter as programs beside a test, and their pages.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

use rustix::process::{self, Pid};
use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use takt_model::exposition::{Format, Line, Page};

/// A running exporter. It is killed on drop.
pub struct Running {
    pub address: SocketAddr,
    pub child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts takt-exporter on a free port, with UTC as the time zone.
    pub fn takt(flags: &[&str], variables: &[(&str, &Path)]) -> Self {
        Self::takt_prepared(flags, variables, |_| {})
    }

    /// The same; `prepare` edits the command first.
    pub fn takt_prepared(
        flags: &[&str],
        variables: &[(&str, &Path)],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt-exporter"));
        command
            .args(["--web.listen-address", "127.0.0.1:0"])
            .args(flags)
            .env("TZ", "UTC");
        command
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        prepare(&mut command);

        // The log names the port that the kernel chose.
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let before = said.len();
            assert_ne!(
                log.read_line(&mut said).unwrap(),
                0,
                "takt-exporter ended:\n{said}"
            );
            if let Some((_, rest)) = said[before..].split_once("serving address=") {
                break rest.split(' ').next().unwrap().parse().unwrap();
            }
        };
        // The rest of the output must be read, or the pipe fills.
        thread::spawn(move || io::copy(&mut log, &mut io::sink()));
        Self { address, child }
    }

    /// Starts the node_exporter that `TAKT_NODE_EXPORTER` names, else Debian's. Returns `None` if
    /// neither exists.
    pub fn node_exporter(flags: &[&str]) -> Option<Self> {
        Self::node_exporter_with(flags, &[])
    }

    /// The same with environment variables.
    pub fn node_exporter_with(flags: &[&str], variables: &[(&str, &str)]) -> Option<Self> {
        let program = env::var("TAKT_NODE_EXPORTER");
        let program = program.as_deref().unwrap_or("prometheus-node-exporter");
        let found = Self::started(Path::new(program), flags, variables);
        if found.is_none() {
            eprintln!("SKIPPED: cannot run {program}; apt-get install prometheus-node-exporter");
        }
        found
    }

    /// Starts the current node_exporter, which `scripts/peers.sh` builds. Returns `None` if it was
    /// not built.
    pub fn current_node_exporter(flags: &[&str]) -> Option<Self> {
        const NAME: &str = "node_exporter-1.12.1";
        let cache = |variable: &str, below: &str| {
            env::var_os(variable).map(|folder| PathBuf::from(folder).join(below))
        };
        let program = cache("TAKT_CACHE_DIR", "")
            .or_else(|| cache("XDG_CACHE_HOME", "takt"))
            .or_else(|| cache("HOME", ".cache/takt"))?
            .join("peers")
            .join(NAME);
        let found = Self::started(&program, flags, &[]);
        if found.is_none() {
            eprintln!("SKIPPED: no {NAME}; scripts/peers.sh builds it with Go");
        }
        found
    }

    /// Starts a node_exporter on a free port. Returns `None` if the program cannot be run.
    fn started(program: &Path, flags: &[&str], variables: &[(&str, &str)]) -> Option<Self> {
        // Another program may take the port first; the node_exporter ends then.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap();
            let mut command = Command::new(program);
            command
                .arg(format!("--web.listen-address={address}"))
                .args(flags)
                .env("TZ", "UTC");
            command.envs(variables.iter().copied());
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let child = command.spawn().ok()?;
            let mut running = Self { address, child };
            if running.is_serving() {
                return Some(running);
            }
        }
        panic!("{program:?} does not serve");
    }

    /// Waits until the program answers; false if it ended.
    fn is_serving(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "no answer from {}", self.address);
            thread::sleep(Duration::from_millis(20));
            // Without a listener, Linux may connect a socket to itself.
            let is_answer = TcpStream::connect(self.address)
                .is_ok_and(|stream| stream.local_addr().unwrap() != self.address);
            if is_answer {
                thread::sleep(Duration::from_millis(20));
                return self.child.try_wait().unwrap().is_none();
            }
        }
        false
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn end(&mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        process::kill_process(pid, process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Returns the answer to a GET: status line with headers, and body.
    pub fn get(&self, path: &str, headers: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Returns `/metrics`; fails unless the status is 200.
    pub fn page(&self, query: &str) -> String {
        let (head, body) = self.get(&format!("/metrics{query}"), "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
        let head = head.to_ascii_lowercase();
        if head.contains("transfer-encoding: chunked") {
            unchunk(&body)
        } else {
            body
        }
    }

    pub fn series(&self, query: &str) -> BTreeMap<String, f64> {
        series(Format::Text, &self.page(query))
    }

    /// Fetches the page until `is_so` holds.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let page = self.page("");
            if is_so(&page) {
                return page;
            }
            assert!(Instant::now() < until, "not {what}:\n{page}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn unchunk(body: &str) -> String {
    let mut rest = body;
    let mut text = String::new();
    // A chunk of no bytes is the last.
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&behind[..size]);
        rest = &behind[size + 2..];
    }
    text
}

/// Returns the series of a page; fails if it is malformed.
pub fn series(format: Format, text: &str) -> BTreeMap<String, f64> {
    let mut page = Page::new(format, text.as_bytes());
    let mut series = BTreeMap::new();
    while let Some(line) = page.next_line(b"").unwrap() {
        if let Line::Sample(sample) = line {
            let name = sample.labels().unwrap().to_string();
            assert_eq!(
                series.insert(name.clone(), sample.value),
                None,
                "{name} comes twice"
            );
        }
    }
    series
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The flag that selects the stand-in for NVIDIA's library. Cargo puts the stand-in beside the test
/// programs.
pub fn stand_in() -> String {
    format!(
        "--nvml.library={}",
        env::current_exe()
            .unwrap()
            .with_file_name("libnvml_stand_in.so")
            .display()
    )
}

/// The flags that select a fixture.
pub fn paths(tree: &Path) -> Vec<String> {
    let path = |flag: &str, name: &str| format!("--path.{flag}={}", tree.join(name).display());
    let mut flags = vec![
        path("procfs", "proc"),
        path("sysfs", "sys"),
        path("udev.data", "udev"),
    ];
    let textfiles = tree.join("textfile");
    if textfiles.is_dir() {
        flags.push(format!(
            "--collector.textfile.directory={}",
            textfiles.display()
        ));
    }
    flags
}
