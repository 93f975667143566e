//! Where a command finds its answers: the server that holds the data directory, or else the files themselves.

use crate::cli::Place;
use crate::place;
use anyhow::Context;
use prometheus_client::registry::Registry;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_accounting::sheet::Sheet;
use takt_accounting::{Credit, UsageReport};
use takt_collector::schedulers::SharesConfig;
use takt_server::Config;
use takt_server::api::{
    self, AccountingConfig, AssessQuestion, CapacityAnswer, CapacityQuestion, CreditOrder,
    DeleteQuestion, FairshareAnswer, FairshareQuestion, ImportQuestion, JobsQuestion, ListedRun,
    Problem, ProblemKind, QueryAnswer, QueryQuestion, SentQuestion, SheetQuestion, UsageQuestion,
};
use takt_server::assess::Assessed;
use takt_server::config::read_token;
use takt_server::{Failure, OrUsage};
use takt_store::sql::{self, Limits, Rows};
use takt_store::{
    DataDir, Database, Holder, ImportSummary, Kept, Records, SentReport, Settings, Stat, Store,
    StoreConfig, StoreError,
};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

/// Where a command was told to look.
pub enum Whereabouts {
    /// In this data directory, or at the server that has it.
    Directory(PathBuf),
    /// At a server that was named.
    Server {
        /// `http://head:9856`
        url: String,
        /// What it wants of other machines.
        token: Option<String>,
    },
}

/// One of the two ways to the data.
pub enum Source {
    /// Nobody holds the directory: this process opened it.
    Files(Box<Files>),
    /// A server holds it and is asked.
    Server(Server),
}

/// The data directory, opened by this process.
pub struct Files {
    database: Database,
    /// Held until the database is closed.
    _dir: DataDir,
}

/// A server, asked over HTTP.
pub struct Server {
    url: String,
    token: Option<String>,
    http: reqwest::Client,
    runtime: Runtime,
}

/// How long a command waits for another one to be done with the directory.
const PATIENCE: Duration = Duration::from_secs(10);

impl Whereabouts {
    /// What the command line, the environment and the configuration say, in this order.
    pub fn of(place: &Place, config: &Config) -> Result<Self, Failure> {
        let Some(url) = &place.server else {
            return Ok(Self::Directory(place::data_dir(&config, place)));
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
        let token = place
            .token_file
            .as_deref()
            .map(read_token)
            .transpose()
            .usage()?;
        Ok(Self::Server {
            url: url.trim_end_matches('/').to_owned(),
            token,
        })
    }
}

impl Source {
    /// Asks the server, or opens the files if there is none. Another command is waited for.
    pub fn open(at: &Whereabouts) -> Result<Self, Failure> {
        Ok(match reach(at)? {
            Reached::Held(server) => Self::Server(server),
            Reached::Free(dir) => {
                let database = Database::open(&dir, &Settings::default())?;
                Self::Files(Box::new(Files {
                    database,
                    _dir: dir,
                }))
            }
        })
    }

    /// The usage report.
    pub fn usage(&self, question: &UsageQuestion) -> Result<UsageReport, Failure> {
        match self {
            Self::Files(files) => Ok(api::usage(&files.database, question)?),
            Self::Server(server) => server.get("/api/takt/v1/report/usage", question),
        }
    }

    /// Sheets of a period. Who asks the server gets them by the server's rates and rules.
    pub fn sheets(
        &self,
        question: &SheetQuestion,
        config: &AccountingConfig,
    ) -> Result<Vec<Sheet>, Failure> {
        match self {
            Self::Files(files) => Ok(api::sheets(&files.database, question, config)?),
            Self::Server(server) => server.get(api::SHEETS_PATH, question),
        }
    }

    /// The reports of a month that were sent.
    pub fn sent_reports(
        &self,
        month: &str,
        cluster: Option<&str>,
    ) -> Result<Vec<SentReport>, Failure> {
        let question = SentQuestion {
            month: month.to_owned(),
            cluster: cluster.map(str::to_owned),
        };
        match self {
            Self::Files(files) => Ok(api::sent_reports(&files.database, &question)?),
            Self::Server(server) => server.get(api::SENT_PATH, &question),
        }
    }

