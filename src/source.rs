//! The data of a command: the server that holds the data directory, or the files.

use crate::cli::Place;
use crate::client::Server;
use crate::place;
use anyhow::Context;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_server::answers::{
    self, AnswerConfig, AnswerData, Asker, CountingReader, ImportQuestion, Question,
};
use takt_server::config::read_token;
use takt_server::{Config, Failure, OrUsage};
use takt_store::{DataDir, Database, Holder, ImportSummary, StoreError};

/// Time to wait for another command that holds the data directory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts to open the data directory.
const RETRY: Duration = Duration::from_millis(50);

/// Where the data of a command are.
pub enum Whereabouts {
    /// In this data directory, or at the server that holds it.
    Directory(PathBuf),
    /// At this server.
    Server {
        /// `http://head:9856`
        url: String,
        /// Token for changes, and for requests from other machines.
        token: Option<String>,
    },
}

impl Whereabouts {
    /// Where the command line, the environment or the configuration say, in this order.
    pub fn of(place: &Place, config: &Config) -> Result<Self, Failure> {
        let Some(url) = &place.server else {
            return Ok(Self::Directory(place::data_dir(config, place)));
        };
        let parsed = reqwest::Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        if !parsed.is_some_and(|url| url.has_host()) {
            return Err(anyhow::anyhow!(
                "--server: expected a URL such as http://head:9856, found {url:?}"
            ))
            .usage();
        }
        let token = place.token_file.as_deref().map(read_token).transpose();
        Ok(Self::Server {
            url: url.trim_end_matches('/').to_owned(),
            token: token.usage()?,
        })
    }
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

impl<D: AnswerData> Source<D> {
    /// Finds the server, or opens the files if no server holds them. Waits for other commands.
    pub fn open(at: &Whereabouts, config: &Config) -> Result<Self, Failure> {
        let access = match reach(at)? {
            Reached::Held(server) => Access::Server(server),
            Reached::Free(dir) => Access::Files(D::open(dir, &config.store)?),
        };
        Ok(Self {
            access,
            config: AnswerConfig::of(config),
        })
    }

    /// Asks a question.
    pub fn ask<Q: Question<Data = D>>(&self, question: &Q) -> Result<Q::Answer, Failure> {
        match &self.access {
            Access::Server(server) => server.ask(question),
            Access::Files(data) => {
                question.prepare(data, &self.config)?;
                Ok(question.answer(&Asker::Local, data, &self.config)?)
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
                let input = open_input(file);
                let input = input.with_context(|| format!("cannot read {}", file.display()))?;
                let input = CountingReader::new(input, move |bytes| progress(bytes));
                answers::prepare_import(database, question, &self.config)?;
                Ok(answers::import(database, input, question)?)
            }
        }
    }
}

/// The running server, for what only a running server knows.
pub fn server(at: Whereabouts) -> Result<Server, Failure> {
    let dir = match at {
        Whereabouts::Server { url, token } => return Ok(Server::new(url, token)?),
        Whereabouts::Directory(dir) => dir,
    };
    holding(&dir)?.ok_or_else(|| {
        anyhow::anyhow!(
            "no server runs on {}; start one with `takt serve` or `takt up`",
            dir.display()
        )
        .into()
    })
}

/// The holder of the data directory.
enum Reached {
    /// This process, from now on.
    Free(DataDir),
    /// A server.
    Held(Server),
}

fn reach(at: &Whereabouts) -> Result<Reached, Failure> {
    let dir = match at {
        Whereabouts::Directory(dir) => dir,
        Whereabouts::Server { url, token } => {
            return Ok(Reached::Held(Server::new(url.clone(), token.clone())?));
        }
    };
    let began = Instant::now();
    loop {
        if let Some(server) = holding(dir)? {
            return Ok(Reached::Held(server));
        }
        match DataDir::claim(dir) {
            Err(StoreError::Held { .. }) if began.elapsed() < PATIENCE => {
                std::thread::sleep(RETRY);
            }
            Err(error) if is_denied(&error) => {
                let hint = "it is another user's; ask the server that has it with --server http://127.0.0.1:9856";
                return Err(anyhow::Error::new(error).context(hint).into());
            }
            claimed => return Ok(Reached::Free(claimed?)),
        }
    }
}

/// The server that holds `dir`, if one does.
fn holding(dir: &Path) -> anyhow::Result<Option<Server>> {
    match DataDir::holder(dir) {
        Some(Holder {
            address: Some(address),
            token: Some(token),
            ..
        }) => Server::new(format!("http://{address}"), Some(token)).map(Some),
        _ => Ok(None),
    }
}

fn is_denied(error: &StoreError) -> bool {
    matches!(error, StoreError::Directory { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}

fn open_input(file: &Path) -> std::io::Result<Box<dyn Read + Send>> {
    Ok(if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file)?)
    })
}
