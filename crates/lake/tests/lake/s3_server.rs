//! Real S3 servers (moto and VersityGW), and a connection to them that refuses, cuts and loses requests, and kills
//! the process that sends them.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A request, as far as its fate depends on it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number since the start, from 1.
    pub number: usize,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Whether the file must not exist.
    pub is_conditional: bool,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The server answers.
    Pass,
    /// 503, and the server does not see it.
    Refuse,
    /// The connection ends in the middle of the body.
    Cut,
    /// The server does it, and the connection ends before the reply.
    Lose,
    /// The server answers as if the request had no condition.
    Unconditional,
    /// [`S3::run`]'s process is killed after it has sent the request, and the server does it.
    Kill,
    /// [`S3::run`]'s process is killed while it sends the body, and the server gets half of it.
    KillCut,
}

impl Fate {
    fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::KillCut)
    }

    fn is_kill(self) -> bool {
        matches!(self, Self::Kill | Self::KillCut)
    }
}

type Judge = Box<dyn FnMut(&Request) -> Fate + Send>;

/// The process of [`S3::run`].
type Victim = Arc<Mutex<Option<Child>>>;

/// Keys of the user of all servers.
pub const KEYS: [&str; 2] = ["access-key", "secret-of-the-key"];

/// An S3 server with the bucket `lake`.
pub struct S3 {
    server: Child,
    own: SocketAddr,
    proxy: SocketAddr,
    judge: Arc<Mutex<Judge>>,
    victim: Victim,
    /// Folder of a server that keeps its files in one.
    folder: Option<TempDir>,
}

impl S3 {
    /// Starts moto, with the Python of its environment. It knows no keys.
    pub fn moto(python: &Path) -> Self {
        let own = free_address();
        let mut command = Command::new(python.with_file_name("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &own.port().to_string()]);
        let s3 = Self::start(command, own, None);
        let made = s3.send("PUT /lake HTTP/1.1\r\nHost: s3\r\nContent-Length: 0\r\n");
        assert!(made.contains(" 200 "), "{made}");
        s3
    }

    /// Starts VersityGW, which checks signatures.
    pub fn versity(program: &Path) -> Self {
        let folder = TempDir::with_prefix("takt-s3-").unwrap();
        fs::create_dir(folder.path().join("lake")).unwrap();
        let own = free_address();
        let mut command = Command::new(program);
        command
            .env("ROOT_ACCESS_KEY", KEYS[0])
            .env("ROOT_SECRET_KEY", KEYS[1])
            .args(["--port", &own.to_string(), "posix"])
            .arg(folder.path());
        Self::start(command, own, Some(folder))
    }

    fn start(mut command: Command, own: SocketAddr, folder: Option<TempDir>) -> Self {
        let server = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // moto is a Python program, which takes seconds to start on a busy machine.
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(own).is_err() {
            assert!(Instant::now() < end, "the S3 server does not answer");
            thread::sleep(Duration::from_millis(100));
        }

        let judge: Judge = Box::new(|_| Fate::Pass);
        let judge = Arc::new(Mutex::new(judge));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let victim = Victim::default();
        let shared = (Arc::clone(&judge), Arc::clone(&victim));
        let count = Arc::new(Mutex::new(0));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let ((judge, victim), count) = (shared.clone(), Arc::clone(&count));
                std::thread::spawn(move || serve(client, own, &judge, &victim, &count));
            }
        });
        Self {
            server,
            own,
            proxy,
            judge,
            victim,
            folder,
        }
    }

    /// Runs a program whose requests [`Fate::Kill`] may end.
    pub fn run(&self, command: &mut Command) -> ExitStatus {
        let lock = || self.victim.lock().unwrap_or_else(PoisonError::into_inner);
        *lock() = Some(command.spawn().unwrap());
        loop {
            if let Some(status) = lock().as_mut().unwrap().try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// URL of the server behind the connection that fails.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// URL of the server itself.
    pub fn own_endpoint(&self) -> String {
        format!("http://{}", self.own)
    }

    /// Decides about the requests from now on.
    pub fn judge(&self, judge: impl FnMut(&Request) -> Fate + Send + 'static) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(judge);
    }

    /// Names of all files.
    pub fn files(&self) -> Vec<String> {
        if let Some(folder) = &self.folder {
            let mut found = Vec::new();
            files_below(&folder.path().join("lake"), "", &mut found);
            found.sort();
            return found;
        }
        self.send("GET /lake?list-type=2&max-keys=1000 HTTP/1.1\r\nHost: s3\r\n")
            .split("<Key>")
            .skip(1)
            .map(|rest| rest.split("</Key>").next().unwrap().to_owned())
            .collect()
    }

    /// Copies all files into a new folder, each with its name.
    pub fn save(&self, folder: &Path) {
        if let Some(own) = &self.folder {
            copy(&own.path().join("lake"), folder);
            return;
        }
        std::fs::create_dir_all(folder).unwrap();
        for name in self.files() {
            let path = folder.join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let head = format!("GET /lake/{name} HTTP/1.1\r\nHost: s3\r\n");
            std::fs::write(path, self.exchange(&head, &[])).unwrap();
        }
    }

    /// Replaces all files by those that [`S3::save`] has copied.
    pub fn restore(&self, folder: &Path) {
        if let Some(own) = &self.folder {
            let lake = own.path().join("lake");
            for entry in std::fs::read_dir(&lake).unwrap().flatten() {
                std::fs::remove_dir_all(entry.path()).unwrap();
            }
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                copy(&entry.path(), &lake.join(entry.file_name()));
            }
            return;
        }
        self.exchange("POST /moto-api/reset HTTP/1.1\r\nHost: s3\r\n", &[]);
        self.exchange("PUT /lake HTTP/1.1\r\nHost: s3\r\n", &[]);
        let mut names = Vec::new();
        files_below(folder, "", &mut names);
        for name in names {
            let head = format!("PUT /lake/{name} HTTP/1.1\r\nHost: s3\r\n");
            self.exchange(&head, &std::fs::read(folder.join(&name)).unwrap());
        }
    }

    /// Sends a request to moto, which checks no signature but wants one. Returns the body of the reply.
    fn exchange(&self, head: &str, body: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.own).unwrap();
        let (key, length) = (KEYS[0], body.len());
        write!(
            stream,
            "{head}Authorization: AWS4-HMAC-SHA256 Credential={key}/20261001/us-east-1/s3/aws4_request, \
             SignedHeaders=host, Signature=0\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let body = reply.split_off(end.unwrap() + 4);
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.contains(" 200 "), "{head}{reply}");
        body
    }

    /// Sends a request without a body and signature to the server itself. Returns the reply.
    fn send(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.own).unwrap();
        write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Copies a folder to a name that does not exist, with the extended attributes of its files.
fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let status = command.arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

fn files_below(folder: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let last = entry.file_name().into_string().unwrap();
        // Of the server itself.
        if last.starts_with(".sgwtmp") {
            continue;
        }
        if entry.path().is_dir() {
            files_below(&entry.path(), &format!("{name}{last}/"), found);
        } else {
            found.push(format!("{name}{last}"));
        }
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Passes one request on, or not.
fn serve(
    client: TcpStream,
    server: SocketAddr,
    judge: &Mutex<Judge>,
    victim: &Mutex<Option<Child>>,
    count: &Mutex<usize>,
) {
    let done = || -> io::Result<()> {
        let mut input = BufReader::new(client.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }

        let mut words = head.split(' ');
        let method = words.next().unwrap_or("");
        let target = words.next().unwrap_or("");
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (found, value) = line.split_once(':')?;
                found
                    .eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let length = header("content-length").map_or(0, |text| text.parse().unwrap());
        let request = {
            let mut number = count.lock().unwrap_or_else(PoisonError::into_inner);
            *number += 1;
            Request {
                number: *number,
                method: method.to_owned(),
                target: target.to_owned(),
                is_conditional: header("if-none-match").is_some(),
            }
        };
        let fate = judge.lock().unwrap_or_else(PoisonError::into_inner)(&request);
        let taken = if fate.is_cut() { length / 2 } else { length };
        let mut body = vec![0; taken];
        input.read_exact(&mut body)?;
        if fate.is_kill() {
            let mut victim = victim.lock().unwrap_or_else(PoisonError::into_inner);
            let victim = victim.as_mut().expect("a process runs");
            victim.kill()?;
            // Until the process is gone: it must not see the reply.
            victim.wait()?;
        }
        let mut client = client.try_clone()?;
        if fate == Fate::Refuse {
            let text = "<Error><Code>SlowDown</Code></Error>";
            write!(
                client,
                "HTTP/1.1 503 Slow Down\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            )?;
            return Ok(());
        }
        let mut stream = TcpStream::connect(server)?;
        let head = head.trim_end();
        let head = match fate {
            Fate::Unconditional => head
                .lines()
                .filter(|line| !line.starts_with("if-none-match"))
                .collect::<Vec<&str>>()
                .join("\r\n"),
            _ => head.to_owned(),
        };
        write!(stream, "{head}\r\nConnection: close\r\n\r\n")?;
        stream.write_all(&body)?;
        if fate.is_cut() {
            return Ok(());
        }
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        if fate != Fate::Lose {
            client.write_all(&reply)?;
        }
        Ok(())
    };
    // The test sees what a lost connection does to Takt.
    let _ = done();
}
