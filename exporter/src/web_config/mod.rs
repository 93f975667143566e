//! `--web.config.file`: TLS, client certificates, passwords, headers and a rate limit, in the
//! format of Prometheus' exporter-toolkit, so that one file serves all exporters of a node.
//!
//! The file, and the certificates that it names, are checked with every connection and request, and
//! read again when they have changed: a renewed certificate or a new password needs no restart.
//! While they are wrong, all requests are refused.

mod guard;
mod tls;

pub(crate) use self::guard::guard;

use self::guard::RequestGuard;
use self::tls::TlsFile;
use rustls::ServerConfig;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use takt_model::yaml::{self, Mistake};

/// A mistake in the web configuration, or in a file that it names.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The configuration file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not YAML of this format; the cause names the line.
    #[error("{path}")]
    Format {
        /// The configuration file.
        path: PathBuf,
        /// The mistake and its line.
        #[source]
        source: Mistake,
    },
    /// A key has an invalid value.
    #[error("{path}: {key}: {problem}")]
    Key {
        /// The configuration file.
        path: PathBuf,
        /// The key, with those around it: `tls_server_config.cert_file`.
        key: String,
        /// The mistake, and the expected value.
        problem: String,
    },
}

/// The file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    tls_server_config: Option<TlsFile>,
    http_server_config: HttpFile,
    rate_limit: RateLimit,
    basic_auth_users: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpFile {
    /// Accepted for the format's sake: the exporter speaks HTTP/1.1 only.
    #[allow(dead_code, reason = "it is a key of the format")]
    http2: Option<bool>,
    headers: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RateLimit {
    interval: String,
    burst: u64,
}

/// A wrong value: the key and the mistake.
type KeyProblem = (String, String);

/// The checked configuration.
pub(crate) struct WebConfig {
    pub tls: Option<Arc<ServerConfig>>,
    guard: RequestGuard,
}

/// The configuration, read again when it changes.
pub(crate) struct LiveConfig {
    path: PathBuf,
    has_tls: bool,
    last: Mutex<Last>,
}

struct Last {
    result: Result<Arc<WebConfig>, String>,
    files: Files,
}

/// The files that were read, the configuration first, each with its stamp before the reading.
type Files = Vec<(PathBuf, Stamp)>;

/// Device, inode, size and modification time of a file, which change when it does; `None` where it
/// does not exist.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}

impl LiveConfig {
    /// Reads the file for the first time.
    pub fn load(path: &Path) -> Result<Self, WebConfigError> {
        let (config, files) = load(path);
        let config = config?;

        let has_tls = config.tls.is_some();
        let last = Mutex::new(Last {
            result: Ok(Arc::new(config)),
            files,
        });

        Ok(Self {
            path: path.to_owned(),
            has_tls,
            last,
        })
    }

    /// Whether connections are encrypted. Changing this needs a restart.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// The configuration in force. `None` while the file is wrong, which is logged once.
    pub fn current(&self) -> Option<Arc<WebConfig>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A `stat` for each file costs little compared with a page.
        let mut files = last.files.iter();
        if files.any(|(file, before)| stamp(file) != *before) {
            *last = self.read_again();
        }
        last.result.as_ref().ok().cloned()
    }

    fn read_again(&self) -> Last {
        let (config, files) = load(&self.path);
        let result = match config {
            // A listener cannot change between TLS and plain text while it runs.
            Ok(config) if config.tls.is_some() == self.has_tls => Ok(Arc::new(config)),
            Ok(_) => Err("TLS can be turned on or off only by a restart".to_owned()),
            Err(error) => Err(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        };

        match &result {
            Ok(_) => {
                tracing::info!(file = %self.path.display(), "web configuration read again")
            }
            Err(error) => {
                tracing::error!(
                    error,
                    "all requests are refused until the web configuration is corrected"
                )
            }
        }
        Last { result, files }
    }
}

/// The configuration, and the files on which it depends.
fn load(path: &Path) -> (Result<WebConfig, WebConfigError>, Files) {
    // The stamp comes before the reading, so that a change during it is seen the next time.
    let mut files = vec![(path.to_owned(), stamp(path))];
    let config = try_load(path, &mut files);
    (config, files)
}

fn try_load(path: &Path, files: &mut Files) -> Result<WebConfig, WebConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| WebConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let file: Option<File> = yaml::from_str(&text).map_err(|source| WebConfigError::Format {
        path: path.to_owned(),
        source,
    })?;
    // An empty file is a valid configuration.
    let file = file.unwrap_or_default();

    let directory = path.parent().unwrap_or(Path::new(""));
    let wrong = |(key, problem): KeyProblem| WebConfigError::Key {
        path: path.to_owned(),
        key,
        problem,
    };

    let tls = file.tls_server_config.filter(TlsFile::is_enabled);
    if let Some(tls) = &tls {
        // The stamps come first: what changes during the reading is read again.
        for file in tls.files(directory) {
            let stamp = stamp(&file);
            files.push((file, stamp));
        }
    }
    let tls = tls.map(|tls| tls.build(directory).map(Arc::new));
    let tls = tls.transpose().map_err(wrong)?;

    let headers = file.http_server_config.headers;
    let guard = RequestGuard::new(file.basic_auth_users, headers, &file.rate_limit);
    let guard = guard.map_err(wrong)?;
    Ok(WebConfig { tls, guard })
}

