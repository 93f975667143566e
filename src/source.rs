//! The data of a command: the server that holds the data directory, or the files.

use crate::client::Server;
use crate::place;
use anyhow::Context;
use jiff::tz::TimeZone;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use takt_access::Viewer;
use takt_api::{SOCKET_FILE, is_trusted_socket};
use takt_questions::{
    self, AboutAnswer, AboutQuestion, AnswerConfig, AnswerData, CountingReader, ImportQuestion,
    Question,
};
use takt_server::{Config, CurrentConfig, Failure, OrUsage};
use takt_store::{DataDir, Database, Holder, ImportSummary, StoreError};

/// Time to wait for another command that holds the data directory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts to open the data directory.
const RETRY: Duration = Duration::from_millis(50);

/// Where the data of a command are.
pub enum Whereabouts {
    /// In this data directory, or at the server that holds it.
    Directory {
        /// The directory.
        path: PathBuf,
        /// URL of the configured server, for users who may not read the directory.
        url: Option<String>,
        /// File with the token for changes at that server.
        token_file: Option<PathBuf>,
        /// Unix socket of that server.
        socket: Option<PathBuf>,
    },
    /// At this server.
    Server {
        /// `http://head:9856`
        url: String,
        /// Token for changes, and for requests from other machines.
        token: Option<String>,
        /// Unix socket of the server; it comes first if no token is named.
        socket: Option<PathBuf>,
    },
}

/// Behaviour of a command if the data directory does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It fails: reading never creates a store.
    Refuse,
    /// It creates the directory.
    Create,
}

/// The data of a command, for questions that read `D`.
pub struct Source<D: AnswerData> {
    access: Access<D>,
    config: AnswerConfig,
}

/// The way to the data.
enum Access<D: AnswerData> {
    /// This process has opened the files.
    Files(D::Opened),
    /// A server holds the files.
    Server(Server),
}

impl<D> Source<D>
where
    D: AnswerData,
{
    /// Finds the server, or opens the files if no server holds them. Waits for other commands.
    pub fn open(at: Whereabouts, config: &Config, missing: Missing) -> Result<Self, Failure> {
        // Answers from files say so, as alerts and live values need a server.
        let mut unserved = None;
        let access = match reach(at, missing)? {
            Reached::Held(server) => Access::Server(server),
            Reached::Free(dir) => {
                unserved = Some(dir.path().to_owned());
                let remote = takt_questions::remote_engine(&config.query).usage()?;
                Access::Files(D::open(dir, &config.store, remote)?)
            }
        };

        Ok(Self {
            access,
            config: AnswerConfig {
                unserved,
                ..CurrentConfig::new(config.clone(), SystemTime::now()).answer_config()
            },
        })
    }

    /// Returns the time zone of the cluster. This machine's if the server or the files do not name
    /// one.
    pub fn zone(&self) -> TimeZone {
        let about = match &self.access {
            Access::Server(server) => server.ask(&AboutQuestion {}),
            Access::Files(data) => {
                takt_questions::about(data.database(), &self.config).map_err(Failure::from)
            }
        };
        zone_of(about.ok())
    }

    /// Asks a question.
    pub fn ask<Q>(&self, question: &Q) -> Result<Q::Answer, Failure>
    where
        Q: Question<Data = D>,
    {
        match &self.access {
            Access::Server(server) => server.ask(question),
            Access::Files(data) => {
                question.prepare(data, &self.config)?;
                Ok(question.answer(&Viewer::server(), data, &self.config)?)
            }
        }
    }
}