    /// Notes that a report was sent.
    pub fn note_sent_report(&self, sent: &SentReport) -> Result<(), Failure> {
        match self {
            Self::Files(files) => Ok(Records::of(&files.database).note_sent_report(sent)?),
            Self::Server(server) => {
                server.send(server.request(Method::POST, api::SENT_PATH).json(sent))
            }
        }
    }

    /// The ledger of credits.
    pub fn credits(&self) -> Result<Vec<Credit>, Failure> {
        match self {
            Self::Files(files) => Ok(api::credits(&files.database, None)?),
            Self::Server(server) => server.get(api::CREDITS_PATH, &()),
        }
    }

    /// Enters a credit.
    pub fn credit(&self, order: &CreditOrder) -> Result<Credit, Failure> {
        match self {
            Self::Files(files) => Ok(api::credit(&files.database, order)?),
            Self::Server(server) => {
                server.send(server.request(Method::POST, api::CREDITS_PATH).json(order))
            }
        }
    }

    /// What the cluster had in a period and what became of it.
    pub fn capacity(&self, question: &CapacityQuestion) -> Result<CapacityAnswer, Failure> {
        match self {
            Self::Files(files) => Ok(api::capacity(&files.database, question)?),
            Self::Server(server) => server.get(api::CAPACITY_PATH, question),
        }
    }

    /// Who stands where in fair share. A server goes by its own configuration.
    pub fn fairshare(
        &self,
        config: &SharesConfig,
        question: &FairshareQuestion,
    ) -> Result<FairshareAnswer, Failure> {
        match self {
            Self::Files(files) => {
                api::configure_shares(&files.database, question.cluster.as_deref(), config)?;
                Ok(api::fairshare(&files.database, question)?)
            }
            Self::Server(server) => server.get(api::FAIRSHARE_PATH, question),
        }
    }

    /// Runs, the newest first.
    pub fn jobs(&self, question: &JobsQuestion) -> Result<Vec<ListedRun>, Failure> {
        match self {
            Self::Files(files) => Ok(api::jobs(&files.database, question)?),
            Self::Server(server) => server.get("/api/takt/v1/jobs", question),
        }
    }

    /// What samples there are on disk.
    pub fn stat(&self) -> Result<Stat, Failure> {
        match self {
            Self::Files(files) => Ok(files.database.stat()?),
            Self::Server(server) => server.get(api::STAT_PATH, &()),
        }
    }

    /// What is wrong with the blocks, a line each.
    pub fn verify(&self) -> Result<Vec<String>, Failure> {
        match self {
            Self::Files(files) => Ok(files.database.verify_blocks()?),
            Self::Server(server) => server.get(api::VERIFY_PATH, &()),
        }
    }

    /// The answer to a read-only statement.
    pub fn sql(&self, statement: &str) -> Result<Rows, Failure> {
        match self {
            Self::Files(files) => Ok(sql::run(&files.database, statement, Limits::default())?),
            Self::Server(server) => {
                let request = server
                    .request(Method::POST, api::SQL_PATH)
                    .body(statement.to_owned());
                server.send(request)
            }
        }
    }

    /// Imports what `sacct` printed or jobcomp wrote. `progress` is told how many bytes of the file have been read.
    pub fn import(
        &self,
        config: &SharesConfig,
        file: &Path,
        question: &ImportQuestion,
        progress: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<ImportSummary, Failure> {
        match self {
            Self::Files(files) => {
                let reader =
                    open_input(file).with_context(|| format!("cannot read {}", file.display()))?;
                let reader = api::Counted::new(reader, move |bytes| progress(bytes));
                api::configure_shares(&files.database, question.cluster.as_deref(), config)?;
                Ok(api::import(&files.database, reader, question)?)
            }
            Self::Server(server) => server.upload(file, question, progress),
        }
    }
}

/// Who can change what samples there are: this process with the whole store, or the server.
pub enum SampleKeeper {
    /// Nobody holds the directory.
    Files(Box<Store>),
    /// A server holds it and is asked.
    Server(Server),
}

impl SampleKeeper {
    /// Asks the server, or opens the files if there is none.
    pub fn open(at: &Whereabouts, config: &StoreConfig) -> Result<Self, Failure> {
        Ok(match reach(at)? {
            Reached::Free(dir) => Self::Files(Box::new(Store::open(
                dir,
                config,
                &mut Registry::default(),
            )?)),
            Reached::Held(server) => Self::Server(server),
        })
    }