/// A time as Go writes it: `1s`, `100ms`, `1m30s`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;

    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let unit = &rest[digits..];
        let unit = unit.split(|letter: char| letter.is_ascii_digit()).next()?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };

        let count: f64 = rest[..digits].parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(count * seconds).ok()?)?;
        rest = &rest[digits + unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        let error = LiveConfig::load(&path).err().unwrap();
        let source = std::error::Error::source(&error)
            .map(|source| format!(": {source}"))
            .unwrap_or_default();
        format!("{error}{source}").replace(&*directory.path().to_string_lossy(), "DIR")
    }

    #[test]
    fn mistakes_name_the_file_and_the_key() {
        let cases = [
            (
                "tls_server_cofig: {}",
                "DIR/web.yml: line 1: unknown field `tls_server_cofig`",
            ),
            (
                "tls_server_config:\n  cert_fil: x",
                "DIR/web.yml: line 2: unknown field `cert_fil`, expected one of `cert`",
            ),
            (
                "rate_limit: {interval: 1s, burst: many}",
                "DIR/web.yml: line 1: expected a whole number",
            ),
            (
                "basic_auth_users:\n  alice: x\n  alice: y",
                "DIR/web.yml: line 3: `alice` is set twice",
            ),
            ("{}\n---\n{}", "DIR/web.yml: line 2: a second document"),
            ("tls_server_config: [", "DIR/web.yml: line 2: not YAML"),
            (
                "tls_server_config: {cert_file: x}",
                "tls_server_config.key_file: missing",
            ),
            (
                "tls_server_config: {key_file: x}",
                "tls_server_config.cert_file: missing",
            ),
            (
                "tls_server_config: {cert_file: x, key_file: y}",
                "tls_server_config.cert_file: cannot read DIR/x",
            ),
            (
                "basic_auth_users: {alice: secret}",
                "basic_auth_users.alice: expected a bcrypt hash",
            ),
            (
                "http_server_config: {headers: {Server: x}}",
                "http_server_config.headers.Server: ",
            ),
            (
                "http_server_config: {headers: {X-Frame-Options: x}}",
                "http_server_config.headers.X-Frame-Options: expected deny or sameorigin",
            ),
            (
                "rate_limit: {interval: soon, burst: 1}",
                "rate_limit.interval: expected a time such as 1s",
            ),
            ("rate_limit: {interval: 1s}", "rate_limit.burst: "),
            ("- 1", "DIR/web.yml: "),
        ];
        for (text, expected) in cases {
            let error = error(text);
            assert!(error.contains(expected), "{text}\n{error}");
        }
        assert!(matches!(
            LiveConfig::load("/nonexistent".as_ref()),
            Err(WebConfigError::Read { .. })
        ));
    }

    #[test]
    fn a_change_is_seen_and_a_mistake_shuts_the_door() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web.yml");
        std::fs::write(&path, "").unwrap();
        let live = LiveConfig::load(&path).unwrap();
        assert!(!live.has_tls() && live.current().is_some());
        std::fs::write(&path, "basic_auth_users: {alice: wrong}").unwrap();
        assert!(live.current().is_none() && live.current().is_none());
        std::fs::write(&path, "{}").unwrap();
        assert!(live.current().is_some());

        // A file that is gone must not open the door.
        std::fs::remove_file(&path).unwrap();
        assert!(live.current().is_none());
    }

    #[test]
    fn times() {
        assert_eq!(duration("1s"), Some(Duration::from_secs(1)));
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1.5ms"), Some(Duration::from_micros(1500)));
        for text in ["", "1", "s", "1x", "-1s", "1e99h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
