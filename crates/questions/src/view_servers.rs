//! `[[view.servers]]`: other servers of Takt, which are asked through their APIs.

use crate::http_access::{HttpAccess, check_url};
use crate::http_thread::{HttpThread, InFlight};
use crate::{Question, RequestForm};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use takt_alerts::notify::http::{FetchedReply, HttpSender, NoReply};
use takt_model::ConfigError;

/// Bytes of one server's answer.
const ANSWER_MAX: usize = 64 << 20;

/// Characters of a server's message that are repeated.
const WORDS_MAX: usize = 200;

/// Other servers whose clusters are shown together with `takt view`, at `/servers`, and in
/// `/api/takt/v1/view`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViewConfig {
    /// The servers. This server is not among them unless it is listed, too.
    pub servers: Vec<ViewServerConfig>,
}

/// A server of Takt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewServerConfig {
    /// Name of the server in all tables.
    pub name: String,
    /// Address of the server, such as `https://takt.physics.example`.
    pub url: String,
    /// File with a token of that server (one line): `takt token create NAME --role viewer` there.
    /// The token decides what is seen.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust besides those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Cluster to ask for, if the server has records of several.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Seconds after which the server counts as silent.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
}

fn timeout_seconds() -> u64 {
    10
}

impl ViewConfig {
    /// Checks that types cannot express.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (at, server) in self.servers.iter().enumerate() {
            // The place in the list, since several servers have the same keys.
            server.validate().map_err(|error| {
                let place = format!("servers, number {}: ", at + 1);
                error.in_list(&place, "servers", at)
            })?;
            // A row names its server and nothing else of it.
            let name = &server.name;
            if self.servers[..at].iter().any(|one| one.name == *name) {
                let problem = format!("two servers have the name {name}; set another name");
                return Err(ConfigError::with_problem("servers", problem));
            }
        }
        Ok(())
    }

    /// The files with secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = (String, &Path)> {
        self.servers.iter().enumerate().filter_map(|(at, server)| {
            let key = format!("view.servers[{at}].token_file");
            Some((key, server.token_file.as_deref()?))
        })
    }

    /// The files that the section names.
    pub fn files(&mut self) -> impl Iterator<Item = &mut Option<PathBuf>> {
        self.servers
            .iter_mut()
            .flat_map(|server| [&mut server.token_file, &mut server.ca_file])
    }
}

impl ViewServerConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        // A server of this name would look like the sum.
        if self.name.trim().is_empty() || self.name == SUM {
            let expected = format!("a name other than {SUM:?}");
            let found = format!("{:?}", self.name);
            return Err(ConfigError::new("name", expected, found));
        }
        check_url("url", &self.url, "https://takt.physics.example")?;
        // 0 would count every server as silent.
        if self.timeout_seconds == 0 {
            return Err(ConfigError::new("timeout_seconds", "at least 1", 0));
        }
        Ok(())
    }

    fn sender(&self) -> anyhow::Result<HttpSender> {
        let access = HttpAccess {
            bearer_token_file: self.token_file.as_deref(),
            username: None,
            password_file: None,
            ca_file: self.ca_file.as_deref(),
            headers: None,
            timeout: Duration::from_secs(self.timeout_seconds),
        };
        Ok(HttpSender::new(&access.options()?)?)
    }
}

/// Name of the rows that add up all servers.
pub(crate) const SUM: &str = "sum";

/// The servers of the view. Clones share their connections.
#[derive(Debug, Clone, Default)]
pub struct ViewServers(Arc<Servers>);

#[derive(Debug, Default)]
struct Servers {
    all: Vec<ViewServer>,
    /// Started with the first request.
    thread: OnceLock<Option<HttpThread>>,
}

/// A server of the view.
#[derive(Debug)]
pub(crate) struct ViewServer {
    /// Its section of the configuration.
    pub config: ViewServerConfig,
    /// The client, with the token that the file had. `None` before the first request and after a
    /// refusal.
    http: Mutex<Option<HttpSender>>,
}