    /// Seals what is hot.
    pub fn seal(&self) -> Result<Kept, Failure> {
        match self {
            Self::Files(store) => Ok(store.seal()?),
            Self::Server(server) => server.send(server.request(Method::POST, api::SEAL_PATH)),
        }
    }

    /// Deletes series.
    pub fn delete(&self, question: &DeleteQuestion) -> Result<Kept, Failure> {
        match self {
            Self::Files(store) => Ok(api::delete_samples(store, question)?),
            Self::Server(server) => server.send(
                server
                    .request(Method::POST, api::DELETE_PATH)
                    .query(question),
            ),
        }
    }
}

/// The answer to a PromQL query. Samples need the whole store, with its series in memory, where the others need its files.
pub fn query(
    at: &Whereabouts,
    config: &StoreConfig,
    question: &QueryQuestion,
) -> Result<QueryAnswer, Failure> {
    match reach(at)? {
        Reached::Free(dir) => Ok(api::query(
            &Store::open(dir, config, &mut Registry::default())?,
            question,
        )?),
        Reached::Held(server) => server.query(question),
    }
}

/// The server: for what only a running one knows.
pub fn server(at: Whereabouts) -> Result<Server, Failure> {
    match at {
        Whereabouts::Server { url, token } => Ok(Server::new(url, token)?),
        Whereabouts::Directory(dir) => match holding(&dir)? {
            Some(server) => Ok(server),
            None => {
                let error = format!(
                    "no server runs on {}; start one with `takt serve` or `takt up`",
                    dir.display()
                );
                Err(anyhow::anyhow!(error).into())
            }
        },
    }
}

/// Has runs assessed. Like a query it needs the whole store.
pub fn assess(
    at: &Whereabouts,
    store: &StoreConfig,
    accounting: &AccountingConfig,
    question: &AssessQuestion,
) -> Result<Assessed, Failure> {
    match reach(at)? {
        Reached::Free(dir) => Ok(api::assess(
            &Store::open(dir, store, &mut Registry::default())?,
            question,
            accounting,
        )?),
        Reached::Held(server) => server.send(
            server
                .request(Method::POST, api::ASSESS_PATH)
                .json(question),
        ),
    }
}

/// Who has the data directory.
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
                std::thread::sleep(Duration::from_millis(50))
            }
            Err(error @ StoreError::Directory { .. }) if is_denied(&error) => {
                let hint = "it is another user's; ask the server that has it with --server http://127.0.0.1:9856";
                return Err(anyhow::Error::new(error).context(hint).into());
            }
            claimed => return Ok(Reached::Free(claimed?)),
        }
    }
}

/// The server that has `dir`, if one has.
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

fn open_input(file: &Path) -> std::io::Result<Box<dyn std::io::Read + Send>> {
    Ok(if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file)?)
    })
}