impl Source<Database> {
    /// Imports a file of job records. Calls `progress` with the number of bytes read so far.
    pub fn import(
        &self,
        file: &Path,
        question: &ImportQuestion,
        progress: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<ImportSummary, Failure> {
        match &self.access {
            Access::Server(server) => server.upload(file, question, progress),
            Access::Files(database) => {
                let input =
                    open_input(file).with_context(|| format!("cannot read {}", file.display()))?;
                let input = CountingReader::new(input, move |bytes| progress(bytes));
                // After the file was opened, so that a wrong name changes nothing.
                takt_questions::prepare_import(database, question, &self.config)?;
                Ok(takt_questions::import(
                    database,
                    input,
                    question,
                    &self.config,
                )?)
            }
        }
    }
}

/// Returns the time zone of a cluster; this machine's without a name.
pub fn zone_of(about: Option<AboutAnswer>) -> TimeZone {
    let name = about.and_then(|about| about.timezone);
    name.and_then(|name| TimeZone::get(&name).ok())
        .unwrap_or_else(TimeZone::system)
}

/// The running server, for what only a running server knows.
pub fn server(at: Whereabouts) -> Result<Server, Failure> {
    running(at)?.map_err(|path| {
        let path = path.display();
        anyhow::anyhow!("no server runs on {path}; start one with `takt serve` or `takt up`").into()
    })
}

/// The running server, or the data directory that none holds.
pub fn running(at: Whereabouts) -> Result<Result<Server, PathBuf>, Failure> {
    let (path, url, token_file, socket) = match at {
        Whereabouts::Server { url, token, socket } => return Ok(Ok(at_url(url, token, socket)?)),
        Whereabouts::Directory {
            path,
            url,
            token_file,
            socket,
        } => (path, url, token_file, socket),
    };

    match holding(&path, token_file.as_deref())? {
        Some(server) => Ok(Ok(server)),
        None if DataDir::is_private(&path) => Ok(Ok(configured(&path, url, token_file, socket)?)),
        None => Ok(Err(path)),
    }
}

/// The running server at its Unix socket, for what only a known user may do.
pub fn server_at_socket(at: Whereabouts) -> Result<Server, Failure> {
    let socket = match at {
        Whereabouts::Server { socket, .. } | Whereabouts::Directory { socket, .. } => socket,
    };
    let path = socket.unwrap_or_else(|| SOCKET_FILE.into());
    if is_trusted_socket(&path) {
        return Ok(Server::at_socket(&path)?);
    }
    Err(anyhow::anyhow!(
        "no server listens on {}; run this on the server's machine, or set server.socket_file",
        path.display()
    )
    .into())
}

/// The holder of the data directory.
enum Reached {
    /// This process, from now on.
    Free(DataDir),
    /// A server.
    Held(Server),
}

fn reach(at: Whereabouts, missing: Missing) -> Result<Reached, Failure> {
    let (path, url, token_file, socket) = match at {
        Whereabouts::Server { url, token, socket } => {
            return Ok(Reached::Held(at_url(url, token, socket)?));
        }
        Whereabouts::Directory {
            path,
            url,
            token_file,
            socket,
        } => (path, url, token_file, socket),
    };

    // Between the look for a holder and the claim another command may come or end, so both are
    // repeated.
    let dir = path.as_path();
    let began = Instant::now();
    loop {
        if let Some(server) = holding(dir, token_file.as_deref())? {
            return Ok(Reached::Held(server));
        }

        if DataDir::is_private(dir) {
            return Ok(Reached::Held(configured(dir, url, token_file, socket)?));
        }
        // Created only where the command says so: a mistyped --data-dir must not become an empty
        // store.
        let is_missing = DataDir::holder(dir).is_none() && !DataDir::has_store(dir);
        if is_missing && missing == Missing::Refuse {
            return Err(no_data(dir)).usage();
        }

        match DataDir::claim(dir) {
            Err(StoreError::Held { .. }) if began.elapsed() < PATIENCE => {
                thread::sleep(RETRY);
            }
            Ok(dir) => {
                if is_missing {
                    tracing::info!(path = %dir.path().display(), "created the data directory");
                }
                return Ok(Reached::Free(dir));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn no_data(dir: &Path) -> anyhow::Error {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    anyhow::anyhow!(
        "no Takt data in {}; start a server (takt up, takt serve), or name the data directory (--data-dir, TAKT_DATA_DIR), \
         the server's configuration (--config), or a running server (--server)",
        dir.display()
    )
}

/// The configured server of a directory that this user may not read.
fn configured(
    dir: &Path,
    url: Option<String>,
    token_file: Option<PathBuf>,
    socket: Option<PathBuf>,
) -> Result<Server, Failure> {
    let url = url.with_context(|| {
        format!(
            "{} belongs to another user; ask its server with --server http://127.0.0.1:9856",
            dir.display()
        )
    })?;
    let token = place::token(token_file.as_deref()).usage()?;
    Ok(at_url(url, token, socket)?)
}

/// The server at a URL of this machine, through its Unix socket if it has one and no token is named.
fn at_url(url: String, token: Option<String>, socket: Option<PathBuf>) -> anyhow::Result<Server> {
    // A named token asks as its owner, whereas the socket would ask as this user.
    let socket = socket.filter(|path| token.is_none() && is_trusted_socket(path));
    match socket {
        Some(path) => Server::at_socket(&path),
        None => Server::new(url, token),
    }
}

/// The server that holds `dir`, if one does. A named token counts instead of the server's own: who
/// names one asks as its holder.
fn holding(dir: &Path, token_file: Option<&Path>) -> anyhow::Result<Option<Server>> {
    match DataDir::holder(dir) {
        Some(Holder {
            address: Some(address),
            token: Some(token),
            ..
        }) => {
            let token = place::token(token_file)?.unwrap_or(token);
            Server::new(format!("http://{address}"), Some(token)).map(Some)
        }
        _ => Ok(None),
    }
}

fn open_input(file: &Path) -> io::Result<Box<dyn Read + Send>> {
    Ok(if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(file)?)
    })
}