impl ViewServer {
    fn http(&self) -> MutexGuard<'_, Option<HttpSender>> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client. The first call, and the first one after a refusal, reads the token.
    fn sender(&self) -> anyhow::Result<HttpSender> {
        let mut http = self.http();
        if let Some(sender) = &*http {
            return Ok(sender.clone());
        }
        Ok(http.insert(self.config.sender()?).clone())
    }

    /// Returns the reason of a refusal and how to mend it. The next request reads the token again.
    fn refusal(&self, status: u16, words: &str) -> String {
        *self.http() = None;

        let name = &self.config.name;
        let make = "make one on that server with `takt token create view --role viewer`";
        match &self.config.token_file {
            Some(file) => format!(
                "refuses the token in {} (HTTP {status}: {words}): {make}, and write it into that file, \
                 which token_file of [[view.servers]] {name:?} in takt.toml names",
                file.display()
            ),
            None => format!(
                "needs a token (HTTP {status}): {make}, write it into a file, and name the file as \
                 token_file of [[view.servers]] {name:?} in takt.toml"
            ),
        }
    }
}

/// The answer of one server, or the reason why it has none.
pub(crate) type Answered<'v, T> = (&'v ViewServer, Result<T, String>);

type InFlightReply = InFlight<Result<FetchedReply, NoReply>>;

/// Requests to some servers.
pub(crate) struct Sent<'v, T>(
    Vec<(&'v ViewServer, Result<InFlightReply, String>)>,
    PhantomData<T>,
);

impl<'v, T> Sent<'v, T>
where
    T: DeserializeOwned,
{
    /// Waits until each server has answered, or its time is over.
    pub fn wait(self) -> Vec<Answered<'v, T>> {
        // In the order of the configuration. The requests run at the same time.
        self.0
            .into_iter()
            .map(|(server, in_flight)| {
                let reply = in_flight.and_then(|in_flight| {
                    in_flight
                        .reply
                        .recv()
                        .map_err(|_| "the request was given up".to_owned())
                });
                (server, reply.and_then(|reply| read(server, reply)))
            })
            .collect()
    }
}

impl ViewServers {
    /// The servers of a configuration.
    pub fn of(config: &ViewConfig) -> Self {
        let all = config.servers.iter().map(|config| ViewServer {
            config: config.clone(),
            http: Mutex::default(),
        });
        Self(Arc::new(Servers {
            all: all.collect(),
            thread: OnceLock::new(),
        }))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    /// The servers, in the order of the configuration.
    pub(crate) fn all(&self) -> &[ViewServer] {
        &self.0.all
    }

    /// Begins to ask some servers, each the question that `question` makes for it.
    pub(crate) fn send<'v, Q>(
        &self,
        servers: &[&'v ViewServer],
        question: impl Fn(&ViewServer) -> Q,
    ) -> Sent<'v, Q::Answer>
    where
        Q: Question,
    {
        // A view never changes another server.
        assert!(Q::REQUEST == RequestForm::Get, "only questions by GET");
        self.get(servers, |server| {
            let question = question(server);
            format!("{}?{}", question.path(), query(&question))
        })
    }

    /// Begins to request a path of some servers.
    pub(crate) fn get<'v, T>(
        &self,
        servers: &[&'v ViewServer],
        path: impl Fn(&ViewServer) -> String,
    ) -> Sent<'v, T> {
        let sent = servers
            .iter()
            .map(|server| (*server, self.begin(server, &path(server))))
            .collect();
        Sent(sent, PhantomData)
    }

    fn begin(&self, server: &ViewServer, path: &str) -> Result<InFlightReply, String> {
        let sender = server.sender().map_err(|error| format!("{error:#}"))?;
        // One thread for all servers, started by the first request that needs it.
        let thread = self.0.thread.get_or_init(|| {
            HttpThread::start("takt-view")
                .inspect_err(|error| tracing::error!(%error, "cannot start a thread"))
                .ok()
        });

        let url = format!("{}{path}", server.config.url.trim_end_matches('/'));
        let request = async move { sender.fetch(&url, None, ANSWER_MAX).await };
        thread
            .as_ref()
            .and_then(|thread| thread.begin(request))
            .ok_or_else(|| "no thread can ask it".to_owned())
    }
}