impl Server {
    fn new(url: String, token: Option<String>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .no_proxy()
            .build()?;
        Ok(Self {
            url,
            token,
            http,
            runtime,
        })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Asks Alertmanager's API; an empty answer is null.
    pub fn alertmanager(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value, Failure> {
        let mut request = self
            .request(method, &format!("/api/v2/{path}"))
            .query(query);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.runtime.block_on(async {
            let ask = || format!("cannot ask the server at {}", self.url);
            let response = request.send().await.with_context(ask)?;
            let status = response.status();
            let body = response
                .bytes()
                .await
                .context("the server's answer broke off")?;
            let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            // Its own words are a text; go-openapi's, of what does not fit the interface, are an object.
            let words = answer.as_str().or_else(|| answer["message"].as_str());
            let told =
                || words.map_or_else(|| format!("the server answered {status}"), str::to_owned);
            match status {
                status if status.is_success() => Ok(answer),
                StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                    Err(Failure::Usage(anyhow::anyhow!(told())))
                }
                _ => Err(anyhow::anyhow!(told()).into()),
            }
        })
    }

    fn get<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
    ) -> Result<A, Failure> {
        self.send(self.request(Method::GET, path).query(question))
    }

    fn send<A: DeserializeOwned>(&self, request: RequestBuilder) -> Result<A, Failure> {
        self.runtime.block_on(async {
            let response = request
                .send()
                .await
                .with_context(|| format!("cannot ask the server at {}", self.url))?;
            self.answer(response).await
        })
    }

    async fn answer<A: DeserializeOwned>(&self, response: Response) -> Result<A, Failure> {
        let status = response.status();
        let body = response
            .bytes()
            .await
            .context("the server's answer broke off")?;
        if status.is_success() {
            return Ok(serde_json::from_slice(&body)
                .context("the server's answer is not what this takt expects")?);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if status == StatusCode::UNAUTHORIZED => Err(anyhow::Error::new(problem)
                .context("see --token-file (TAKT_TOKEN_FILE)")
                .into()),
            Ok(problem) => Err(problem.into()),
            Err(_) => Err(anyhow::anyhow!("the server at {} answered {status}", self.url).into()),
        }
    }

    /// Asks as any client of Prometheus' API does, and tells its errors as those of the files are told.
    fn query(&self, question: &QueryQuestion) -> Result<QueryAnswer, Failure> {
        let request = self.request(Method::POST, question.path()).form(question);
        self.runtime.block_on(async {
            let ask = || format!("cannot ask the server at {}", self.url);
            let response = request.send().await.with_context(ask)?;
            let status = response.status();
            let body = response
                .bytes()
                .await
                .context("the server's answer broke off")?;
            if status.is_success() {
                return Ok(serde_json::from_slice(&body)
                    .context("the server's answer is not what this takt expects")?);
            }
            let kind = match status {
                StatusCode::BAD_REQUEST => ProblemKind::Usage,
                StatusCode::UNPROCESSABLE_ENTITY => ProblemKind::Input,
                _ => ProblemKind::Failed,
            };
            let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            match answer["error"].as_str() {
                Some(error) => Err(Problem {
                    kind,
                    error: error.to_owned(),
                }
                .into()),
                None => Err(anyhow::anyhow!("the server at {} answered {status}", self.url).into()),
            }
        })
    }

    fn upload(
        &self,
        file: &Path,
        question: &ImportQuestion,
        progress: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<ImportSummary, Failure> {
        self.runtime.block_on(async {
            let failed = || format!("cannot read {}", file.display());
            let input: Box<dyn tokio::io::AsyncRead + Send + Sync + Unpin> =
                match file == Path::new("-") {
                    true => Box::new(tokio::io::stdin()),
                    false => Box::new(tokio::fs::File::open(file).await.with_context(failed)?),
                };
            let chunks = futures_util::stream::try_unfold((input, 0), move |(mut input, sent)| {
                let progress = progress.clone();
                async move {
                    let mut chunk = Vec::with_capacity(256 << 10);
                    let read = input.read_buf(&mut chunk).await? as u64;
                    progress(sent + read);
                    Ok::<_, std::io::Error>((read > 0).then_some((chunk, (input, sent + read))))
                }
            });
            let request = self.request(Method::POST, api::IMPORT_PATH).query(question);
            let request = request.body(reqwest::Body::wrap_stream(chunks));
            let response = request
                .send()
                .await
                .with_context(|| format!("cannot send the file to {}", self.url))?;
            self.answer(response).await
        })
    }
}
