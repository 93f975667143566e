//! Asks the exporter for its page, within a time.

use crate::accepted::{OtherEnd, other_end};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str;
use std::thread;
use std::time::{Duration, Instant};

/// Largest page that is read, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// Time between two looks at whether the exporter has accepted the connection.
const ACCEPT_POLL: Duration = Duration::from_micros(500);

/// Begin of this program's name to the exporter. A request with it is not counted as a scrape.
pub const USER_AGENT: &str = "takt-node-ok/";

/// The exporter could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{0:?} is no address of an exporter; expected HOST:PORT or http://HOST:PORT/metrics")]
    Address(String),
    #[error("https is not supported; ask the exporter at an address without TLS")]
    Tls,
    #[error("cannot connect to the exporter at {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("the exporter at {address} has not answered within {seconds} s")]
    Timeout { address: String, seconds: f64 },
    #[error("the answer of the exporter at {address} broke off: {source}")]
    Broken { address: String, source: io::Error },
    #[error("the exporter at {address} answered {status}")]
    Status { address: String, status: String },
    #[error("what answers at {0} is no takt-exporter")]
    Stranger(String),
    #[error("port {port} is served by a process of user {uid}, which need not be the exporter")]
    Untrusted { port: u16, uid: u32 },
}

/// Where the exporter serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// `HOST:PORT`.
    address: String,
    /// Path of the page.
    path: String,
}

impl Place {
    /// Parses `HOST:PORT` or `http://HOST:PORT/metrics`.
    pub fn parse(text: &str) -> Result<Self, AskError> {
        if text.starts_with("https://") {
            return Err(AskError::Tls);
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (address, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        let path = if path == "/" { "/metrics" } else { path };

        let wrong = || AskError::Address(text.to_owned());
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        // A path with blanks or line ends would add lines to the request.
        let is_plain = path
            .chars()
            .all(|c| c.is_ascii_graphic() && !"?#".contains(c));
        if host.is_empty() || port.parse::<u16>().is_err() || !is_plain {
            return Err(wrong());
        }
        Ok(Self {
            address: address.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Fetches the page of these collectors, or the whole page where one of them does not run.
    pub fn page(
        &self,
        collectors: &[&str],
        password: Option<&str>,
        within: Duration,
    ) -> Result<String, AskError> {
        let until = Instant::now() + within;
        let mut wanted = String::from("?");
        for name in collectors {
            wanted.push_str(&format!("collect[]={name}&"));
        }

        let request = Request {
            place: self,
            password,
            within,
            until,
        };
        let (status, body) = request.send(wanted.trim_end_matches('&'))?;
        let (status, body) = match code(&status) {
            // The exporter refuses a name that does not run there; the whole page has the others.
            Some(400) => request.send("")?,
            _ => (status, body),
        };
        match code(&status) {
            Some(200) => Ok(body),
            _ => Err(AskError::Status {
                address: self.address.clone(),
                status,
            }),
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The code of a status line without its protocol.
fn code(status: &str) -> Option<u16> {
    status.split(' ').next()?.parse().ok()
}

struct Request<'a> {
    place: &'a Place,
    password: Option<&'a str>,
    within: Duration,
    until: Instant,
}

impl Request<'_> {
    /// Sends the request. Returns the status and the body.
    fn send(&self, query: &str) -> Result<(String, String), AskError> {
        let (mut stream, peer) = self.connect()?;
        // Before the request, and so the password, is sent.
        self.trust(&stream, peer)?;

        let Place { address, path } = self.place;
        // HTTP/1.0: the answer ends with the connection and has no chunks.
        let mut head = format!(
            "GET {path}{query} HTTP/1.0\r\nHost: {address}\r\nUser-Agent: {USER_AGENT}{}\r\nAccept: text/plain\r\n",
            env!("CARGO_PKG_VERSION")
        );
        if let Some(password) = self.password {
            let encoded = BASE64_STANDARD.encode(password);
            head.push_str(&format!("Authorization: Basic {encoded}\r\n"));
        }
        head.push_str("\r\n");
        stream
            .write_all(head.as_bytes())
            .map_err(|source| self.broken(source))?;

        let answer = self.read(&mut stream)?;

        let broken = || self.broken(ErrorKind::InvalidData.into());
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.ok_or_else(broken)?);
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
        let status = status.and_then(|rest| rest.get(2..)).ok_or_else(broken)?;

        // An answer that was cut would look like a node without the faults of its end.
        let body = &body[4..];
        // HTTP/1.0 ends with the connection, so only the length shows that the answer is whole.
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        if length.is_some_and(|length| length != body.len()) {
            return Err(self.broken(ErrorKind::UnexpectedEof.into()));
        }
        let body = str::from_utf8(body).map_err(|_| broken())?;
        Ok((status.to_owned(), body.to_owned()))
    }

    fn connect(&self) -> Result<(TcpStream, SocketAddr), AskError> {
        let address = &self.place.address;
        let cannot = |source| AskError::Connect {
            address: address.clone(),
            source,
        };
        let mut last = ErrorKind::NotFound.into();
        for peer in address.to_socket_addrs().map_err(cannot)? {
            // All addresses share one time, which a prolog of Slurm has to keep.
            match TcpStream::connect_timeout(&peer, self.left()?) {
                Ok(stream) => return Ok((stream, peer)),
                Err(error) => last = error,
            }
        }
        Err(cannot(last))
    }

    /// Refuses a connection that a process of a person on this machine has accepted: it would decide whether the node is
    /// fit.
    fn trust(&self, stream: &TcpStream, peer: SocketAddr) -> Result<(), AskError> {
        let own = stream.local_addr().map_err(|source| self.broken(source))?;
        loop {
            match other_end(own, peer) {
                OtherEnd::Elsewhere => return Ok(()),
                OtherEnd::Held(uid) if is_trusted(uid) => return Ok(()),
                OtherEnd::Held(uid) => {
                    let port = peer.port();
                    return Err(AskError::Untrusted { port, uid });
                }
                // A busy exporter accepts a little later.
                OtherEnd::Unaccepted => thread::sleep(ACCEPT_POLL.min(self.left()?)),
            }
        }
    }

    fn read(&self, stream: &mut TcpStream) -> Result<Vec<u8>, AskError> {
        let mut answer = Vec::new();
        let mut buffer = [0; 1 << 16];
        loop {
            stream
                // Set again for each read: a page that trickles must not extend the time.
                .set_read_timeout(Some(self.left()?))
                .map_err(|source| self.broken(source))?;
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(answer),
                Ok(count) => answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(self.timeout());
                }
                Err(source) => return Err(self.broken(source)),
            }
            // Another program on the port could send without an end.
            if answer.len() > MOST_BYTES {
                return Err(self.broken(ErrorKind::FileTooLarge.into()));
            }
        }
    }

    /// The time that is left; an error if none is.
    fn left(&self) -> Result<Duration, AskError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(self.timeout())
        } else {
            Ok(left)
        }
    }

    fn timeout(&self) -> AskError {
        AskError::Timeout {
            address: self.place.address.clone(),
            seconds: self.within.as_secs_f64(),
        }
    }

    fn broken(&self, source: io::Error) -> AskError {
        AskError::Broken {
            address: self.place.address.clone(),
            source,
        }
    }
}

/// Whether a user is root, the one who asks, or a user of the system. systemd takes the second range for services
/// (`DynamicUser=`).
fn is_trusted(uid: u32) -> bool {
    uid < 1000 || (61_184..=65_519).contains(&uid) || Some(uid) == own_uid()
}

#[cfg(unix)]
fn own_uid() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").ok().map(|own| own.uid())
}