fn read<T>(server: &ViewServer, reply: Result<FetchedReply, NoReply>) -> Result<T, String>
where
    T: DeserializeOwned,
{
    let reply = reply.map_err(|silent| format!("does not answer: {silent}"))?;
    // A cut body is no JSON, and the limit is the reason.
    if reply.is_cut {
        return Err(format!(
            "answers with more than {} MiB: ask for less",
            ANSWER_MAX >> 20
        ));
    }
    match reply.status {
        // A server of another release may have other fields.
        200..=299 => serde_json::from_slice(&reply.body).map_err(|error| {
            format!("answers in an unknown form; is its version another? {error}")
        }),
        401 | 403 => Err(server.refusal(reply.status, &words(&reply.body))),
        // Takt answers 404 with a message; another program's page has none.
        404 if said(&reply.body).is_none() => Err(
            "fails (HTTP 404): it does not look like a Takt server; is url of [[view.servers]] right?"
                .to_owned(),
        ),
        status => Err(format!("fails (HTTP {status}): {}", words(&reply.body))),
    }
}

/// The message of an error, or the begin of the page.
fn words(body: &[u8]) -> String {
    said(body)
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
        .chars()
        .take(WORDS_MAX)
        .collect()
}

/// The message of an error as Takt's API describes it.
fn said(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    Some(value["error"].as_str()?.to_owned())
}

/// The fields of a question as a query string. Empty fields are left out, so that a server that does
/// not know them yet still answers.
fn query<Q>(question: &Q) -> String
where
    Q: Serialize,
{
    let fields = serde_json::to_value(question).unwrap_or_default();

    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => drop(query.append_pair(name, text)),
            other => drop(query.append_pair(name, &other.to_string())),
        }
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FairshareQuestion, JobsQuestion};

    #[test]
    fn a_question_is_a_query_string_without_its_empty_fields() {
        let jobs = JobsQuestion {
            user: Some("a&b".to_owned()),
            limit: 7,
            ..JobsQuestion::default()
        };
        // An ampersand in a value must not begin another field.
        assert_eq!(query(&jobs), "limit=7&user=a%26b");
        assert_eq!(query(&FairshareQuestion::default()), "explain=false");
    }

    #[test]
    fn the_reason_of_a_refusal_is_told() {
        let reply = |token_file: Option<&str>, status, body: &str| {
            let file = token_file.map(|file| format!("token_file = {file:?}"));
            let config = format!(
                "[[servers]]\nname = \"lab\"\nurl = \"http://lab\"\n{}",
                file.unwrap_or_default()
            );
            let servers = ViewServers::of(&toml::from_str(&config).unwrap());
            let reply = FetchedReply {
                status,
                body: body.as_bytes().to_vec(),
                is_cut: false,
            };
            read::<Value>(&servers.all()[0], Ok(reply)).unwrap_err()
        };

        assert_eq!(
            reply(Some("/etc/takt/lab"), 401, r#"{"error":"unknown"}"#),
            "refuses the token in /etc/takt/lab (HTTP 401: unknown): make one on that server with \
             `takt token create view --role viewer`, and write it into that file, which token_file of \
             [[view.servers]] \"lab\" in takt.toml names"
        );

        assert_eq!(
            reply(None, 401, r#"{"error":"a token is needed"}"#),
            "needs a token (HTTP 401): make one on that server with `takt token create view --role \
             viewer`, write it into a file, and name the file as token_file of [[view.servers]] \"lab\" \
             in takt.toml"
        );
        // A gateway in front of the server answers with a page.
        assert_eq!(
            reply(None, 502, "bad gateway"),
            "fails (HTTP 502): bad gateway"
        );
        for page in ["", "<html>not found"] {
            assert_eq!(
                reply(None, 404, page),
                "fails (HTTP 404): it does not look like a Takt server; is url of [[view.servers]] \
                 right?"
            );
        }
        assert!(reply(None, 200, "<html>").starts_with("answers in an unknown form"));
    }
}