#[cfg(not(unix))]
fn own_uid() -> Option<u32> {
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Serves one connection with these bytes. Returns the address and what was asked.
    fn answering(answer: &'static [u8]) -> (Place, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let count = stream.read(&mut asked).unwrap();
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&asked[..count]).into_owned()
        });
        (place, server)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let place = |text| Place::parse(text).map(|place| place.address + &place.path);
        assert_eq!(place("g01:9855").unwrap(), "g01:9855/metrics");
        assert_eq!(place("http://[::1]:1/").unwrap(), "[::1]:1/metrics");
        assert_eq!(place("http://g01:1/takt").unwrap(), "g01:1/takt");
        // The last one would smuggle a header into the request.
        for wrong in ["g01", ":9855", "g01:http", "g01:1/a b", "g01:1/a\r\nX: y"] {
            assert!(matches!(place(wrong), Err(AskError::Address(_))), "{wrong}");
        }
        assert!(matches!(place("https://g01:1"), Err(AskError::Tls)));
    }

    #[test]
    fn a_page_is_read_whole_and_a_cut_one_is_refused() {
        let (place, server) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n");
        assert_eq!(place.page(&["nvml"], Some("a:b"), LONG).unwrap(), "a 1\n");
        let asked = server.join().unwrap();
        assert!(
            asked.starts_with("GET /metrics?collect[]=nvml HTTP/1.0\r\n"),
            "{asked}"
        );
        assert!(
            asked.contains("\r\nAuthorization: Basic YTpi\r\n"),
            "{asked}"
        );

        // 36 bytes are missing.
        let (place, server) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\na 1\n");
        let error = place.page(&[], None, LONG).unwrap_err();
        assert!(matches!(error, AskError::Broken { .. }), "{error}");
        server.join().unwrap();

        let (place, server) = answering(b"HTTP/1.1 401 Unauthorized\r\n\r\n");
        let error = place.page(&[], None, LONG).unwrap_err().to_string();
        assert!(error.ends_with("answered 401 Unauthorized"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn an_exporter_that_is_silent_or_gone_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let error = place
            .page(&[], None, Duration::from_millis(50))
            .unwrap_err();
        assert!(matches!(error, AskError::Timeout { .. }), "{error}");
        drop(listener);
        let error = place.page(&[], None, LONG).unwrap_err();
        assert!(matches!(error, AskError::Connect { .. }), "{error}");
    }

    #[test]
    fn persons_are_not_trusted() {
        assert!(is_trusted(0) && is_trusted(998) && is_trusted(62_000));
        assert!(own_uid() == Some(1001) || !is_trusted(1001));
    }
}
